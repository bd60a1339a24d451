"""Arrival processes have the asked rate and spread."""

from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from twostroke.traffic.arrivals import Arrivals, arrival_times

COUNT = 20_001


def gaps(kind: Arrivals, burstiness: float = 1.0, seed: int = 1) -> list[float]:
    times = arrival_times(kind, rate_per_s=4.0, count=COUNT, seed=seed, burstiness=burstiness)
    assert (len(times), times[0]) == (COUNT, 0.0)
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize(
    ("kind", "burstiness", "variation"),
    [
        (Arrivals.CONSTANT, 1.0, 0.0),
        (Arrivals.POISSON, 1.0, 1.0),
        (Arrivals.GAMMA, 1.0, 1.0),
        (Arrivals.GAMMA, 0.25, 2.0),
        (Arrivals.GAMMA, 4.0, 0.5),
    ],
)
def test_gaps_have_their_mean_and_coefficient_of_variation(kind: Arrivals, burstiness: float, variation: float) -> None:
    """20,000 gaps: the mean of the burstiest has a standard error of 1.4 %; the seed is fixed."""
    found = gaps(kind, burstiness)
    assert fmean(found) == pytest.approx(0.25, rel=0.04)
    assert pstdev(found) / fmean(found) == pytest.approx(variation, abs=0.08)


def test_times_follow_the_seed() -> None:
    assert gaps(Arrivals.POISSON, seed=1) == gaps(Arrivals.POISSON, seed=1) != gaps(Arrivals.POISSON, seed=2)


def test_one_request_comes_at_once() -> None:
    assert arrival_times(Arrivals.POISSON, rate_per_s=0.1, count=1, seed=0) == [0.0]
