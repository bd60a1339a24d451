"""A structure as a wish: which forms it may have. What the grammar compiler says is tests/sample/test_grammar.py's."""

from typing import Any

import pytest

from twostroke.errors import ParamsError
from twostroke.structure import MAX_CHOICES, MAX_SOURCE_BYTES, Structure, StructureKind


def problem(**fields: Any) -> str:
    with pytest.raises(ParamsError) as caught:
        Structure(**fields)
    assert caught.value.field == "structure"
    return str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in StructureKind if kind is not StructureKind.CHOICE])
def test_every_kind_but_choice_has_a_source_alone(kind: StructureKind) -> None:
    assert Structure(kind=kind, source="x").source == "x"
    assert problem(kind=kind, source="x", choices=("a",)) == (
        "structure must have choices exactly when its kind is choice"
    )


def test_a_choice_needs_choices() -> None:
    assert Structure(kind=StructureKind.CHOICE, choices=("a", "b")).choices == ("a", "b")
    assert problem(kind=StructureKind.CHOICE) == "structure must have choices exactly when its kind is choice"


@pytest.mark.parametrize("choices", [("",), ("a", ""), (1,), (None,), (b"a",), ["", "a"]])
def test_choices_are_texts_with_something_in_them(choices: Any) -> None:
    told = problem(kind=StructureKind.CHOICE, choices=choices)
    assert told == "structure has choices that are no texts: give a tuple of texts"


@pytest.mark.parametrize("kind", ["regex", "json_schema", None, 1])
def test_a_kind_is_one_of_those_there_are_not_its_name(kind: Any) -> None:
    assert problem(kind=kind, source="x") == f"structure has the kind {kind!r}: it must be a StructureKind"


def test_more_choices_than_the_limit_are_counted() -> None:
    most = tuple(map(str, range(MAX_CHOICES)))
    assert len(Structure(kind=StructureKind.CHOICE, choices=most).choices) == MAX_CHOICES
    told = problem(kind=StructureKind.CHOICE, choices=(*most, "more"))
    assert told == f"structure has {MAX_CHOICES + 1} choices: the limit is {MAX_CHOICES}"


@pytest.mark.parametrize("letter", ["a", "é", "漢", "😀", "\udcff"])
def test_sources_are_measured_in_bytes_whatever_their_script(letter: str) -> None:
    size = len(letter.encode("utf-8", "replace"))
    fits = letter * (MAX_SOURCE_BYTES // size)
    assert Structure(kind=StructureKind.REGEX, source=fits).source == fits
    told = problem(kind=StructureKind.REGEX, source=fits + letter)
    num_bytes = size * (len(fits) + 1)
    assert told == f"structure has {num_bytes} bytes: the limit is {MAX_SOURCE_BYTES}, leave some of it out"


def test_choices_count_together() -> None:
    half = "a" * (MAX_SOURCE_BYTES // 2)
    assert Structure(kind=StructureKind.CHOICE, choices=(half, half)).choices == (half, half)
    assert f"structure has {MAX_SOURCE_BYTES + 1} bytes" in problem(
        kind=StructureKind.CHOICE, choices=(half, half, "a")
    )


def test_equal_wishes_are_one_and_none_changes() -> None:
    one, other = (Structure(kind=StructureKind.REGEX, source="a+") for _ in range(2))
    assert one == other
    assert len({one, other}) == 1
    with pytest.raises(AttributeError):
        one.source = "b"  # type: ignore[misc]
