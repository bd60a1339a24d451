"""The token behind an embedded text, as the post-processor of a tokenizer.json has it."""

from typing import Any

import pytest

from twostroke.text.closing_token import closing_token

ADDED = [{"id": 0, "content": "<s>"}, {"id": 7, "content": "</s>"}]
TEXT, START, END = {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}, {"SpecialToken": {"id": "</s>"}}


def template(*pieces: Any) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": list(pieces)}


def closing(processor: Any, added: Any = ADDED) -> int | None:
    return closing_token({"added_tokens": added, "post_processor": processor})


@pytest.mark.parametrize(
    ("pieces", "token_id"),
    [([TEXT, END], 7), ([START, TEXT, END], 7), ([START, TEXT], None), ([TEXT], None), ([TEXT, START], 0), ([], None)],
)
def test_it_is_the_last_piece_where_that_is_a_token(pieces: list[Any], token_id: int | None) -> None:
    assert closing(template(*pieces)) == token_id


def test_the_first_template_of_a_sequence_that_closes_counts() -> None:
    other = {"type": "ByteLevel"}
    assert closing({"type": "Sequence", "processors": [other, template(TEXT), template(TEXT, END)]}) == 7
    nested = {"type": "Sequence", "processors": [template(TEXT, END)]}
    assert closing({"type": "Sequence", "processors": [other, nested]}) == 7
    assert closing({"type": "Sequence", "processors": []}) is None


@pytest.mark.parametrize("processor", [None, {}, {"type": "ByteLevel", "single": [END]}, {"type": "Sequence"}])
def test_what_is_no_template_closes_nothing(processor: Any) -> None:
    assert closing(processor) is None


@pytest.mark.parametrize("added", [None, [], [{"content": "</s>"}], [{"id": "7", "content": "</s>"}]])
def test_a_token_without_an_id_closes_nothing(added: Any) -> None:
    assert closing(template(TEXT, END), added) is None


def test_a_file_without_either_closes_nothing() -> None:
    assert closing_token({}) is None
