"""The ids a model gives a meaning: begin, end of text, end of turn, end of message, unknown.

Filled by the builders, read by Tokenizer and the engine. Names known from published models fill in
what a file leaves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Literals that published models end a turn, a message or a text with; a file need not name their ids.
END_OF_TURN = (
    *("<|im_end|>", "<|eot_id|>", "<|eot|>", "<end_of_turn>", "<turn|>", "<|end|>", "<|endofturn|>", "<|end_of_turn|>"),
    *("<|return|>", "<EOT>", "< EOT >", "_<EOT>", "<｜end▁of▁turn｜>", "[EOT]"),
)
END_OF_MESSAGE = ("<|eom_id|>", "<|eom|>", "<|call|>")
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """Ids with a meaning; None where the model has no such token.

    `end_ids` holds every id that ends an answer. `adds_bos`: the model wants its BOS before a prompt.
    """

    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None
    eom_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    adds_bos: bool = False
    end_ids: frozenset[int] = field(default_factory=frozenset)


def end_literals() -> frozenset[str]:
    """Every literal known to end a turn, a message or a text."""
    return frozenset((*END_OF_TURN, *END_OF_MESSAGE, *END_OF_TEXT))


def find_end_tokens(id_of: Mapping[str, int], *, named: SpecialTokens) -> SpecialTokens:
    """`named` with eot and eom filled in from the known literals among `id_of`, and all end ids together."""
    eot_id = named.eot_id if named.eot_id is not None else _first_known(END_OF_TURN, id_of)
    eom_id = named.eom_id if named.eom_id is not None else _first_known(END_OF_MESSAGE, id_of)
    known = {id_of[text] for text in end_literals() if text in id_of}
    ends = known | {token_id for token_id in (named.eos_id, eot_id, eom_id, *named.end_ids) if token_id is not None}
    return SpecialTokens(
        bos_id=named.bos_id,
        eos_id=named.eos_id,
        eot_id=eot_id,
        eom_id=eom_id,
        unk_id=named.unk_id,
        pad_id=named.pad_id,
        adds_bos=named.adds_bos,
        end_ids=frozenset(ends),
    )


def _first_known(literals: tuple[str, ...], id_of: Mapping[str, int]) -> int | None:
    return next((id_of[text] for text in literals if text in id_of), None)
