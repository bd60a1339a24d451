"""Log-probabilities of a prompt: which are asked for, and how they are told in OpenAI's form and in vLLM's.

`openai.read_wish` and the replies use it; it computes no probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.core.step import ScoredToken
from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields
from twostroke.serve.logprobs import CompletionLogprobs
from twostroke.serve.served_model import ServedModel

Scores = Sequence[ScoredToken]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWish:
    """What a reply tells of its prompts."""

    echoes: bool = False  # their text comes before the answer's, their log-probabilities before its
    num_told: int | float | None = None  # alternatives to each token in the field prompt_logprobs; None: no such field
    num_scored: int | float | None = None  # what is computed for both


def read_prompt_wish(fields: Fields, *, is_chat: bool, is_stream: bool) -> PromptWish:
    """`prompt_logprobs` as vLLM's, and `echo` beside `logprobs` or with no answer at all as OpenAI's.

    Raises ApiError. Whether the numbers are in range, SamplingParams says.
    """
    num_told = fields.number("prompt_logprobs")
    if num_told is not None and is_stream:
        raise ApiError(
            "prompt_logprobs is given and stream is true: they come with the whole reply, leave out stream",
            param="prompt_logprobs",
        )
    echoes = not is_chat and (fields.flag("echo") or False)
    wanted = [] if num_told is None else [num_told]
    if echoes:
        beside = fields.look_at("logprobs")
        wanted += [beside] if type(beside) is int else []
        wanted += [0] if 0 in (fields.look_at("max_tokens"), fields.look_at("max_completion_tokens")) else []
    return PromptWish(echoes=echoes, num_told=num_told, num_scored=max(wanted, default=None))


def told_scores(model: ServedModel, scores: Scores, *, num_best: int) -> list[dict[str, Any] | None]:
    """vLLM's form: of every prompt token but the first, each token's own and the best by their ids."""
    return [None, *[_entry(model, score, num_best) for score in scores[1:]]]


def _entry(model: ServedModel, score: ScoredToken, num_best: int) -> dict[str, Any]:
    """The logarithm is null where the model holds the token impossible: minus infinity is no JSON."""
    told = [(score.token_id, score.logprob, score.rank)]
    told += [(other.token_id, other.logprob, place) for place, other in enumerate(score.top_logprobs[:num_best], 1)]
    return {
        str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": model.token_text(token_id)}
        for token_id, logprob, rank in told
    }


def echoed_logprobs(model: ServedModel, scores: Scores, *, num_best: int, prompt_text: str) -> dict[str, Any]:
    """OpenAI's form: four lists, null for the first token; offsets are those of the text as it is echoed."""
    form = CompletionLogprobs(model)
    lists = form.of([score._replace(top_logprobs=score.top_logprobs[:num_best]) for score in scores])
    excess = form.num_characters - len(prompt_text)  # a space that begins the first word, a token that shows no text
    return lists | {"text_offset": [max(offset - excess, 0) for offset in lists["text_offset"]]}
