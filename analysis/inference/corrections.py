"""p-values corrected for how many there are. Arrays in, arrays out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats


def holm(p_values: ArrayLike) -> Floats:
    """p-values adjusted for their number; Holm (1979), Scandinavian J. of Statistics 6.

    Rejecting where the adjusted value is at most alpha keeps the chance of any false rejection at
    most alpha, whatever the dependence.

    Args:
        p_values: shape (m,), in [0, 1].

    Returns:
        Shape (m,), each at least its p-value and at most 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted
