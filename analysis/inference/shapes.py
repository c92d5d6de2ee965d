"""How far a t test of few values can be trusted, whatever their shape. Numbers in, numbers out.

The mean of a few skewed values lies too often far from the typical one, in units of a spread that
was estimated from the same few. How much more often than t has it is in the tables here: the most
over values that are normal, t with 3 degrees of freedom, exponential, and lognormal with sd 0.5 and
1 of the logarithm, on either side, of the chance of a p-value, divided by that p-value. The truth
is the pseudomedian (``signed_ranks``). From ``SIGNED_RANKS_FROM`` values on the table is for the
larger p-value of t and signed ranks; for fewer it is for that of t alone.
tools/validate_statistics.py checks the result by simulation.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from analysis.arrays import Floats

SIGNED_RANKS_FROM = 12
"""With fewer values the smallest p-value of signed ranks is too large for a family of metrics."""

_MOST_WITHOUT = SIGNED_RANKS_FROM - 1

P_VALUES = (0.25, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025, 0.001, 0.0005, 0.0002, 0.0001, 0.00001)
"""One-sided p-values of the tables' columns."""

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
"""Values -> factors by which one of the two one-sided p-values comes more often than it says."""

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
"""The same for both one-sided p-values together: a skewed shape raises one and lowers the other."""

_LOG_P = np.log(np.array(P_VALUES[::-1]))
_LOG_P_TO_HALF = np.append(_LOG_P, np.log(0.5))


@lru_cache(maxsize=4096)
def _logs(count: int, both_sides: bool) -> Floats:
    """Return logarithms of what ``P_VALUES`` and 0.5 are worth with so many values, increasing."""
    table = _TWO_SIDES if both_sides else _ONE_SIDE
    # What is interpolated has one test at both ends.
    few = count < SIGNED_RANKS_FROM
    rows = [n for n in table if (n < SIGNED_RANKS_FROM) == few]
    factors = np.log(np.array([table[n] for n in rows]))
    place = np.log(count)
    at = [np.interp(place, np.log(rows), column) for column in factors.T]
    worth = _LOG_P + np.array(at[::-1])
    increasing = np.maximum.accumulate(np.minimum(worth, np.log(0.5)))
    to_half: Floats = np.append(increasing, np.log(0.5))
    return to_half


def trusted(p_value: float, count: int, *, both_sides: bool, ranks_at_end: bool = False) -> float:
    """What a one-sided p-value is worth whatever the values' shape; never less than it is.

    Args:
        p_value: of t, or the larger one of t and signed ranks from ``SIGNED_RANKS_FROM`` values on.
        count: values, >= 2.
        both_sides: whether the other side is tested as well, for a two-sided test or interval.
        ranks_at_end: all values lie on one side, so that ranks could not say more: the p-value is
            that of t, whose factors with ever more values are no larger than with the last few.
    """
    if ranks_at_end:
        count = min(count, _MOST_WITHOUT)
    if p_value <= 0.0 or p_value >= 0.5:
        return p_value
    worth = _logs(count, both_sides)
    place = float(np.log(p_value))
    if place < _LOG_P[0]:
        # Further out the factor grows as it does at the end of the table.
        slope = (worth[1] - worth[0]) / (_LOG_P[1] - _LOG_P[0])
        return max(p_value, float(np.exp(worth[0] + slope * (place - _LOG_P[0]))))
    return max(p_value, float(np.exp(np.interp(place, _LOG_P_TO_HALF, worth))))


@lru_cache(maxsize=65536)
def needed(level: float, count: int, *, both_sides: bool) -> float:
    """The one-sided p-value that is worth ``level``: the inverse of ``trusted``.

    Args:
        level: in (0, 0.5).
        count: values, >= 2.
        both_sides: as in ``trusted``.
    """
    low, high = 3 * np.log(level) - 8.0, np.log(level)
    # Bisection: the tables are flat in places.
    for _ in range(60):
        middle = (low + high) / 2
        if trusted(float(np.exp(middle)), count, both_sides=both_sides) <= level:
            low = middle
        else:
            high = middle
    return float(np.exp(low))
