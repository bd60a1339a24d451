"""Where JSON ends, and the fields of an object as they were written, against Python's own reader."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from twostroke.chat.json_text import JsonEnd, objects_in

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


@given(value=OBJECTS | st.lists(VALUES), rest=st.text(max_size=5), size=st.integers(1, 7), escapes=st.booleans())
def test_a_value_ends_where_it_ends_whatever_the_pieces(value: Any, rest: str, size: int, escapes: bool) -> None:
    text = json.dumps(value, ensure_ascii=escapes)
    scanner, whole = JsonEnd(), text + rest
    for start in range(0, len(whole), size):
        end = scanner.feed(whole[start : start + size], 0)
        if end is not None:
            assert start + end == len(text)
            return
    assert not rest
    raise AssertionError("no end was found")


@pytest.mark.parametrize("text", ["x", '"a"', "1", '{"a\n": 1}', '{"a" <b>}', "{\\", "{'a'}"])
def test_what_is_no_json_is_known_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        JsonEnd().feed(text, 0)


@given(value=OBJECTS, indent=st.sampled_from([None, 0, 2]))
def test_fields_keep_their_values_and_their_spelling(value: dict[str, Any], indent: int | None) -> None:
    (fields,) = objects_in(json.dumps(value, indent=indent))
    assert {name: found for name, (found, _) in fields.items()} == value
    assert {name: json.loads(text) for name, (_, text) in fields.items()} == value


@given(values=st.lists(OBJECTS, min_size=1, max_size=3))
def test_a_list_of_objects_is_all_of_them(values: list[dict[str, Any]]) -> None:
    found = objects_in(f" {json.dumps(values)}\n")
    assert [{name: value for name, (value, _) in fields.items()} for fields in found] == values


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a field stands there twice")
    return dict(pairs)


@given(text=st.text('{}[]",:\\ 1a\n', max_size=12))
def test_only_objects_and_lists_of_objects_pass(text: str) -> None:
    try:
        read = json.loads(text, object_pairs_hook=once)
    except ValueError:
        read = None
    is_right = isinstance(read, dict) or (
        isinstance(read, list) and bool(read) and all(isinstance(each, dict) for each in read)
    )
    try:
        objects_in(text)
        passed = True
    except ValueError:
        passed = False
    assert passed == is_right


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1, "a": 2}', "[]", '{"a": 1}{}', "[1]", '{"a": Infinity}'])
def test_what_is_ambiguous_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        objects_in(text)


def test_nesting_beyond_reason_is_refused() -> None:
    deep = '{"a": ' * 100_000 + "1" + "}" * 100_000
    assert JsonEnd().feed(deep, 0) == len(deep)
    with pytest.raises(ValueError, match="deeply"):
        objects_in(deep)
