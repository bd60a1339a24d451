import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from starlette.requests import Request

from twostroke.serve.api_error import ApiError
from twostroke.serve.body import MAX_LEVELS, cut, kind_of, parse_object, read_body
from twostroke.serve.limits import LimitsConfig


def refusal(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_object(body)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "line 1 column 1"),
        (b"{", "line 1 column 2"),
        (b"{:", "character 1"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b'"x"', "a string"),
        (b"5", "an integer"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"a": "\xff"}', "byte 7"),
        (b'{"a": 1} // x', "Extra data"),
        (b'{"a": 1,}', "not JSON"),
        (b'{"a": ' + b"9" * 400 + b"}", "beyond 64 bits"),
        (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deeply"),
        (b'{"a": {"b": ["x", "\\ud800"]}}', "a.b[1]"),
        (b'{"\\udfff": 1}', "lone surrogate"),
        (b'{"a\\udfff": 1, "a\\udfff": 2}', "twice"),
    ],
)
def test_broken_bodies_are_refused_with_the_place(body: bytes, words: str) -> None:
    error = refusal(body)
    assert words in str(error)
    json.dumps(error.body, ensure_ascii=False).encode()


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_values_may_be_nested_as_deep_as_any_schema_and_no_deeper(begin: str, end: str) -> None:
    levels = (MAX_LEVELS - 1) // (begin.count("[") + begin.count("{"))

    def nested(num: int) -> bytes:
        return b'{"a": ' + (begin * num + "1" + end * num).encode() + b"}"

    assert list(parse_object(nested(levels))) == ["a"]
    assert f"the limit is {MAX_LEVELS} levels" in str(refusal(nested(levels + 1)))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_every_sound_object_comes_back_as_it_is(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value).encode()) == value
    assert parse_object(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    with contextlib.suppress(ApiError):
        assert isinstance(parse_object(body), dict)


def test_values_have_names_a_person_uses() -> None:
    values: tuple[Any, ...] = (None, True, "", 1, 1.5, [], {})
    assert [kind_of(value) for value in values] == [
        "null",
        "true or false",
        "a string",
        "an integer",
        "a number",
        "an array",
        "an object",
    ]


def test_a_long_key_is_cut_wherever_it_is_repeated() -> None:
    key = "k" * 100_000
    for body in (f'{{"{key}": {2**64}}}', f'{{"{key}": 1, "{key}": 1}}', f'{{"a": {{"{key}": ["\\ud800"]}}}}'):
        error = refusal(body.encode())
        assert len(str(error)) < 200
        assert error.param is not None
        assert len(error.param) <= 60


def test_a_long_key_over_many_values_costs_no_more_than_its_bytes() -> None:
    """Spelling out the place of every value would copy 400 gigabytes; the time limit of a test is the judge."""
    body = ('{"' + "k" * 1_000_000 + '": [' + '"",' * 400_000 + f"{2**64}]}}").encode()
    assert "has an integer beyond 64 bits" in str(refusal(body))


# What comes off the wire


def read(
    *chunks: bytes, headers: dict[str, str] | None = None, limits: LimitsConfig | None = None, ends: bool = True
) -> bytes:
    """The body of a request made of these chunks; one that does not end leaves the reader waiting."""
    given = {"content-type": "application/json"} | (headers or {})
    pending = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if ends:
        pending.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        if not pending:
            await asyncio.Event().wait()
        return pending.pop(0)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value]
    request = Request({"type": "http", "method": "POST", "headers": raw}, receive)
    return asyncio.run(read_body(request, limits or LimitsConfig()))


def unread(
    *chunks: bytes, headers: dict[str, str] | None = None, limits: LimitsConfig | None = None, ends: bool = True
) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(*chunks, headers=headers, limits=limits, ends=ends)
    return caught.value


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json"},
        {"content-type": " APPLICATION/JSON ;charset=utf-8"},
        {"content-encoding": "identity"},
        {"content-encoding": " Identity "},
        {"content-length": "3"},
        {"content-length": "-1"},  # what no client means is left to the bytes that come
        {"content-length": "\xb2" * 30},
        {"content-length": "many"},
    ],
)
def test_a_body_comes_whole_whatever_its_chunks(headers: dict[str, str]) -> None:
    assert read(b"a", b"", b"bc", headers=headers) == b"abc"
    assert read(headers=headers) == b""


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"content-type": ""}, "Content-Type is 'missing': send application/json"),
        ({"content-type": "; charset=utf-8"}, "Content-Type is 'missing': send application/json"),
        ({"content-type": "Application/JSONL"}, "Content-Type is 'application/jsonl': send application/json"),
        ({"content-encoding": "BR"}, "Content-Encoding is 'br': send the body as it is"),
        ({"content-encoding": "identity, gzip"}, "Content-Encoding is 'identity, gzip': send the body as it is"),
    ],
)
def test_another_kind_of_body_is_named_in_small_letters(headers: dict[str, str], said: str) -> None:
    error = unread(b"{}", headers=headers)
    assert (error.status, str(error)) == (415, said)


def test_the_limit_is_the_last_size_that_is_read() -> None:
    limits = LimitsConfig(max_body_bytes=4)
    assert read(b"abcd", headers={"content-length": "4"}, limits=limits) == b"abcd"
    assert read(b"ab", b"cd", limits=limits) == b"abcd"


def test_an_announced_body_beyond_the_limit_is_refused_unread_with_its_own_size() -> None:
    error = unread(headers={"content-length": "7000"}, limits=LimitsConfig(max_body_bytes=4), ends=False)
    assert (error.status, str(error)) == (
        413,
        "the body has 7000 bytes or more: the limit is 4, shorten the prompt",
    )


def test_reading_stops_at_the_chunk_that_is_too_much() -> None:
    error = unread(b"abc", b"de", limits=LimitsConfig(max_body_bytes=4), ends=False)
    assert (error.status, str(error)) == (413, "the body has 5 bytes or more: the limit is 4, shorten the prompt")


@pytest.mark.parametrize("chunks", [(), (b"{",)])
def test_a_body_that_does_not_end_is_given_up_with_the_seconds(chunks: tuple[bytes, ...]) -> None:
    error = unread(*chunks, limits=LimitsConfig(body_timeout_s=0.01), ends=False)
    assert (error.status, str(error)) == (408, "the body was not complete after 0.01 s: send it faster")
    error = unread(*chunks, limits=LimitsConfig(body_timeout_s=0.0), ends=False)
    assert str(error) == "the body was not complete after 0 s: send it faster"


# Edges of values


@pytest.mark.parametrize("value", [-(2**63), 2**64 - 1, 0, -1])
def test_integers_of_64_bits_come_through(value: int) -> None:
    assert parse_object(json.dumps({"a": value}).encode()) == {"a": value}


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**64])
def test_the_first_integers_beyond_are_refused_at_their_place(value: int) -> None:
    for body, place in (({"a": value}, "a"), ({"a": [0, {"b": value}]}, "a[1].b"), ({"": [[value]]}, "[0][0]")):
        error = refusal(json.dumps(body).encode())
        assert str(error) == f"{place} has an integer beyond 64 bits: no field takes one"
        assert error.param == place


@pytest.mark.parametrize(
    ("body", "said", "param"),
    [
        (b'{"\\ud800": 1}', "a key of the body has a lone surrogate at character 0", "a key of the body"),
        (b'{"a": {"x\\ud800": 1}}', "a has a lone surrogate at character 1", "a"),
        (b'{"a": ["b", "cd\\udfff"]}', "a[1] has a lone surrogate at character 2", "a[1]"),
        (b'{"a": {"b": 1, "b": 2}}', "the key 'b' is there twice: keep one", "b"),
        (b'{"\\u00e9": 1, "\\u00e9": 2}', r"the key '\xe9' is there twice: keep one", r"\xe9"),
        (b'{"a": Infinity}', "the body holds Infinity: JSON has no such number", None),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_place(body: bytes, said: str, param: str | None) -> None:
    error = refusal(body)
    assert str(error).startswith(said)
    assert error.param == param


@pytest.mark.parametrize(("length", "shown"), [(59, "x" * 59), (60, "x" * 60), (61, "x" * 57 + "...")])
def test_a_text_is_cut_beyond_sixty_characters(length: int, shown: str) -> None:
    assert cut("x" * length) == shown
    assert refusal(f'{{"{"x" * length}": {2**64}}}'.encode()).param == shown
