"""Whether values lie more to one side than normal ones would. Arrays in, numbers out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_SEEDS = (5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100)
_LARGEST = (1.397, 1.531, 1.586, 1.609, 1.571, 1.536, 1.451, 1.309, 1.107, 0.883, 0.635)
"""The 99% quantile of the size of the skewness of so many normal values, from 100,000 samples each
(30,000 from 30 values on)."""


def skewness(values: ArrayLike) -> float:
    """The third central moment over the 3/2 power of the second; 0 where all values are the same.

    Args:
        values: shape (n,), n >= 1, finite.
    """
    array = np.asarray(values, dtype=np.float64)
    away = array - array.mean()
    square = float((away**2).mean())
    # Equal values leave a spread of rounding errors.
    if np.sqrt(square) <= 1e-12 * float(np.abs(array).max()):
        return 0.0
    return float((away**3).mean() / square**1.5)


def looks_skewed(values: ArrayLike, resolution: float = 0.0) -> bool:
    """Whether normal values would be as skewed as these in 1% of cases at most.

    Fewer than five cannot show it, and ten show it of exponential values in one case of six.

    Args:
        values: shape (n,), finite.
        resolution: step in which they are known; what differs by no more is not skewed.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < _SEEDS[0] or float(np.ptp(array)) <= resolution:
        return False
    if array.size > _SEEDS[-1]:
        largest = _LARGEST[-1] * float(np.sqrt(_SEEDS[-1] / array.size))
    else:
        largest = float(np.interp(np.log(array.size), np.log(_SEEDS), _LARGEST))
    return abs(skewness(array)) > largest
