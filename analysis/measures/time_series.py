"""Rates and counts over time, from counters read at irregular times. Arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable

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


def averaged(
    grid_s: ArrayLike,
    amount_by: Callable[[Floats], Floats],
    window_s: float,
    low_s: float,
    high_s: float,
) -> Floats:
    """Return the amount per second in a window centred on each grid time.

    At the edges, the window is cut to [low, high] and the amount is divided by the remaining width,
    so nothing is extrapolated. If no width remains, the value is NaN.

    Args:
        grid_s: shape (g,).
        amount_by: maps times to the cumulative amount at each of them.
        window_s: full width of the window.
        low_s: start of the observation.
        high_s: end of the observation.
    """
    grid = np.asarray(grid_s, dtype=np.float64)
    left = np.clip(grid - window_s / 2, low_s, high_s)
    right = np.clip(grid + window_s / 2, low_s, high_s)
    amounts = amount_by(np.concatenate((left, right)))
    width = right - left
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(width > 0, (amounts[grid.size :] - amounts[: grid.size]) / width, np.nan)


def count_by(grid_s: ArrayLike, times_s: ArrayLike) -> Floats:
    """Return how many of ``times_s`` are at or before each grid time."""
    times = np.sort(np.asarray(times_s, dtype=np.float64))
    return np.searchsorted(times, np.asarray(grid_s), side="right").astype(np.float64)
