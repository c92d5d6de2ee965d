"""Throughput and timeouts of a run over time, for figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats
from analysis.formats.columns import Outcome
from analysis.measures.data import ClassData

THROUGHPUT_WINDOW_S = 60.0
"""Width of the moving average of throughput."""


def throughput_over_time(data: ClassData, grid_s: Floats) -> Floats:
    """Return the moving average of throughput at each grid time, in B/s; NaN if it is unknown."""
    read = data.bytes_read
    if read is None:
        return np.full(grid_s.shape, np.nan)
    return averaged(grid_s, read.by, THROUGHPUT_WINDOW_S, read.begin_s, read.end_s)


def timeouts_over_time(data: ClassData, grid_s: Floats) -> Floats:
    """Return the number of measured streams that timed out by each grid time."""
    streams = data.measured
    times = np.sort(streams.end_s[streams.outcome == Outcome.TIMEOUT])
    return np.searchsorted(times, grid_s, side="right").astype(np.float64)


def averaged(
    grid_s: ArrayLike,
    amount_by: Callable[[Floats], Floats],
    window_s: float,
    low_s: float,
    high_s: float,
) -> Floats:
    """Return the amount per second in a window centred on each grid time.

    Near the edges, the part of the window outside of [low, high] is cut off, and the amount is
    divided by the remaining width, so nothing is extrapolated. If no width remains, the value is
    NaN.

    Args:
        grid_s: shape (g,).
        amount_by: a function of times that returns the cumulative amount at each time.
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
