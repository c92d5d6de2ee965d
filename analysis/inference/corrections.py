"""Correction of p-values for multiple testing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats

FIRST_SHARE = 0.5
"""Share of the error level that the first endpoint receives."""


def endpoint_weights(count: int) -> list[float]:
    """Return the shares of the error level for ``count`` endpoints in order, with sum 1.

    The first endpoint receives ``FIRST_SHARE``, and the others share the remainder equally. A
    single endpoint receives the whole level.
    """
    if count < 2:
        return [1.0] * count
    return [FIRST_SHARE] + [(1 - FIRST_SHARE) / (count - 1)] * (count - 1)


def adjusted(p_values: ArrayLike, weights: ArrayLike) -> Floats:
    """Return p-values adjusted by the weighted procedure of Holm (1979).

    If hypotheses with an adjusted p-value of at most alpha are rejected, the probability of any
    false rejection is at most alpha, however the tests depend on each other. This is the graphical
    procedure of Bretz et al. (2009, Statistics in Medicine 28) in which a rejected hypothesis
    passes its weight to the others in proportion to their weights.

    Args:
        p_values: shape (m,), in [0, 1].
        weights: shape (m,), > 0, with sum 1.

    Returns:
        Shape (m,), each between its p-value and 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    order = np.argsort(p / w, kind="stable")
    # left[i]: total weight of the hypotheses that are not yet rejected at step i.
    left = np.cumsum(w[order][::-1])[::-1]
    raised = np.maximum.accumulate(p[order] / w[order] * left)
    result = np.empty_like(p)
    result[order] = np.clip(raised, p[order], 1.0)
    return result
