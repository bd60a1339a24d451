"""Server-sent events, and what a chunk of an answer says. Fed with bytes as they come, cut anywhere."""

import json
from dataclasses import dataclass
from typing import Any

from twostroke.errors import RemoteError

DONE = b"[DONE]"


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


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a streamed answer. `usage` are the counts so far where the server tells them."""

    text: str
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
        text = first.get("text") or delta.get("content") or delta.get("reasoning_content") or ""
        return Chunk(text, bool(choices), first.get("finish_reason"), value.get("usage"), value.get("ledger"))
    except (ValueError, AttributeError, TypeError):
        raise RemoteError(f"an event is no chunk of an answer: {data[:80]!r}", kind="no chunk") from None
