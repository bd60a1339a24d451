"""Exponential, logarithm and the mass of tokens, defined by plain operations in a fixed order.

The native sampler does the same operations, so both have the same bits on every machine; nothing here asks a
C library. Mass is counted in whole units of 2^-40 of the best token's weight: sums of whole numbers have no order.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Units = NDArray[np.int64]

UNITS_PER_WEIGHT = np.float32(2.0**40)

_LOG2_E = np.float32(1.44269504)
_LN2_HIGH = np.float32(0.693359375)  # few bits: its product with an exponent is exact
_LN2_LOW = np.float32(-2.12194440e-4)
_EXP_SERIES = [np.float32(c) for c in (1.381453936e-03, 8.368745184e-03, 4.166839080e-02, 1.666652040e-01)]
_EXP_LAST = np.float32(4.999999343e-01)
_ROUND = np.float32(12582912.0)  # 1.5 * 2^23: adding it leaves the integer in the low bits
_EXP_LOWEST = np.float32(-87.3)  # below this the result would be denormal: it is zero

_LN2 = 0.6931471805599453
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD


def exp_of(scores: Floats) -> Floats:
    """exp of scores <= 0, relative error 1e-7: exp(x) = 2^n * exp(r), |r| <= ln(2) / 2, the latter a polynomial."""
    x = np.maximum(scores, np.float32(-100.0))
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    poly = _EXP_SERIES[0]
    for coefficient in (*_EXP_SERIES[1:], _EXP_LAST):
        poly = coefficient + r * poly
    y = np.float32(1.0) + (r + r * r * poly)
    power = shifted.view(np.uint32) << np.uint32(23)
    result = (y.view(np.uint32) + power).view(np.float32)
    return np.where(scores < _EXP_LOWEST, np.float32(0.0), result)


def log_of(x: Doubles) -> Doubles:
    """log of positive normal numbers: x = 2^e * m, log(m) = 2 * (s + s^3/3 + ... + s^21/21), s = (m - 1) / (m + 1)."""
    bits = x.view(np.int64)
    exponent = (bits - _ROOT_HALF_BITS) >> 52  # so that m is from sqrt(1/2) to sqrt(2)
    m = (bits - (exponent << 52)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = np.full_like(z, 1.0 / 21)
    for odd in range(19, 1, -2):
        series = 1.0 / odd + z * series
    return np.asarray(exponent.astype(np.float64) * _LN2 + 2.0 * (s + s * (z * series)))


def units_of(scores: Floats) -> Units:
    """exp(score) in whole units; what weighs less than one counts nothing."""
    return np.asarray((exp_of(scores) * UNITS_PER_WEIGHT).astype(np.int64))
