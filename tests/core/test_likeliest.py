"""The best of several tries: by mean log-probability, whatever their lengths; of equals the earlier."""

import pytest

from twostroke.core.likeliest import Tried, likeliest, same_tries


@pytest.mark.parametrize(
    ("answers", "num_told", "expected"),
    [
        ([(-2.0, 1), (-3.0, 3), (-9.0, 3)], 1, [1]),
        ([(-2.0, 1), (-3.0, 3), (-9.0, 3)], 3, [1, 0, 2]),
        ([(-1.0, 1), (-2.0, 2), (-0.5, 1)], 2, [2, 0]),
        ([(-1.0, 1), (-1.0, 1)], 2, [0, 1]),
        ([(0.0, 0), (-1.0, 1)], 1, [1]),  # one that said nothing is no answer
        ([(0.0, 0), (0.0, 0)], 1, [0]),
    ],
)
def test_the_likeliest_per_token_come_first(
    answers: list[tuple[float, int]], num_told: int, expected: list[int]
) -> None:
    scored = [Tried(number, total, count) for number, (total, count) in enumerate(answers)]
    assert likeliest(scored, num_told=num_told) == expected


def test_several_tries_need_a_draw() -> None:
    why = same_tries("best_of", 8, temperature=0.0)
    assert why is not None
    assert why.startswith("best_of is 8 and temperature is 0, which takes the likeliest token: all answers would be")
    assert why.endswith("raise the temperature, say to 0.8, or leave out best_of")
    assert same_tries("best_of", 1, temperature=0.0) is None
    assert same_tries("best_of", 8, temperature=0.1) is None
