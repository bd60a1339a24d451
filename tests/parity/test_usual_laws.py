"""The usual samplers draw by their exact law, and a wrong setting or poor noise would be found out."""

from typing import Any

import numpy as np
import pytest

from tests.sample.sampling_builders import FALSE_ALARM_Z, chi_square_z, draw, softmax
from twostroke.sample.random import NoiseKey, gumbel, words_of

LOGITS = [2.0, 1.5, 0.0, 1.5, -1.0, 0.5, -np.inf, 3.0, -4.0, 1.0]
NUM_DRAWS = 50_000

# What survives of LOGITS at temperature T, worked out by hand from the ranking 7, 0, 1, 3, 9, 5, 2, 4, 8 (6 is banned).
LAWS: dict[str, tuple[dict[str, Any], float, set[int]]] = {
    "temperature 1": ({"temperature": 1.0}, 1.0, {0, 1, 2, 3, 4, 5, 7, 8, 9}),
    "top-k 3": ({"temperature": 1.0, "top_k": 3}, 1.0, {7, 0, 1}),
    "top-p 0.7": ({"temperature": 1.0, "top_p": 0.7}, 1.0, {7, 0, 1}),
    "min-p 0.2": ({"temperature": 1.0, "min_p": 0.2}, 1.0, {7, 0, 1, 3}),
    "all three": ({"temperature": 2.0, "top_k": 6, "top_p": 0.9, "min_p": 0.4}, 2.0, {7, 0, 1, 3}),
}


def law_of(temperature: float, kept: set[int]) -> list[float]:
    scores = [value / temperature if index in kept else -np.inf for index, value in enumerate(LOGITS)]
    return list(softmax(scores))


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_exact_law(name: str) -> None:
    """Odds of a false alarm 1e-4 each."""
    params, temperature, kept = LAWS[name]
    z = chi_square_z(draw(LOGITS, NUM_DRAWS, seed=1, **params), law_of(temperature, kept))
    print(f"{name}: z = {z:.2f}, alarm above {FALSE_ALARM_Z}")
    assert z < FALSE_ALARM_Z


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("temperature 1", {"temperature": 1.3}),
        ("top-k 3", {"temperature": 1.0, "top_k": 4}),
        ("top-p 0.7", {"temperature": 1.0, "top_p": 0.85}),
        ("min-p 0.2", {"temperature": 1.0, "min_p": 0.25}),
        ("all three", {"temperature": 2.0, "top_k": 2}),
    ],
)
def test_the_judge_catches_a_sampler_with_the_wrong_setting(name: str, broken: dict[str, Any]) -> None:
    _, temperature, kept = LAWS[name]
    draws = draw(LOGITS, NUM_DRAWS // 10, seed=1, **broken)
    assert chi_square_z(draws, law_of(temperature, kept)) > 2 * FALSE_ALARM_Z


def test_the_judge_catches_noise_shared_by_tokens_or_too_coarse() -> None:
    law = law_of(1.0, LAWS["temperature 1"][2])
    shared = np.full(NUM_DRAWS, int(np.argmax(LOGITS)))  # equal noise on every token never changes the argmax
    assert chi_square_z(shared, law) > 2 * FALSE_ALARM_Z
    coarse = []
    for position in range(1_000):
        words = words_of(NoiseKey(1, 0, position), len(LOGITS)) >> np.uint64(30) << np.uint64(30)
        coarse.append(int((np.array(LOGITS) + gumbel(words)).argmax()))
    assert chi_square_z(np.array(coarse), law) > 2 * FALSE_ALARM_Z


def test_neighbouring_draws_are_independent() -> None:
    draws = draw([0.0] * 4, NUM_DRAWS // 5, seed=2, temperature=1.0)
    pairs = 4 * draws[:-1:2] + draws[1::2]
    assert chi_square_z(pairs, [1 / 16] * 16) < FALSE_ALARM_Z
