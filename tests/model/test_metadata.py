"""Typed access to key-values: the right type comes through unchanged, every other one is named with what was found."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from twostroke.errors import ModelFileError
from twostroke.model.metadata import MAX_SETTING, MIN_SETTING, Metadata, StringArray, describe_value, is_setting

FILE = Path("m.gguf")
VALUES: dict[str, Any] = {
    "bool": True,
    "int": 7,
    "float": 0.5,
    "text": "seven",
    "ints": np.array([1, 2], np.int16),
    "floats": np.array([0.5], np.float32),
    "bools": np.array([True, False, True]),
    "texts": StringArray(2, lambda: ["a", "b"]),
    "nested": (np.zeros(1), np.zeros(2), np.zeros(3)),
}
ACCESSORS = {
    "integer": ("int", "a whole number"),
    "number": ("float", "a number"),
    "boolean": ("bool", "true or false"),
    "text": ("text", "a string"),
    "integers": ("ints", "an array of whole numbers"),
    "numbers": ("floats", "an array of floating-point numbers"),
    "booleans": ("bools", "an array of bools"),
    "texts": ("texts", "an array of strings"),
}
FOUND = {
    "bool": "the bool True",
    "int": "the whole number 7",
    "float": "the number 0.5",
    "text": "the string 'seven'",
    "ints": "an array of 2 int16",
    "floats": "an array of 1 float32",
    "bools": "an array of 3 bool",
    "texts": "an array of 2 strings",
    "nested": "an array of 3 arrays",
}


def make_metadata(**values: Any) -> Metadata:
    return Metadata(FILE, VALUES | values)


def refusal(metadata: Metadata, accessor: str, key: str) -> str:
    with pytest.raises(ModelFileError) as caught:
        getattr(metadata, accessor)(key)
    return str(caught.value)


@pytest.mark.parametrize("accessor", ACCESSORS)
def test_an_accessor_takes_its_own_type_and_names_every_other(accessor: str) -> None:
    own, wanted = ACCESSORS[accessor]
    metadata = make_metadata()
    getattr(metadata, accessor)(own)
    taken = {own, "int"} if accessor == "number" else {own}
    for key in VALUES.keys() - taken:
        message = f"m.gguf: key {key!r} must be {wanted}; the file has {FOUND[key]}"
        assert refusal(metadata, accessor, key) == message


@pytest.mark.parametrize("accessor", ACCESSORS)
def test_a_missing_key_is_named(accessor: str) -> None:
    assert refusal(make_metadata(), accessor, "nowhere") == "m.gguf: key 'nowhere' is missing"


def test_values_come_through_as_stored() -> None:
    metadata = make_metadata()
    assert metadata.integer("int") == 7
    assert metadata.boolean("bool") is True
    assert metadata.text("text") == "seven"
    assert metadata.texts("texts") == ["a", "b"]
    for accessor, key in (("integers", "ints"), ("numbers", "floats"), ("booleans", "bools")):
        assert getattr(metadata, accessor)(key) is VALUES[key]


def test_a_whole_number_will_do_where_a_number_is_asked_for() -> None:
    number = make_metadata().number("int")
    assert (type(number), number) == (float, 7.0)


def test_unsigned_and_signed_arrays_are_whole_numbers_alike() -> None:
    metadata = make_metadata(unsigned=np.array([1], np.uint32), wide=np.array([1], np.float64))
    assert metadata.integers("unsigned").dtype == np.uint32
    assert metadata.numbers("wide").dtype == np.float64


@pytest.mark.parametrize(
    ("accessor", "default"), [("integer", 3), ("number", 1.5), ("boolean", False), ("text", ""), ("integer", 0)]
)
def test_a_default_stands_in_for_a_missing_key_alone(accessor: str, default: Any) -> None:
    own, wanted = ACCESSORS[accessor]
    metadata = make_metadata()
    assert getattr(metadata, accessor)("nowhere", default=default) == default
    assert getattr(metadata, accessor)(own, default=default) == VALUES[own]
    with pytest.raises(ModelFileError, match=f"must be {wanted}; the file has an array of 3 arrays"):
        getattr(metadata, accessor)("nested", default=default)


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), 0])
def test_every_number_that_gguf_can_store_is_read(value: int) -> None:
    assert make_metadata(edge=value).integer("edge") == value
    assert make_metadata(edge=value).number("edge") == float(value)


@pytest.mark.parametrize(("value", "bits"), [(2**64, 65), (-(2**63) - 1, 64), (10**400, 1329)])
def test_a_number_wider_than_gguf_can_store_is_refused_by_its_bits(value: int, bits: int) -> None:
    message = f"m.gguf: key 'edge' is a whole number of {bits} bits; the limit is 64"
    assert refusal(make_metadata(edge=value), "integer", "edge") == message
    assert refusal(make_metadata(edge=value), "number", "edge") == message


def test_metadata_is_a_mapping_that_no_one_else_can_change() -> None:
    values = dict(VALUES)
    metadata = Metadata(FILE, values)
    values["late"] = 1
    assert "late" not in metadata
    assert (len(metadata), list(metadata), metadata["int"]) == (len(VALUES), list(VALUES), 7)
    with pytest.raises(KeyError):
        metadata["late"]


def test_keys_can_be_left_out_of_a_copy() -> None:
    metadata = make_metadata()
    copy = metadata.without("int", "text", "nowhere")
    assert set(copy) == VALUES.keys() - {"int", "text"}
    assert set(metadata) == VALUES.keys()
    assert refusal(copy, "integer", "int") == "m.gguf: key 'int' is missing"


def test_strings_are_decoded_once_and_not_before_they_are_read() -> None:
    calls = []

    def decode() -> list[str]:
        calls.append(1)
        return ["a", "b", "c"]

    texts = StringArray(3, decode)
    assert len(texts) == 3
    assert describe_value(texts) == "an array of 3 strings"
    assert calls == []
    assert (texts[1], texts[-1], texts[1:], list(texts)) == ("b", "c", ["b", "c"], ["a", "b", "c"])
    assert texts.texts() is texts.texts()
    assert calls == [1]


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        (58, "the string '" + "x" * 58 + "'"),  # 60 characters with its quotes
        (59, "the string '" + "x" * 56 + "..."),
        (4000, "the string '" + "x" * 56 + "..."),
    ],
)
def test_a_long_value_is_shortened(length: int, wanted: str) -> None:
    assert describe_value("x" * length) == wanted


def test_a_value_from_json_is_described_by_its_class() -> None:
    assert describe_value([8]) == "the list [8]"  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [MIN_SETTING, MAX_SETTING, 1, 0.5, 10**30])
def test_settings_reach_from_tiny_to_huge(value: float) -> None:
    assert is_setting(value)


@pytest.mark.parametrize(
    "value",
    [0, 0.0, -1, 9e-31, 1.1e30, 10**31, 10**400, float("inf"), float("nan"), True, "1", None, [1], np.zeros(1)],
)
def test_what_no_setting_may_be(value: object) -> None:
    assert not is_setting(value)


@given(st.floats(MIN_SETTING, MAX_SETTING), st.floats(MIN_SETTING, MAX_SETTING))
def test_products_of_settings_stay_finite_and_above_zero(one: float, other: float) -> None:
    assert 0 < one * other < float("inf")
