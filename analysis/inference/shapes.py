"""Correction of t tests of few values for non-normal data. Numbers in, numbers out.

If values are few and skewed, their mean is too often far from the typical value, the pseudomedian
(``signed_ranks``), relative to the estimated spread. So small p-values occur too often. To correct
this, p-values are multiplied by the factors in the tables. Each factor is the
maximum over several distributions, with both signs of skewness: normal, t with 3 degrees of
freedom, exponential, and lognormal with a standard deviation of the logarithm of 0.5 and of 1. With
fewer than ``SIGNED_RANKS_FROM`` values, the tables correct the p-value of the t test. Otherwise,
they correct the larger one of the p-values of the t test and of the signed-rank test.
tools/validate_statistics.py checks the result by simulation.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy  # It loads scipy.stats, which takes a second, when it is first used.
from numpy.typing import ArrayLike

from analysis.arrays import Floats

SIGNED_RANKS_FROM = 12
"""Minimum number of values for which the tables correct the larger of the tests' p-values.

The one-sided p-value of the signed-rank test of n values is at least 2^-n. For smaller n, this is
too large if many metrics are judged together.
"""

P_VALUES = (0.25, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025, 0.001, 0.0005, 0.0002, 0.0001, 0.00001)
"""One-sided p-values of the columns of the tables."""

_ONE_SIDE = {
    2: (1.34, 1.92, 2.23, 2.40, 2.59, 2.64, 2.68, 2.70, 2.70, 2.70, 2.70, 2.70),
    3: (1.17, 1.83, 2.50, 3.25, 4.21, 4.77, 5.31, 6.11, 6.56, 7.06, 7.20, 7.30),
    4: (1.24, 1.62, 2.29, 3.19, 4.72, 6.04, 7.47, 9.30, 10.7, 12.8, 14.5, 19.5),
    5: (1.39, 1.42, 2.04, 2.90, 4.56, 6.23, 8.27, 11.5, 14.3, 18.6, 21.3, 34.6),
    6: (1.51, 1.26, 1.80, 2.59, 4.18, 5.87, 8.13, 12.2, 16.1, 22.5, 27.7, 51.3),
    8: (1.71, 1.17, 1.42, 2.04, 3.29, 4.76, 6.79, 10.9, 15.2, 23.6, 31.7, 74.0),
    11: (1.95, 1.62, 1.06, 1.44, 2.34, 3.38, 4.89, 7.93, 11.6, 18.9, 27.1, 84.1),
    12: (1.00, 1.00, 1.00, 1.12, 1.59, 2.33, 3.22, 3.58, 5.05, 5.05, 5.05, 5.05),
    14: (1.00, 1.00, 1.00, 1.02, 1.33, 1.76, 2.33, 3.46, 4.45, 5.95, 5.95, 5.95),
    16: (1.00, 1.00, 1.00, 1.00, 1.18, 1.56, 1.91, 2.89, 3.64, 4.94, 6.04, 8.50),
    24: (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.15, 1.62, 2.30, 3.67, 5.17, 16.7),
    40: (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.25, 2.00, 5.00),
    100: (1.00,) * len(P_VALUES),
}
"""Number of values -> factors for a one-sided test, in the direction that skewness affects more."""

_TWO_SIDES = {
    2: (1.02, 1.22, 1.38, 1.49, 1.59, 1.61, 1.63, 1.66, 1.66, 1.67, 1.67, 1.75),
    3: (1.11, 1.14, 1.42, 1.78, 2.25, 2.54, 2.85, 3.25, 3.48, 3.71, 3.82, 3.87),
    4: (1.14, 1.09, 1.30, 1.71, 2.45, 3.10, 3.81, 4.72, 5.46, 6.52, 7.40, 9.95),
    5: (1.16, 1.06, 1.20, 1.56, 2.35, 3.18, 4.19, 5.82, 7.23, 9.36, 10.7, 17.5),
    6: (1.17, 1.06, 1.13, 1.42, 2.16, 2.99, 4.10, 6.11, 8.05, 11.3, 13.9, 25.7),
    8: (1.20, 1.09, 1.07, 1.21, 1.73, 2.43, 3.43, 5.45, 7.62, 11.8, 15.9, 37.0),
    11: (1.25, 1.18, 1.06, 1.08, 1.30, 1.75, 2.49, 3.99, 5.81, 9.48, 13.6, 42.1),
    12: (1.00, 1.00, 1.00, 1.00, 1.00, 1.22, 1.63, 1.79, 2.52, 2.52, 2.52, 2.52),
    14: (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.20, 1.75, 2.23, 2.98, 2.98, 2.98),
    16: (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.01, 1.47, 1.84, 2.48, 3.02, 4.25),
    24: (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.17, 1.83, 2.58, 8.33),
    40: (1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.00, 1.25, 2.50),
    100: (1.00,) * len(P_VALUES),
}
"""Number of values -> factors for a two-sided test.

These factors do not exceed the factors for a one-sided test, because skewness raises one of the two
one-sided p-values and lowers the other.
"""

_LOG_P = np.log(np.array(P_VALUES[::-1]))
_LOG_P_TO_HALF = np.append(_LOG_P, np.log(0.5))


@lru_cache(maxsize=4096)
def _logs(count: int, two_sided: bool) -> Floats:
    """Return the logarithms of the corrected ``P_VALUES``, ascending, and of 0.5 at the end."""
    table = _TWO_SIDES if two_sided else _ONE_SIDE
    # Some rows are for the t test alone, the others for both tests. Do not mix them.
    few = count < SIGNED_RANKS_FROM
    rows = [n for n in table if (n < SIGNED_RANKS_FROM) == few]
    factors = np.log(np.array([table[n] for n in rows]))
    place = np.log(count)
    at = [np.interp(place, np.log(rows), column) for column in factors.T]
    corrected = _LOG_P + np.array(at[::-1])
    increasing = np.maximum.accumulate(np.minimum(corrected, np.log(0.5)))
    to_half: Floats = np.append(increasing, np.log(0.5))
    return to_half


def shape_corrected_p(p_value: float, count: int, *, two_sided: bool) -> float:
    """Correct a one-sided p-value for non-normal data. The result is never smaller than the input.

    Args:
        p_value: p-value of the t test or, for ``SIGNED_RANKS_FROM`` or more values, the larger of
            the p-values of the t test and the signed-rank test.
        count: number of values, >= 2.
        two_sided: whether the other side is tested as well, for a two-sided test or interval.
    """
    if p_value <= 0.0 or p_value >= 0.5:
        return p_value
    corrected = _logs(count, two_sided)
    place = float(np.log(p_value))
    if place < _LOG_P[0]:
        # Extrapolate with the slope at the end of the table.
        slope = (corrected[1] - corrected[0]) / (_LOG_P[1] - _LOG_P[0])
        return max(p_value, float(np.exp(corrected[0] + slope * (place - _LOG_P[0]))))
    return max(p_value, float(np.exp(np.interp(place, _LOG_P_TO_HALF, corrected))))


@lru_cache(maxsize=65536)
def nominal_p_for(level: float, count: int, *, two_sided: bool) -> float:
    """Return the one-sided p-value whose corrected value is ``level``.

    This is the inverse of ``shape_corrected_p``.

    Args:
        level: the corrected p-value, in (0, 0.5).
        count: number of values, >= 2.
        two_sided: as in ``shape_corrected_p``.
    """
    low, high = 3 * np.log(level) - 8.0, np.log(level)
    # Use bisection, because the corrected p-value is constant in places and has no slope there.
    for _ in range(60):
        middle = (low + high) / 2
        if shape_corrected_p(float(np.exp(middle)), count, two_sided=two_sided) <= level:
            low = middle
        else:
            high = middle
    return float(np.exp(low))


_SEEDS = (5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100)
_MAX_SKEWNESS = (1.397, 1.531, 1.586, 1.609, 1.571, 1.536, 1.451, 1.309, 1.107, 0.883, 0.635)
"""99% quantiles of the absolute skewness of normal samples, whose sizes are ``_SEEDS``.

Each comes from 100,000 samples (for sizes of 30 and more, from 30,000).
"""


def looks_skewed(values: ArrayLike, resolution: float = 0.0) -> bool:
    """Return whether at most 1% of normal samples would be as skewed as these values.

    The result is False for fewer than five values. It is True for about one in six samples of ten
    exponentially distributed values.

    Args:
        values: shape (n,), finite.
        resolution: rounding step of the values. If all values differ by no more than this step, the
            result is False.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < _SEEDS[0]:
        return False
    # Equal values may differ by rounding.
    if float(np.ptp(array)) <= max(resolution, 1e-12 * float(np.abs(array).max())):
        return False
    largest = float(np.interp(np.log(array.size), np.log(_SEEDS), _MAX_SKEWNESS))
    if array.size > _SEEDS[-1]:
        largest *= float(np.sqrt(_SEEDS[-1] / array.size))
    return abs(float(scipy.stats.skew(array))) > largest
