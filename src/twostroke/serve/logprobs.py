"""Log-probabilities of an answer's tokens in OpenAI's two forms. Used by replies; computes no probability."""

import codecs
from collections.abc import Sequence
from typing import Any

from twostroke.core.event import TokenEvent
from twostroke.core.step import ScoredToken, TokenLogprob
from twostroke.serve.served_model import ServedModel


def chat_logprobs(model: ServedModel, tokens: Sequence[TokenEvent]) -> dict[str, Any]:
    """One entry per token, end tokens too; `bytes` is null for a control token, which adds none to the text."""
    entries = [
        _chat_entry(model, TokenLogprob(token.token_id, _known(token.logprob)))
        | {"top_logprobs": [_chat_entry(model, other) for other in token.top_logprobs]}
        for token in tokens
    ]
    return {"content": entries, "refusal": None}


def _chat_entry(model: ServedModel, token: TokenLogprob) -> dict[str, Any]:
    shown = model.token_bytes(token.token_id)
    return {
        "token": model.token_text(token.token_id),
        "logprob": token.logprob,
        "bytes": None if shown is None else list(shown),
    }


class CompletionLogprobs:
    """The older form: four lists. Remembers how much text came before, for the offsets of the next tokens."""

    def __init__(self, model: ServedModel, *, num_characters: int = 0) -> None:
        self._model = model
        self.num_characters = num_characters
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Sequence[TokenEvent] | Sequence[ScoredToken]) -> dict[str, Any]:
        """`text_offset` counts whole characters before a token; alternatives of equal text keep the likeliest."""
        return {
            "tokens": [self._text_of(token.token_id) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [self._alternatives(token) for token in tokens],
            "text_offset": [self._offset_before(token.token_id) for token in tokens],
        }

    def _alternatives(self, token: TokenEvent | ScoredToken) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        found: dict[str, float] = {}
        for other in (*token.top_logprobs, TokenLogprob(token.token_id, token.logprob)):
            found.setdefault(self._text_of(other.token_id), other.logprob)
        return found

    def _text_of(self, token_id: int) -> str:
        """The token's text; parts of characters in OpenAI's spelling, so that no two of them look alike."""
        shown = self._model.token_bytes(token_id)
        if shown is None:
            return self._model.token_text(token_id)
        try:
            return shown.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in shown)

    def _offset_before(self, token_id: int) -> int:
        offset = self.num_characters
        self.num_characters += len(self._decoder.decode(self._model.token_bytes(token_id) or b""))
        return offset


def _known(logprob: float | None) -> float:
    assert logprob is not None, "logprobs were asked for"
    return logprob
