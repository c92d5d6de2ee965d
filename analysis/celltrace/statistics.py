"""The numbers of the text of 2019 for the cells of a relay, and where their time was spent.

"Inprocess Cell Time Tracing", D. Goulet, tor-scaling, 7 August 2019: times are from inbuf to
kernel, in milliseconds, of RELAY cells that were relayed; the busiest circuit; the quiet circuits
(first quartile by cells) and the busy ones (third).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from analysis.celltrace.cells import NEVER, Cells, Fate, Ints

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NS_PER_MS = 1e6


class Group(StrEnum):
    """Which circuits' cells."""

    ALL = "all"
    BUSIEST = "busiest circuit"
    QUIET = "quiet circuits"
    BUSY = "busy circuits"


class Stage(StrEnum):
    """A part of a cell's way through a relay."""

    INBUF_QUEUE = "inbuf to queue"
    QUEUE_OUTBUF = "queue to outbuf"
    OUTBUF_FLUSH = "outbuf to flush"
    TOTAL = "inbuf to flush"


@dataclass(frozen=True)
class Summary:
    """Times in milliseconds, of ``count`` cells. All NaN without any."""

    count: int
    minimum_ms: float
    quartile1_ms: float
    median_ms: float
    mean_ms: float
    quartile3_ms: float
    maximum_ms: float


def summarise(times_ms: Floats) -> Summary:
    """The text's line of numbers for times of shape (n,)."""
    if not times_ms.size:
        return Summary(0, *(float("nan"),) * 6)
    low, q1, median, q3, high = np.quantile(times_ms, [0.0, 0.25, 0.5, 0.75, 1.0])
    return Summary(
        int(times_ms.size),
        float(low),
        float(q1),
        float(median),
        float(times_ms.mean()),
        float(q3),
        float(high),
    )


def stage_ms(cells: Cells, stage: Stage) -> Floats:
    """How long each relayed cell took for a stage, shape (n,) in milliseconds.

    All cells must have been relayed.
    """
    begin, end = {
        Stage.INBUF_QUEUE: (cells.inbuf_ns, cells.queue_ns),
        Stage.QUEUE_OUTBUF: (cells.queue_ns, cells.outbuf_ns),
        Stage.OUTBUF_FLUSH: (cells.outbuf_ns, cells.flush_ns),
        Stage.TOTAL: (cells.inbuf_ns, cells.flush_ns),
    }[stage]
    assert not np.any((begin == NEVER) | (end == NEVER))
    return (end - begin) / NS_PER_MS


def relayed_traffic(cells: Cells, begin_ns: int, end_ns: int) -> Cells:
    """The RELAY cells that were relayed and came in within [begin_ns, end_ns)."""
    keep = (cells.fate == Fate.RELAYED) & cells.is_traffic
    keep &= (cells.inbuf_ns >= begin_ns) & (cells.inbuf_ns < end_ns)
    return cells.where(keep)


@dataclass(frozen=True)
class Circuits:
    """Relayed cells by circuit.

    Attributes:
        of_cell: each cell's circuit, an index, shape (n,).
        cells: how many cells each circuit had, shape (circuits,).
        quiet_most: a quiet circuit has at most so many cells: the first quartile.
        busy_least: a busy circuit has at least so many, the third quartile, and is not quiet.
    """

    of_cell: Ints
    cells: Ints
    quiet_most: float
    busy_least: float

    def members(self, group: Group) -> Bools:
        """Whether each cell belongs to a group of circuits, shape (n,)."""
        if group is Group.ALL or not self.cells.size:
            return np.ones(self.of_cell.shape, bool)
        if group is Group.BUSIEST:
            chosen = np.arange(self.cells.size) == int(np.argmax(self.cells))
        elif group is Group.QUIET:
            chosen = self.cells <= self.quiet_most
        else:
            chosen = self._busy
        result: Bools = chosen[self.of_cell]
        return result

    def count(self, group: Group) -> int:
        """How many circuits a group has."""
        if group is Group.ALL:
            return int(self.cells.size)
        if group is Group.BUSIEST:
            return min(1, int(self.cells.size))
        if group is Group.QUIET:
            return int(np.count_nonzero(self.cells <= self.quiet_most))
        return int(np.count_nonzero(self._busy))

    @property
    def _busy(self) -> Bools:
        # Where most circuits have one cell both quartiles are 1: quiet ones are not busy as well.
        result: Bools = (self.cells >= self.busy_least) & (self.cells > self.quiet_most)
        return result


def by_circuit(keys: Sequence[Ints]) -> Circuits:
    """Groups cells by their circuit; each of ``keys`` has the shape (n,).

    Within a relay the keys are the pair of ``Cells.circuits``; over several relays, the relay too.
    """
    n = len(keys[0])
    if not n:
        return Circuits(np.zeros(0, np.int64), np.zeros(0, np.int64), 0.0, 0.0)
    order = np.lexsort(tuple(keys))
    changes = np.zeros(n, bool)
    for key in keys:
        ranked = key[order]
        changes[1:] |= ranked[1:] != ranked[:-1]
    of_cell = np.empty(n, np.int64)
    of_cell[order] = np.cumsum(changes)
    cells = np.bincount(of_cell)
    q1, q3 = np.quantile(cells, [0.25, 0.75])
    return Circuits(of_cell, cells, float(q1), float(q3))


def spike_period_s(
    time_s: Floats, time_ms: Floats, *, least_s: float = 10.0, most_s: float = 120.0
) -> tuple[float, float]:
    """The strongest period of the delays over time, and how strong it is.

    Of the 99th percentile in each second, its logarithm less its running median over ``most_s``,
    the autocorrelation's highest value between two lags.

    Args:
        time_s: when each cell came in, shape (n,).
        time_ms: how long it took, shape (n,).
        least_s: shortest period looked for.
        most_s: longest period looked for.

    Returns:
        The period in seconds and the autocorrelation there, at most 1; NaN, NaN for a trace shorter
        than three times ``most_s`` or without variation. White noise of n seconds stays below
        about 3 / sqrt(n).
    """
    if not time_s.size:
        return float("nan"), float("nan")
    second = np.floor(time_s - time_s.min()).astype(np.int64)
    n = int(second.max()) + 1
    if n < 3 * most_s:
        return float("nan"), float("nan")
    order = np.lexsort((time_ms, second))
    counts = np.bincount(second, minlength=n)
    last = np.cumsum(counts)
    place = last - 1 - (counts * 0.01).astype(np.int64)
    level = np.full(n, np.nan)
    level[counts > 0] = np.log(np.maximum(time_ms[order][place[counts > 0]], 1e-6))
    level = np.where(np.isnan(level), np.nanmedian(level), level)
    half = int(most_s) // 2
    padded = np.pad(level, half, mode="reflect")
    level = level - np.median(
        np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1
    )
    level = level - level.mean()
    variance = float(level @ level)
    if variance == 0.0:
        return float("nan"), float("nan")
    lags = np.arange(int(least_s), int(most_s) + 1)
    strength = np.array([float(level[lag:] @ level[:-lag]) for lag in lags]) / variance
    best = int(np.argmax(strength))
    return float(lags[best]), float(strength[best])
