"""When requests of an open loop arrive: evenly, as a Poisson process, or in bursts.

The gaps of a renewal process with the asked mean; the first request comes at 0.
"""

import random
from enum import StrEnum
from itertools import accumulate


class Arrivals(StrEnum):
    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"


def arrival_times(kind: Arrivals, *, rate_per_s: float, count: int, seed: int, burstiness: float = 1.0) -> list[float]:
    """`count` moments in seconds.

    burstiness: shape of the gamma distribution of gaps: 1 is Poisson, less is burstier; the gaps' coefficient of
    variation is 1 / sqrt(burstiness). vLLM's definition.
    """
    rng, mean_s = random.Random(seed), 1 / rate_per_s

    def gap_s() -> float:
        if kind is Arrivals.CONSTANT:
            return mean_s
        if kind is Arrivals.POISSON:
            return rng.expovariate(rate_per_s)
        return rng.gammavariate(burstiness, mean_s / burstiness)

    return list(accumulate((gap_s() for _ in range(count - 1)), initial=0.0))
