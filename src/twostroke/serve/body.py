"""From bytes on the wire to a JSON object that is safe to look into: size, time, encoding, syntax."""

import asyncio
import json
from typing import Any

from starlette.requests import Request

from twostroke.serve.api_error import OLLAMA_PATHS, ApiError
from twostroke.serve.limits import LimitsConfig

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1  # beyond these no field of any route has a meaning
ARRIVAL = "arrival_s"  # in the state of a request: when its last byte was read, where the connection tells it
FORM = "application/x-www-form-urlencoded"
MAX_LEVELS = 128  # of arrays and objects: templates and compilers recurse over what is inside
MAX_SHOWN = 60  # characters of what a client sent that a message repeats
# Where a value stands: the place of what holds it, and its key or index. Spelt out only for a message: a body can
# have a key of megabytes over millions of values.
Place = tuple[Any, str | int] | None


async def read_body(request: Request, limits: LimitsConfig) -> bytes:
    """The whole body, also a chunked one. Raises ApiError 408, 413 or 415; stops reading at the limit."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind == FORM and _is_of_ollamas_tools(request)):
        raise ApiError(f"Content-Type is {cut(kind) or 'missing'!r}: send application/json", status=415)
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise ApiError(f"Content-Encoding is {cut(coding)!r}: send the body as it is", status=415)
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced) > limits.max_body_bytes:
        raise _too_large(int(announced), limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.max_body_bytes:
                    raise _too_large(len(body), limits)
    except TimeoutError:
        raise ApiError(
            f"the body was not complete after {limits.body_timeout_s:g} s: send it faster", status=408
        ) from None
    return bytes(body)


def _is_of_ollamas_tools(request: Request) -> bool:
    """Whether a body that says it is a form may hold JSON: Ollama's own examples have curl send it so.

    A page of another origin could send the same without being asked for leave, but its browser would say who it is.
    """
    is_of_browser = "origin" in request.headers or "sec-fetch-site" in request.headers
    return request.url.path.startswith(OLLAMA_PATHS) and not is_of_browser


def _too_large(num_bytes: int, limits: LimitsConfig) -> ApiError:
    limit = limits.max_body_bytes
    return ApiError(f"the body has {num_bytes} bytes or more: the limit is {limit}, shorten the prompt", status=413)


def parse_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object without duplicate keys, NaN, lone surrogates or integers beyond 64 bits.

    Raises ApiError that says where.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(f"the body is not UTF-8 at byte {error.start}: encode JSON as UTF-8") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        if not isinstance(value, dict):
            raise ApiError(f"the body is {kind_of(value)}: it must be a JSON object")
        _check_values(value, place=None, level=1)
    except json.JSONDecodeError as error:
        raise ApiError(
            f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno} (character {error.pos})"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise ApiError("the body has an integer of thousands of digits: no field takes one") from None
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            shown = cut(ascii(key)[1:-1])
            raise ApiError(f"the key '{shown}' is there twice: keep one", param=shown)
        result[key] = value
    return result


def _refuse_constant(name: str) -> None:
    raise ApiError(f"the body holds {name}: JSON has no such number")


def _too_deep() -> ApiError:
    return ApiError(f"the body is nested too deeply: the limit is {MAX_LEVELS} levels, flatten it")


def _check_values(value: Any, *, place: Place, level: int) -> None:
    if level > MAX_LEVELS and isinstance(value, list | dict):
        raise _too_deep()
    if isinstance(value, str):
        _check_text(value, place=place)
    elif isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise _wrong(place, "an integer beyond 64 bits: no field takes one")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_values(item, place=(place, index), level=level + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, place=place)
            _check_values(item, place=(place, key), level=level + 1)


def _check_text(text: str, *, place: Place) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _wrong(place, f"a lone surrogate at character {error.start}: it stands for no text") from None


def _wrong(place: Place, problem: str) -> ApiError:
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{cut(step)}")
    shown = cut("".join(reversed(steps)).removeprefix(".")) or "a key of the body"
    return ApiError(f"{shown} has {problem}", param=shown)


def cut(text: str, limit: int = MAX_SHOWN) -> str:
    """The beginning of a text that strangers wrote, for a message."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def kind_of(value: Any) -> str:
    """What a person calls the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    kinds: dict[type, str] = {str: "a string", int: "an integer", float: "a number", list: "an array"}
    return kinds.get(type(value), "an object")
