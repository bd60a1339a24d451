"""Which tokens may be drawn: top-k, top-p, min-p. Pure functions, the definition the native sampler is held to.

Each takes `scores` float32 [n] in the order of the ranking (logit descending, id ascending), less their maximum, so
the first is 0; it returns which places it keeps, ascending. `reference.py` applies them one after the other.
"""

import math

import numpy as np
from numpy.typing import NDArray

from twostroke.sample.arithmetic import Floats, exp_of, units_of

Places = NDArray[np.intp]


def keep_top_k(scores: Floats, k: int) -> Places:
    """The first k, exactly k of them also when scores tie."""
    return np.arange(min(k, len(scores)))


def keep_top_p(scores: Floats, top_p: float) -> Places:
    """The fewest first whose mass is at least `top_p` of that of all; never none (Holtzman et al. 2020).

    Mass is counted in whole units, see arithmetic.py: no order of accumulation can change the border.
    """
    mass = np.cumsum(units_of(scores))
    total = int(mass[-1])
    wanted = min(max(math.ceil(top_p * float(total)), 1), total)
    return np.arange(int(np.searchsorted(mass, wanted)) + 1)


def keep_min_p(scores: Floats, min_p: float) -> Places:
    """Tokens at least `min_p` times as likely as the best (Nguyen et al. 2024); 1 keeps the best alone."""
    if min_p >= 1.0:
        return np.array([0])
    return np.flatnonzero(exp_of(scores).astype(np.float64) >= min_p)
