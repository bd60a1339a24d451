"""What was asked: frozen from arrival to the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twostroke.core.ledger import Part
from twostroke.embedding import EmbeddingParams
from twostroke.params import SamplingParams

if TYPE_CHECKING:
    from twostroke.core.strategy import AnswerGrammar
    from twostroke.stop_pattern import StopPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to the engine.

    `arrival_s` is on the engine's clock. `seed` is the user's or the recorded one of an unseeded request;
    answers of one seed differ by `choice_index`. `salt` separates tenants in the prefix cache.
    `stop_token_ids` joins the model's end tokens (unless ignored) and the user's.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    arrival_s: float
    seed: int
    stop_token_ids: frozenset[int] = frozenset()
    stop_patterns: "tuple[StopPattern, ...]" = ()
    choice_index: int = 0
    priority: int = 0
    salt: str = ""
    bad_words: tuple[tuple[int, ...], ...] = ()  # those of `params` as token ids, each spelling of its own
    dry_breakers: tuple[tuple[int, ...], ...] = ()
    grammar: "AnswerGrammar | None" = None  # at its beginning, this answer's alone
    shown_ids: frozenset[int] = frozenset()  # control tokens that are part of the answer's text
    embedding: EmbeddingParams | None = None  # a vector of the prompt is asked for, no answer
    continues_text: bool = True  # the answer goes on after the prompt's own text; False: a chat turn begins
    spent: Mapping[Part, float] = field(default_factory=dict)  # ledger parts before submit, seconds
