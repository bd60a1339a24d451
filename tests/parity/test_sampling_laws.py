"""50,000 draws of every sampler against its exact law, and samplers that are broken on purpose, which must be caught.

The laws come from `published.py`. Odds of a false alarm are 1e-4 for each test; seeds are fixed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.sample.published import (
    Row,
    dry,
    dynamic_temperature as published_temperature,
    mirostat,
    only,
    probabilities,
    ranking,
    top_n_sigma,
    typical,
    xtc,
)
from tests.sample.sampling_builders import FALSE_ALARM_Z, chi_square_z, draw
from twostroke.params import SamplingParams
from twostroke.sample import reference
from twostroke.sample.arithmetic import Floats
from twostroke.sample.filters import (
    Places,
    dynamic_temperature,
    exclude_top_choices,
    keep_expected,
    keep_top_n_sigma,
    keep_typical,
)
from twostroke.sample.random import NoiseKey
from twostroke.sample.repetition import dry_penalties, repeated_ends

LOGITS = np.array([2.0, 1.5, 0.0, 1.5, -1.0, 0.5, -np.inf, 3.0, -4.0, 1.0])
NUM_DRAWS = 50_000
PROMPT = [7, 0, 1, 5, 7, 0, 1, 3, 7, 0]  # what came after 7, 0 came twice: 1


def first(n: int, logits: Row) -> set[int]:
    return set(ranking(logits)[:n])


def minus(penalties: dict[int, float]) -> Row:
    result = LOGITS.copy()
    for token_id, penalty in penalties.items():
        result[token_id] -= penalty
    return result


def mixed(share: float, one: Row, other: Row) -> Row:
    return np.asarray(share * probabilities(one) + (1 - share) * probabilities(other))


TOP = only(LOGITS, first(8, LOGITS))
TYPICAL = only(LOGITS, typical(TOP, 0.9))
FILTERED = only(LOGITS, top_n_sigma(TYPICAL, 1.5))
LAWS: dict[str, tuple[dict[str, Any], Row]] = {
    "typical": ({"typical_p": 0.3}, probabilities(only(LOGITS, typical(LOGITS, 0.3)))),
    "typical, hot": (
        {"typical_p": 0.3, "temperature": 1.5},
        probabilities(only(LOGITS / 1.5, typical(LOGITS / 1.5, 0.3))),
    ),
    "top-n-sigma": ({"top_n_sigma": 1.2}, probabilities(only(LOGITS, top_n_sigma(LOGITS, 1.2)))),
    "xtc, always": ({"xtc_probability": 1.0}, probabilities(only(LOGITS, xtc(LOGITS, 0.1)))),
    "xtc, sometimes": (
        {"xtc_probability": 0.3, "xtc_threshold": 0.15},
        mixed(0.3, only(LOGITS, xtc(LOGITS, 0.15)), LOGITS),
    ),
    "dynamic temperature": (
        {"dynatemp_range": 0.9, "dynatemp_exponent": 3.0},
        probabilities(LOGITS / published_temperature(LOGITS, 1.0, 0.9, 3.0)),
    ),
    "mirostat": ({"mirostat_tau": 1.5}, probabilities(only(LOGITS, mirostat(LOGITS, 3.0)))),
    "dry": (
        {"dry_multiplier": 2.0, "prompt": PROMPT},
        probabilities(minus(dry(PROMPT, 2.0, 1.75, 2))),
    ),
    "no repeated n-gram": ({"no_repeat_ngram_size": 3, "prompt": PROMPT}, probabilities(minus({1: np.inf}))),
    "bad words": (
        {"bad_ids": [(3,), (7, 0, 5), (1, 0, 2)], "prompt": PROMPT},
        probabilities(minus({3: np.inf, 5: np.inf})),
    ),
    "penalties of the newest": (
        {"repetition_penalty": 1.5, "penalty_last_n": 3, "prompt": PROMPT},
        probabilities(minus({3: 0.5, 7: 1.0, 0: 2.0 - 2.0 / 1.5})),
    ),
    "temperature last": (
        {"top_k": 5, "temperature": 2.0, "top_p": 0.8, "sampler_order": ("top_k", "top_p", "temperature")},
        probabilities(only(LOGITS, first(3, LOGITS)) / 2.0),
    ),
    "all": (
        {"top_k": 8, "typical_p": 0.9, "top_n_sigma": 1.5, "xtc_probability": 0.5},
        mixed(0.5, only(LOGITS, xtc(FILTERED, 0.1)), FILTERED),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_exact_law(name: str) -> None:
    params, law = LAWS[name]
    z = chi_square_z(draw(list(LOGITS), NUM_DRAWS, seed=1, **{"temperature": 1.0, **params}), list(law))
    print(f"{name}: z = {z:.2f}, alarm above {FALSE_ALARM_Z}")
    assert z < FALSE_ALARM_Z


def test_no_law_is_that_of_another() -> None:
    """Else a sampler that is ignored would pass."""
    plain = tuple(np.round(probabilities(LOGITS), 6))
    laws = {name: tuple(np.round(law, 6)) for name, (_, law) in LAWS.items()}
    assert plain not in laws.values()
    assert len(set(laws.values())) == len(laws)


def keeps_the_likeliest_of_the_top(scores: Floats, threshold: float) -> Places:
    kept = exclude_top_choices(scores, threshold)
    return np.sort([0, *kept[1:]])


def keeps_all_that_is_near_the_entropy(scores: Floats, typical_p: float) -> Places:
    return np.arange(len(keep_typical(scores, typical_p)))


def keeps_half_a_deviation_more(scores: Floats, ids: Places, num_sigmas: float) -> Places:
    return keep_top_n_sigma(scores, ids, num_sigmas + 0.5)


def keeps_one_surprise_more(scores: Floats, surprise_limit: float) -> Places:
    return np.arange(len(keep_expected(scores, surprise_limit)) + 1)


def moves_the_other_way(scores: Floats, *, temperature: float, spread: float, exponent: float) -> float:
    right = dynamic_temperature(scores, temperature=temperature, spread=spread, exponent=exponent)
    return 2 * temperature - right


def forgets_what_came_first(history: list[int], **others: Any) -> list[tuple[int, float]]:
    return dry_penalties(history[-3:], **others)


def forgets_the_last_token(history: list[int], n: int) -> set[int]:
    return repeated_ends(history[:-1], n)


def forbids_bad_words_at_their_first_token(history: list[int], bad_words: Any) -> set[int]:
    return {word[0] for word in bad_words}


BROKEN: list[tuple[str, str, Callable[..., Any]]] = [
    ("typical", "keep_typical", keeps_all_that_is_near_the_entropy),
    ("top-n-sigma", "keep_top_n_sigma", keeps_half_a_deviation_more),
    ("xtc, always", "exclude_top_choices", keeps_the_likeliest_of_the_top),
    ("xtc, sometimes", "uniform", lambda key, *, purpose: 0.0),
    ("dynamic temperature", "dynamic_temperature", moves_the_other_way),
    ("mirostat", "keep_expected", keeps_one_surprise_more),
    ("dry", "dry_penalties", forgets_what_came_first),
    ("no repeated n-gram", "repeated_ends", forgets_the_last_token),
    ("bad words", "bad_ends", forbids_bad_words_at_their_first_token),
    ("typical", "gumbel", lambda words: np.zeros(len(words))),
    ("xtc, sometimes", "gumbel", lambda words: words / 2.0**32),
]


def draw_by_definition(name: str, num_draws: int) -> Any:
    params, _ = LAWS[name]
    wish: dict[str, Any] = {"temperature": 1.0, **params}
    spelled = reference.Spelled(bad_words=wish.pop("bad_ids", ()))
    prompt = wish.pop("prompt", [1])
    made = SamplingParams(**wish)
    choices = (
        reference.choose(
            LOGITS.astype(np.float32),
            prompt,
            [],
            params=made,
            key=NoiseKey(1, 0, position),
            spelled=spelled,
            surprise_limit=reference.first_limit(made),
        )
        for position in range(num_draws)
    )
    return np.array([choice.token_id for choice in choices if choice is not None])


@pytest.mark.parametrize(("name", "part", "broken"), BROKEN)
def test_the_judge_catches_a_broken_sampler(
    name: str, part: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    law = list(LAWS[name][1])
    assert chi_square_z(draw_by_definition(name, 500), law) < FALSE_ALARM_Z
    monkeypatch.setattr(reference, part, broken)
    assert chi_square_z(draw_by_definition(name, 500), law) > 2 * FALSE_ALARM_Z
