"""Statistics of the time that cells spend inside relays, in total and in each stage.

The statistics are those of D. Goulet's "Inprocess Cell Time Tracing" (tor-scaling mailing list, 7
August 2019). They describe relayed RELAY cells, from the inbuf to the kernel, in milliseconds. The
groups of circuits depend on the numbers of cells: the busiest circuit has the most cells, a quiet
one has at most the first quartile over all circuits, and a busy one has at least the third.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.arrays import Bools, Floats, Ints
from analysis.celltrace.cells import NEVER, Cells, Fate
from analysis.celltrace.events import RELAY
from analysis.formats.study import CellTimes

NS_PER_MS = 1e6


class Group(StrEnum):
    """A group of circuits."""

    ALL = "all"
    BUSIEST = "busiest circuit"
    QUIET = "quiet circuits"
    BUSY = "busy circuits"


class Stage(StrEnum):
    """A stage of a cell's path through a relay."""

    INBUF_QUEUE = "inbuf to queue"
    QUEUE_OUTBUF = "queue to outbuf"
    OUTBUF_FLUSH = "outbuf to flush"
    TOTAL = "inbuf to flush"


def summarise(times_ms: Floats) -> CellTimes:
    """Return the count, extremes, quartiles and mean of times, shape (n,)."""
    if not times_ms.size:
        return CellTimes(0, *(float("nan"),) * 6)
    low, q1, median, q3, high = np.quantile(times_ms, [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
    return CellTimes(times_ms.size, low, q1, median, float(times_ms.mean()), q3, high)


def stage_ms(cells: Cells, stage: Stage) -> Floats:
    """Return the duration of a stage for each cell, shape (n,) in milliseconds.

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
    """Return the relayed RELAY cells received in [begin_ns, end_ns)."""
    keep = (cells.fate == Fate.RELAYED) & (cells.command == RELAY)
    keep &= (cells.inbuf_ns >= begin_ns) & (cells.inbuf_ns < end_ns)
    return cells.where(keep)


@dataclass(frozen=True)
class Circuits:
    """The circuits of some relayed cells.

    Attributes:
        circuit_of_cell: index of each cell's circuit, shape (n,).
        cells: number of cells of each circuit, shape (circuits,).
    """

    circuit_of_cell: Ints
    cells: Ints

    def members(self, group: Group) -> Bools:
        """Return whether each cell belongs to a group of circuits, shape (n,)."""
        result: Bools = self._select(group)[self.circuit_of_cell]
        return result

    def count(self, group: Group) -> int:
        """Return the number of circuits in a group."""
        return int(np.count_nonzero(self._select(group)))

    def _select(self, group: Group) -> Bools:
        """Return whether each circuit belongs to a group, shape (circuits,)."""
        if group is Group.ALL or not self.cells.size:
            return np.ones(self.cells.size, bool)
        if group is Group.BUSIEST:
            busiest: Bools = np.arange(self.cells.size) == np.argmax(self.cells)
            return busiest
        quiet_max, busy_min = np.quantile(self.cells, [0.25, 0.75])
        quiet: Bools = self.cells <= quiet_max
        # If most circuits have one cell, both quartiles are 1. Count such circuits as quiet only.
        busy: Bools = (self.cells >= busy_min) & ~quiet
        return quiet if group is Group.QUIET else busy


def by_circuit(keys: Sequence[Ints]) -> Circuits:
    """Group cells by circuit: cells with equal keys belong to the same circuit.

    keys: arrays of shape (n,). For cells of one relay, these are the two arrays of
        ``Cells.circuits``; for cells of several relays, there is also an index of the relay.
    """
    frame = pd.DataFrame(dict(enumerate(reversed(keys))))
    circuit_of_cell = np.asarray(frame.groupby(list(frame.columns)).ngroup(), np.int64)
    return Circuits(circuit_of_cell, np.asarray(np.bincount(circuit_of_cell), np.int64))


@dataclass(frozen=True)
class Relayed:
    """The relayed cells of one or more relays; arrays of shape (n,), one entry per cell.

    Attributes:
        time_s: when the cell was received.
        stages_ms: duration of each stage.
        circuits: the circuit of the cell; a circuit counts separately at each relay.
        span_s: length of the span in which the cells were received.
    """

    time_s: Floats
    stages_ms: Mapping[Stage, Floats]
    circuits: Circuits
    span_s: float

    @property
    def total_ms(self) -> Floats:
        """The time that each cell spent inside the relay."""
        return self.stages_ms[Stage.TOTAL]

    @property
    def noise(self) -> float:
        """An approximate upper bound of the autocorrelation of white noise over the span."""
        return 3 / float(np.sqrt(self.span_s))


def relayed(relays: Sequence[Cells], begin_s: float, end_s: float) -> Relayed:
    """Return the relayed RELAY cells of some relays that were received in [begin, end)."""
    span_ns = (round(begin_s * 1e9), round(end_s * 1e9))
    own = [relayed_traffic(cells, *span_ns) for cells in relays]
    keys = [cells.circuits() for cells in own]
    circuits = by_circuit(
        [
            np.concatenate([np.full(len(cells), i) for i, cells in enumerate(own)]),
            np.concatenate([channel for channel, _ in keys]),
            np.concatenate([circ for _, circ in keys]),
        ]
    )
    return Relayed(
        time_s=np.concatenate([cells.inbuf_ns for cells in own]) / 1e9,
        stages_ms={
            stage: np.concatenate([stage_ms(cells, stage) for cells in own]) for stage in Stage
        },
        circuits=circuits,
        span_s=end_s - begin_s,
    )


def chance_longer(one_ms: Floats, other_ms: Floats) -> float:
    """Return the probability that a random value of ``one_ms`` exceeds one of ``other_ms``.

    Ties count half.

    Args:
        one_ms: shape (n,), n > 0.
        other_ms: shape (m,), m > 0.
    """
    ranked = np.sort(other_ms)
    below = np.searchsorted(ranked, one_ms, "left") + np.searchsorted(ranked, one_ms, "right")
    return float(below.mean()) / (2 * ranked.size)


MIN_PERIOD_S = 10
MAX_PERIOD_S = 120
MIN_SPAN_S = 3 * MAX_PERIOD_S
"""Minimum span of cells for the detection of a period."""


def delay_autocorrelation(time_s: Floats, time_ms: Floats) -> tuple[Floats, Floats] | None:
    """Return the autocorrelation of the delays over time.

    It is computed from the logarithm of the 99th percentile of the delays in each second, minus the
    running median of this logarithm over ``MAX_PERIOD_S``.

    Args:
        time_s: when each cell was received, shape (n,).
        time_ms: time inside the relay, shape (n,).

    Returns:
        The lags in seconds, from ``MIN_PERIOD_S`` to ``MAX_PERIOD_S``, and the autocorrelation
        at each, at most 1. None if there are no cells, if they span less than ``MIN_SPAN_S``, or if
        the delays do not vary. For white noise of n seconds, the autocorrelation stays below about
        3 / sqrt(n).
    """
    if not time_s.size:
        return None
    second = np.floor(time_s - time_s.min()).astype(np.int64)
    n = int(second.max()) + 1
    if n < MIN_SPAN_S:
        return None
    order = np.lexsort((time_ms, second))
    counts = np.bincount(second, minlength=n)
    last = np.cumsum(counts)
    place = last - 1 - (counts * 0.01).astype(np.int64)
    level = np.full(n, np.nan)
    level[counts > 0] = np.log(np.maximum(time_ms[order][place[counts > 0]], 1e-6))
    level = np.where(np.isnan(level), np.nanmedian(level), level)
    half = MAX_PERIOD_S // 2
    padded = np.pad(level, half, mode="reflect")
    level = level - np.median(
        np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1
    )
    level = level - level.mean()
    variance = float(level @ level)
    if variance == 0.0:
        return None
    lags = np.arange(MIN_PERIOD_S, MAX_PERIOD_S + 1)
    strength = np.array([float(level[lag:] @ level[:-lag]) for lag in lags]) / variance
    return lags.astype(np.float64), strength


def spike_period_s(time_s: Floats, time_ms: Floats) -> tuple[float, float]:
    """Return the lag in seconds with the highest autocorrelation of the delays, and its value.

    Both are NaN if ``delay_autocorrelation`` returns None.
    """
    found = delay_autocorrelation(time_s, time_ms)
    if found is None:
        return float("nan"), float("nan")
    lags, strength = found
    best = int(np.argmax(strength))
    return float(lags[best]), float(strength[best])
