"""A reply as bytes of JSON, made entry by entry: hundreds of vectors at once would hold up every thread for seconds.

Called by the routes. The bytes are those of Starlette's JSONResponse.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

MANY_ANSWERS = 8  # from so many on a reply is made beside the event loop
LEVELS = 2  # the reply, and its list of choices or vectors: what lies deeper is encoded in one go
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_body(value: dict[str, Any]) -> bytes:
    """Raises ValueError for what JSON cannot say."""
    return "".join(_pieces(value, LEVELS)).encode()


def _pieces(value: Any, levels: int) -> Iterator[str]:
    if levels and value and isinstance(value, dict):
        heads: Iterable[str] = (f"{ENCODER.encode(key)}:" for key in value)
        yield from _listed("{", heads, value.values(), "}", levels)
    elif levels and value and isinstance(value, list):
        yield from _listed("[", ("" for _ in value), value, "]", levels)
    else:
        yield ENCODER.encode(value)


def _listed(begin: str, heads: Iterable[str], values: Iterable[Any], end: str, levels: int) -> Iterator[str]:
    mark = begin
    for head, value in zip(heads, values, strict=True):
        yield mark + head
        yield from _pieces(value, levels - 1)
        mark = ","
    yield end
