"""Ids with a meaning: what a file names comes first, what published models end with fills the rest."""

import pytest

from twostroke.text.special_tokens import (
    END_OF_MESSAGE,
    END_OF_TEXT,
    END_OF_TURN,
    SpecialTokens,
    end_literals,
    find_end_tokens,
)


@pytest.mark.parametrize("literal", END_OF_TURN)
def test_every_known_end_of_a_turn_is_found(literal: str) -> None:
    found = find_end_tokens({"hi": 1, literal: 5}, named=SpecialTokens())
    assert (found.eot_id, found.eom_id, found.end_ids) == (5, None, frozenset({5}))


@pytest.mark.parametrize("literal", END_OF_MESSAGE)
def test_every_known_end_of_a_message_is_found(literal: str) -> None:
    found = find_end_tokens({literal: 6}, named=SpecialTokens())
    assert (found.eot_id, found.eom_id, found.end_ids) == (None, 6, frozenset({6}))


@pytest.mark.parametrize("literal", END_OF_TEXT)
def test_an_end_of_text_ends_an_answer_and_is_no_turn(literal: str) -> None:
    found = find_end_tokens({literal: 7}, named=SpecialTokens())
    assert (found.eot_id, found.eom_id, found.eos_id, found.end_ids) == (None, None, None, frozenset({7}))


def test_what_the_file_names_is_not_replaced_and_known_ones_end_answers_too() -> None:
    named = SpecialTokens(bos_id=1, eos_id=2, eot_id=3, eom_id=4, unk_id=0, pad_id=9, adds_bos=True)
    found = find_end_tokens({"<|im_end|>": 11, "<|eom_id|>": 12, "<|endoftext|>": 13}, named=named)
    assert (found.bos_id, found.eos_id, found.eot_id, found.eom_id) == (1, 2, 3, 4)
    assert (found.unk_id, found.pad_id, found.adds_bos) == (0, 9, True)
    assert found.end_ids == {2, 3, 4, 11, 12, 13}


def test_id_zero_is_an_id() -> None:
    named = SpecialTokens(eos_id=0, eot_id=0)
    found = find_end_tokens({"<|im_end|>": 5}, named=named)
    assert (found.eot_id, found.end_ids) == (0, frozenset({0, 5}))


def test_ends_that_were_named_stay_beside_those_found() -> None:
    found = find_end_tokens({"<end_of_turn>": 8}, named=SpecialTokens(end_ids=frozenset({1, 2})))
    assert found.end_ids == {1, 2, 8}


def test_of_several_the_first_of_the_list_is_the_end_of_a_turn_and_all_end_answers() -> None:
    ids = {"[EOT]": 1, "<|eot_id|>": 2, "<|im_end|>": 3}
    found = find_end_tokens(ids, named=SpecialTokens())
    assert (found.eot_id, found.end_ids) == (3, frozenset({1, 2, 3}))


def test_a_model_without_any_has_none() -> None:
    assert find_end_tokens({"a": 1}, named=SpecialTokens()) == SpecialTokens()


def test_no_literal_has_two_meanings() -> None:
    every = [*END_OF_TURN, *END_OF_MESSAGE, *END_OF_TEXT]
    assert len(set(every)) == len(every)
    assert end_literals() == set(every)
