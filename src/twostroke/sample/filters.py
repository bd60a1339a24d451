"""Which tokens may be drawn: one pure function per filter, the definition the native sampler is held to.

Each takes `scores` float32 [n] in the order of the ranking (logit descending, id ascending), less their maximum, so
the first is 0; it returns which places it keeps, ascending, at least one. `reference.py` applies them one after the
other.
"""

import math

import numpy as np
from numpy.typing import NDArray

from twostroke.sample.arithmetic import UNITS_PER_WEIGHT, Floats, exp_of, log_of, units_of

Places = NDArray[np.intp]

_LN2 = 0.6931471805599453


def keep_top_k(scores: Floats, k: int) -> Places:
    """The first k, exactly k of them also when scores tie."""
    return np.arange(min(k, len(scores)))


def keep_top_p(scores: Floats, top_p: float) -> Places:
    """The fewest first whose mass is at least `top_p` of that of all; never none (Holtzman et al. 2020).

    Mass is counted in whole units, see arithmetic.py: no order of accumulation can change the border.
    """
    return np.arange(_num_with_share(scores, top_p))


def keep_min_p(scores: Floats, min_p: float) -> Places:
    """Tokens at least `min_p` times as likely as the best (Nguyen et al. 2024); 1 keeps the best alone."""
    if min_p >= 1.0:
        return np.array([0])
    return np.flatnonzero(exp_of(scores).astype(np.float64) >= min_p)


def keep_typical(scores: Floats, typical_p: float) -> Places:
    """The fewest most typical whose mass is at least `typical_p` of that of all (Meister et al. 2022).

    A token is the more typical, the nearer its surprise is to the entropy; ties go to the better rank. The best token
    may be among those that leave.
    """
    offs = np.abs(scores.astype(np.float64) + mean_depth(scores))
    order = np.argsort(offs, kind="stable")
    return np.sort(order[: _num_with_share(scores[order], typical_p)])


def keep_top_n_sigma(scores: Floats, ids: Places, num_sigmas: float) -> Places:
    """Scores at most `num_sigmas` standard deviations below the best (Tang et al. 2024).

    The deviation is that of the finite scores, summed one by one in the order of `ids`.
    """
    finite = np.flatnonzero(np.isfinite(scores))
    values = scores[finite][np.argsort(ids[finite])].astype(np.float64)
    mean = np.cumsum(values)[-1] / len(values)
    sigma = math.sqrt(np.cumsum((values - mean) ** 2)[-1] / len(values))
    return finite[scores[finite].astype(np.float64) >= -(num_sigmas * sigma)]


def exclude_top_choices(scores: Floats, threshold: float) -> Places:
    """XTC (p-e-w 2024): of all possible tokens with a share of at least `threshold` the last alone, and all behind it.

    Whether this happens at a position is drawn beforehand, see `reference.py`.
    """
    units = units_of(scores)
    enough = np.flatnonzero(np.isfinite(scores) & (units.astype(np.float64) >= threshold * float(units.sum())))
    return np.arange(enough[-1] if len(enough) else 0, len(scores))


def keep_expected(scores: Floats, surprise_limit: float) -> Places:
    """Tokens of at most `surprise_limit` bits, and the best in any case (mirostat v2: Basu et al. 2021)."""
    is_kept = surprise_of(scores, scores) <= surprise_limit
    is_kept[0] = True
    return np.flatnonzero(is_kept)


def surprise_of(score: Floats, scores: Floats) -> NDArray[np.float64]:
    """-log2 of the probability of tokens with these `score`, among all `scores`."""
    return np.asarray((_log_mass(scores) - score.astype(np.float64)) / _LN2)


def dynamic_temperature(scores: Floats, *, temperature: float, spread: float, exponent: float) -> float:
    """Between temperature - spread, not below 0, and temperature + spread: as the entropy, to the power of `exponent`,
    goes from none to that of as many tokens all alike (kalomaze 2023, as in llama.cpp)."""
    count = int(np.isfinite(scores).sum())
    if count < 2:
        return temperature
    low, high = max(0.0, temperature - spread), temperature + spread
    entropy = _log_mass(scores) + mean_depth(scores)
    share = min(entropy / float(log_of(np.array([float(count)]))[0]), 1.0)
    if share <= 0:
        return high if exponent == 0 else low
    with np.errstate(over="ignore"):
        power = np.float32(exponent * float(log_of(np.array([share]))[0]))
    return low + (high - low) * float(exp_of(np.array([power]))[0])


def mean_depth(scores: Floats) -> float:
    """How far scores lie below zero, on average over the draws; the entropy is the log of their mass more than this."""
    units = units_of(scores)
    live = units > 0
    depths = (units[live].astype(np.float64) * -scores[live].astype(np.float64)).astype(np.int64)
    return float(depths.sum()) / float(units.sum())


def _log_mass(scores: Floats) -> float:
    return float(log_of(np.array([units_of(scores).sum() / float(UNITS_PER_WEIGHT)]))[0])


def _num_with_share(scores: Floats, share: float) -> int:
    """How many of the first make up this share of the mass of all; at least one."""
    mass = np.cumsum(units_of(scores))
    total = int(mass[-1])
    wanted = min(max(math.ceil(share * float(total)), 1), total)
    return int(np.searchsorted(mass, wanted)) + 1
