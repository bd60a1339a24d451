import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from twostroke.serve.api_error import ApiError
from twostroke.serve.body import kind_of, parse_object


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
