"""Throughput and timeouts of a run over time, for figures."""

from __future__ import annotations

import numpy as np

from analysis.arrays import Floats
from analysis.formats.columns import Outcome
from analysis.measures.data import ClassData
from analysis.measures.time_series import averaged, count_by

THROUGHPUT_WINDOW_S = 60.0
"""Width of the moving average of throughput."""


def throughput_over_time(data: ClassData, grid_s: Floats) -> Floats:
    """Return the moving average of throughput at each grid time, in bytes per second."""
    read = data.bytes_read
    if read is None:
        return np.full(grid_s.shape, np.nan)
    return averaged(grid_s, read.by, THROUGHPUT_WINDOW_S, read.begin_s, read.end_s)


def timeouts_over_time(data: ClassData, grid_s: Floats) -> Floats:
    """Return the number of measured streams that timed out by each grid time."""
    streams = data.measured
    return count_by(grid_s, streams.end_s[streams.outcome == Outcome.TIMEOUT])
