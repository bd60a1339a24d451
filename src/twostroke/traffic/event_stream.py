"""Server-sent events, and what a chunk of an answer says. Fed with bytes as they come, cut anywhere."""

import json
from dataclasses import dataclass
from typing import Any

from twostroke.errors import RemoteError

DONE = b"[DONE]"
MAX_COUNT = 2**31  # tokens of an answer or prompt: beyond, something else was counted


class EventDecoder:
    """Bytes in, the data of whole events out."""

    def __init__(self) -> None:
        self.num_comments = 0  # signs of life
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every event that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        whole: list[bytes] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b":"):
                self.num_comments += 1
            elif not line and self._data:
                whole.append(b"\n".join(self._data))
                self._data = []
        return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk of a streamed answer. `usage` are the counts so far where the server tells them."""

    text: str
    reasoning: str  # what the model thinks, where the server tells it apart
    has_choices: bool
    finish_reason: str | None
    usage: dict[str, Any] | None
    ledger: dict[str, Any] | None


def read_chunk(data: bytes) -> Chunk:
    """A chunk of either route. Raises RemoteError for an error event and for what is no chunk."""
    try:
        value = json.loads(data)
        if "error" in value:
            error = value["error"]
            said = error.get("message", "") if isinstance(error, dict) else error
            raise RemoteError(f"the server ended the answer: {said}", kind="error event")
        choices = value.get("choices") or []
        first = choices[0] if choices else {}
        delta = first.get("delta") or {}
        text = first.get("text") or delta.get("content") or ""
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        usage, ledger, reason = value.get("usage"), value.get("ledger"), first.get("finish_reason")
        (text + reasoning).encode()  # a lone surrogate stands for no text
        if _are(str, reason) and _are(dict, usage, ledger) and _counts(usage or {}):
            return Chunk(
                text=text,
                reasoning=reasoning,
                has_choices=bool(choices),
                finish_reason=reason,
                usage=usage,
                ledger=ledger,
            )
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        pass
    raise RemoteError(f"an event is no chunk of an answer: {data[:80]!r}", kind="no chunk")


def _are(kind: type, *values: object) -> bool:
    """Whether each is of the kind or absent."""
    return all(value is None or isinstance(value, kind) for value in values)


def _counts(usage: dict[str, Any]) -> bool:
    """Whether what is counted of it are counts: no server's word breaks a sum."""
    details = usage.get("prompt_tokens_details") or {}
    told = (usage.get("prompt_tokens"), usage.get("completion_tokens"), details.get("cached_tokens"))
    return all(count is None or (type(count) is int and 0 <= count <= MAX_COUNT) for count in told)
