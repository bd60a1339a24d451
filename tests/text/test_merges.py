"""Merge rules from both kinds of files."""

import numpy as np
import pytest

from twostroke.text.merges import rules_from_scores, rules_from_strings


def scored(**scores: float) -> list[list[int]]:
    id_of = {piece: token_id for token_id, piece in enumerate(scores)}
    rules: list[list[int]] = rules_from_scores(np.array(list(scores.values()), dtype=np.float32), id_of=id_of).tolist()
    return rules


def test_spelled_rules_keep_their_order() -> None:
    ids = {"a": 0, "b": 1, "ab": 2, "abab": 3}
    assert rules_from_strings(["ab ab", "a b"], id_of=ids).tolist() == [[2, 2, 3], [0, 1, 2]]
    assert rules_from_strings([], id_of=ids).shape == (0, 3)


def test_a_piece_may_begin_with_the_space_that_divides() -> None:
    assert rules_from_strings(["  b"], id_of={" ": 0, "b": 1, " b": 2}).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(("merge", "missing"), [("a c", "'c'"), ("c a", "'c'"), ("b a", "'ba'"), ("ab", "''")])
def test_a_rule_about_no_token_is_named(merge: str, missing: str) -> None:
    with pytest.raises(KeyError, match=f"'{merge}' needs {missing}"):
        rules_from_strings([merge], id_of={"a": 0, "b": 1, "ab": 2})


def test_every_way_to_join_two_pieces_is_a_rule_best_score_first() -> None:
    assert scored(a=-1, b=-2, ab=-5, abb=-3, bb=-4) == [[0, 4, 3], [2, 1, 3], [1, 1, 4], [0, 1, 2]]


def test_pieces_no_other_pieces_make_have_no_rule() -> None:
    assert scored(a=-1, xyz=-2) == []


def test_equal_scores_keep_the_order_of_ids() -> None:
    assert scored(a=0, b=0, ab=-1, ba=-1) == [[0, 1, 2], [1, 0, 3]]
