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
from scipy.ndimage import median_filter

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
        return CellTimes(0, *(np.nan,) * 6)
    low, q1, median, q3, high = np.quantile(times_ms, [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
    return CellTimes(times_ms.size, low, q1, median, float(times_ms.mean()), q3, high)


@dataclass(frozen=True)
class Relayed:
    """The relayed cells of one or more relays; arrays of shape (n,), one entry per cell.

    Attributes:
        time_s: when the cell was received.
        stages_ms: duration of each stage.
        circuit: index of the cell's circuit; a circuit counts separately at each relay.
        span_s: length of the span in which the cells were received.
    """

    time_s: Floats
    stages_ms: Mapping[Stage, Floats]
    circuit: Ints
    span_s: float

    @property
    def total_ms(self) -> Floats:
        """The time that each cell spent inside the relay."""
        return self.stages_ms[Stage.TOTAL]

    @property
    def noise(self) -> float:
        """An approximate upper bound of the autocorrelation of white noise over the span."""
        return 3 / float(np.sqrt(self.span_s))

    def members(self, group: Group) -> Bools:
        """Return whether each cell belongs to a group of circuits, shape (n,)."""
        result: Bools = self._select(group)[self.circuit]
        return result

    def count(self, group: Group) -> int:
        """Return the number of circuits in a group."""
        return int(np.count_nonzero(self._select(group)))

    def _select(self, group: Group) -> Bools:
        """Return whether each circuit belongs to a group, shape (circuits,)."""
        cells = np.bincount(self.circuit)
        if group is Group.ALL or not cells.size:
            return np.ones(cells.size, bool)
        if group is Group.BUSIEST:
            busiest: Bools = np.arange(cells.size) == np.argmax(cells)
            return busiest
        quiet_max, busy_min = np.quantile(cells, [0.25, 0.75])
        quiet: Bools = cells <= quiet_max
        # If most circuits have one cell, both quartiles are 1. Count such circuits as quiet only.
        busy: Bools = (cells >= busy_min) & ~quiet
        return quiet if group is Group.QUIET else busy


def relayed(relays: Sequence[Cells], begin_s: float, end_s: float) -> Relayed:
    """Return the relayed RELAY cells of some relays that were received in [begin, end)."""
    begin_ns, end_ns = round(begin_s * 1e9), round(end_s * 1e9)
    parts = []
    for number, cells in enumerate(relays):
        keep = (cells.fate == Fate.RELAYED) & (cells.command == RELAY)
        keep &= (cells.inbuf_ns >= begin_ns) & (cells.inbuf_ns < end_ns)
        own = cells.where(keep)
        channel, circ = own.circuits()
        times_ns = {
            name: getattr(own, f"{name}_ns") for name in ("inbuf", "queue", "outbuf", "flush")
        }
        assert not any(np.any(ns == NEVER) for ns in times_ns.values())
        parts.append(pd.DataFrame({**times_ns, "circ": circ, "channel": channel, "relay": number}))
    found = pd.concat(parts)
    return Relayed(
        time_s=found["inbuf"].to_numpy() / 1e9,
        stages_ms={
            stage: ((found[end] - found[begin]) / NS_PER_MS).to_numpy()
            for stage, begin, end in (
                (Stage.INBUF_QUEUE, "inbuf", "queue"),
                (Stage.QUEUE_OUTBUF, "queue", "outbuf"),
                (Stage.OUTBUF_FLUSH, "outbuf", "flush"),
                (Stage.TOTAL, "inbuf", "flush"),
            )
        },
        circuit=np.asarray(found.groupby(["circ", "channel", "relay"]).ngroup(), np.int64),
        span_s=end_s - begin_s,
    )


def chance_longer(one_ms: Floats, other_ms: Floats) -> float:
    """Return the probability that a random value of ``one_ms`` exceeds one of ``other_ms``.

    Ties count half. The shapes are (n,) and (m,), with n, m > 0.
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
    running median of this logarithm over ``MAX_PERIOD_S``. The arguments have the shape (n,).

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
    level = level - median_filter(level, MAX_PERIOD_S + 1, mode="mirror")
    level = level - level.mean()
    variance = float(level @ level)
    if variance == 0.0:
        return None
    lags = np.arange(MIN_PERIOD_S, MAX_PERIOD_S + 1)
    strength = np.array([float(level[lag:] @ level[:-lag]) for lag in lags]) / variance
    return lags.astype(np.float64), strength
