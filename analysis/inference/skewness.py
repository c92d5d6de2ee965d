"""A test for skewness. Arrays in, numbers out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_SEEDS = (5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100)
_LARGEST = (1.397, 1.531, 1.586, 1.609, 1.571, 1.536, 1.451, 1.309, 1.107, 0.883, 0.635)
"""99% quantiles of the absolute skewness of normal samples of these sizes.

They come from 100,000 samples each (30,000 from 30 values on).
"""


def skewness(values: ArrayLike) -> float:
    """Return the third central moment over the 3/2 power of the second; 0 for equal values.

    Args:
        values: shape (n,), n >= 1, finite.
    """
    array = np.asarray(values, dtype=np.float64)
    deviation = array - array.mean()
    square = float((deviation**2).mean())
    # The standard deviation of equal values is not exactly zero, because of rounding.
    if np.sqrt(square) <= 1e-12 * float(np.abs(array).max()):
        return 0.0
    return float((deviation**3).mean() / square**1.5)


def looks_skewed(values: ArrayLike, resolution: float = 0.0) -> bool:
    """Return whether at most 1% of normal samples would be as skewed as these values.

    Fewer than five values are never reported. Ten exponential values are reported in one case of
    six.

    Args:
        values: shape (n,), finite.
        resolution: rounding step of the values; smaller differences do not count as skewness.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < _SEEDS[0] or float(np.ptp(array)) <= resolution:
        return False
    if array.size > _SEEDS[-1]:
        largest = _LARGEST[-1] * float(np.sqrt(_SEEDS[-1] / array.size))
    else:
        largest = float(np.interp(np.log(array.size), np.log(_SEEDS), _LARGEST))
    return abs(skewness(array)) > largest
