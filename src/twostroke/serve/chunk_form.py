"""Events of a stream as bytes: any, and those of one answer that differ in little.

Used by the replies of OpenAI's routes. A form is cut from the bytes of a whole event, so it gives no others.
"""

import json
from typing import Any

ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # made once: json.dumps would for every token
GAP = "\ud800"  # half a character, which no name, id or text of a client can hold
_ENCODED_GAP = ENCODER.encode(GAP)


def encode_event(value: dict[str, Any]) -> bytes:
    """One event; JSON escapes line ends, so it stays on its line."""
    return f"data: {ENCODER.encode(value)}\n\n".encode()


class ChunkForm:
    """An event with gaps where a value is GAP."""

    def __init__(self, value: dict[str, Any]) -> None:
        first, *rest = f"data: {ENCODER.encode(value)}\n\n".split(_ENCODED_GAP)
        self._first = first.encode()
        self._rest = [part.encode() for part in rest]

    def filled(self, *values: Any) -> bytes:
        """The event with a value in every gap."""
        parts = [self._first]
        for value, part in zip(values, self._rest, strict=True):
            parts += (ENCODER.encode(value).encode(), part)
        return b"".join(parts)
