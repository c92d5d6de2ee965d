"""p-values corrected for how many there are. Arrays in, arrays out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats

FIRST_SHARE = 0.5
"""Share of the error level that the first endpoint has."""


def endpoint_weights(count: int) -> list[float]:
    """Return the shares of the error level of ``count`` endpoints in their order, of sum 1.

    The first has ``FIRST_SHARE``, the others divide the rest; a single one has all.
    """
    if count < 2:
        return [1.0] * count
    return [FIRST_SHARE] + [(1 - FIRST_SHARE) / (count - 1)] * (count - 1)


def adjusted(p_values: ArrayLike, weights: ArrayLike) -> Floats:
    """Return p-values that are adjusted for their number by the weighted procedure of Holm (1979).

    Rejecting where the adjusted value is at most alpha keeps the chance of any false rejection at
    most alpha, whatever the dependence. It is the graphical procedure of Bretz et al. (2009,
    Statistics in Medicine 28) in which a rejected hypothesis passes its weight to all others in
    proportion to theirs.

    Args:
        p_values: shape (m,), in [0, 1].
        weights: shape (m,), > 0, of sum 1.

    Returns:
        Shape (m,), each at least its p-value and at most 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    order = np.argsort(p / w, kind="stable")
    # The weight of all that is not rejected yet, at each step.
    left = np.cumsum(w[order][::-1])[::-1]
    raised = np.maximum.accumulate(p[order] / w[order] * left)
    result = np.empty_like(p)
    result[order] = np.clip(raised, p[order], 1.0)
    return result
