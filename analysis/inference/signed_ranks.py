"""Wilcoxon's signed-rank test, and bounds of a typical value. Arrays in, numbers out.

The typical value is the pseudomedian: the median of the mean of two independent values. For a
symmetric distribution it equals the mean, and it is robust against outliers (Hodges and Lehmann
1963, Annals of Mathematical Statistics 34).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from analysis.arrays import Floats

EXACT_UP_TO = 60
"""Maximum number of values for the exact distribution; beyond it, use the normal approximation."""


@lru_cache(maxsize=EXACT_UP_TO)
def _chances(count: int) -> Floats:
    """Return the probabilities that the ranks of negative values sum to at most 0, 1, ...

    Each of the ``count`` values is negative with probability 1/2. The result has an entry for each
    possible sum, from 0 to count * (count + 1) / 2.
    """
    chance = np.zeros(count * (count + 1) // 2 + 1)
    chance[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.zeros_like(chance)
        shifted[rank:] = chance[:-rank]
        chance = (chance + shifted) / 2
    cumulative: Floats = np.minimum(np.cumsum(chance), 1.0)
    return cumulative


def _moments(count: int) -> tuple[float, float]:
    """Return the mean and standard deviation of the sum of the negative values' ranks."""
    return count * (count + 1) / 4, float(np.sqrt(count * (count + 1) * (2 * count + 1) / 24))


def p_typical_above(values: ArrayLike, bound: float) -> float:
    """Return the p-value of "the typical value is at most ``bound``" against "it is larger".

    Values at the bound count as below it. Among values at the same distance from the bound, values
    below it receive the higher ranks. Ties therefore never make the p-value smaller.

    Args:
        values: shape (n,), n >= 1, finite.
        bound: in the unit of the values.
    """
    distance = np.asarray(values, dtype=np.float64) - bound
    below = distance <= 0
    order = np.lexsort((below, np.abs(distance)))
    ranks = float(below[order] @ np.arange(1, below.size + 1))
    if distance.size <= EXACT_UP_TO:
        return float(_chances(distance.size)[int(ranks)])
    mean, sd = _moments(distance.size)
    return float(ndtr((ranks + 0.5 - mean) / sd))


def typical_value(values: ArrayLike) -> float:
    """Return the estimate of the typical value: the median of the means of all pairs of values.

    Args:
        values: shape (n,), n >= 1, finite; each value is also paired with itself.
    """
    return float(np.median(_pair_means(values)))


def lower_bound(values: ArrayLike, level: float) -> float:
    """Return the largest b for which the test rejects "the typical value is at most b".

    Args:
        values: shape (n,), n >= 1, finite.
        level: one-sided level of the test, in (0, 0.5).

    Returns:
        Minus infinity if there are too few values to reject anything.
    """
    means = np.sort(_pair_means(values))
    count = np.asarray(values).size
    if count <= EXACT_UP_TO:
        rejected = int(np.searchsorted(_chances(count), level, side="right"))
    else:
        mean, sd = _moments(count)
        rejected = max(0, int(np.floor(mean + float(ndtri(level)) * sd + 0.5)))
    return float(means[rejected - 1]) if rejected else -float("inf")


def _pair_means(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(array.size)
    means: Floats = (array[first] + array[second]) / 2
    return means
