"""Counts over time, from counters read at irregular times. Arrays in, arrays out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats


def cumulative_at(
    grid_s: ArrayLike, begin_s: ArrayLike, end_s: ArrayLike, amount: ArrayLike
) -> Floats:
    """Return the cumulative amount at each grid time, spreading amounts evenly over (begin, end].

    Args:
        grid_s: shape (g,).
        begin_s: shape (n,), start of each counting interval.
        end_s: shape (n,), its end; an empty interval counts as an instant.
        amount: shape (n,).

    Returns:
        Shape (g,), in the amount's unit.
    """
    grid = np.asarray(grid_s, dtype=np.float64)
    begin = np.asarray(begin_s, dtype=np.float64)
    end = np.asarray(end_s, dtype=np.float64)
    value = np.asarray(amount, dtype=np.float64)
    instant = end <= begin
    order = np.argsort(end[instant], kind="stable")
    steps = np.concatenate(([0.0], np.cumsum(value[instant][order])))
    total: Floats = steps[np.searchsorted(end[instant][order], grid, side="right")]
    # Each interval adds the slope value/length at its begin and removes it at its end. The sum is
    # therefore piecewise linear, and one interpolation over the sorted changes of slope suffices.
    begin, end, value = begin[~instant], end[~instant], value[~instant]
    if value.size == 0:
        return total
    slope = value / (end - begin)
    at = np.concatenate((begin, end))
    change = np.concatenate((slope, -slope))
    order = np.argsort(at, kind="stable")
    at, change = at[order], change[order]
    rate = np.cumsum(change)[:-1]
    height = np.concatenate(([0.0], np.cumsum(rate * np.diff(at))))
    return total + np.interp(grid, at, height)
