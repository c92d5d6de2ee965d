"""Where cells towards clients wait: in their circuit's queue, in the outbuf, in the kernel.

docs/explanation/celltrace.md has the definitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Floats, Ints
from analysis.celltrace.arrivals import Arrivals
from analysis.celltrace.cells import NEVER, Cells
from analysis.celltrace.events import INWARD

LEAST_KNOWN = 0.5
"""Share of its cells whose wait in the kernel has to be known. A guard is the middle of a few
circuits, whose cells a traced relay reads; of all that it sends to clients they say nothing."""


@dataclass(frozen=True)
class Waits:
    """How long RELAY cells towards clients waited at some relays; arrays have shape (n,).

    Attributes:
        queue_s: in their circuit's queue.
        outbuf_s: in their connection's outbuf.
        kernel_s: from the kernel's having them to their being read at the next relay, less what
            that takes at least; NaN where the reading is not known. None where the records do not
            tell of it at all.
        unsent: cells that were queued as well, but never handed to the kernel.
    """

    queue_s: Floats
    outbuf_s: Floats
    kernel_s: Floats | None
    unsent: int

    @property
    def kernel_mean_s(self) -> float | None:
        """The mean of those in the kernel; None where those of too few cells are known."""
        known_s = self.known_kernel_s
        few = not known_s.size or known_s.size < LEAST_KNOWN * self.queue_s.size
        return None if few else float(known_s.mean())

    @property
    def known_kernel_s(self) -> Floats:
        """Those in the kernel that are known; none where the records do not tell of it."""
        if self.kernel_s is None:
            return np.empty(0)
        return self.kernel_s[~np.isnan(self.kernel_s)]


def waits(relays: Sequence[tuple[Cells, Arrivals | None]], begin_s: float, end_s: float) -> Waits:
    """The waits of RELAY cells towards clients that were queued within [begin, end).

    relays: the cells of each, and when those that it sent arrived; None: records without them.
    """
    span_ns = (round(begin_s * 1e9), round(end_s * 1e9))
    queue_s, outbuf_s, kernel_s = [np.empty(0)], [np.empty(0)], [np.empty(0)]
    unsent = 0
    for cells, arrived in relays:
        queued = (cells.direction == INWARD) & cells.is_traffic
        queued &= (cells.queue_ns >= span_ns[0]) & (cells.queue_ns < span_ns[1])
        gone = queued & (cells.outbuf_ns != NEVER) & (cells.flush_ns != NEVER)
        unsent += int(np.count_nonzero(queued)) - int(np.count_nonzero(gone))
        outbuf_ns = cells.outbuf_ns[gone]
        queue_s.append((outbuf_ns - cells.queue_ns[gone]) / 1e9)
        outbuf_s.append((cells.flush_ns[gone] - outbuf_ns) / 1e9)
        if arrived is not None:
            kernel_s.append(_kernel_wait_s(cells, arrived)[gone])
    told = all(arrived is not None for _, arrived in relays)
    return Waits(
        np.concatenate(queue_s),
        np.concatenate(outbuf_s),
        np.concatenate(kernel_s) if told else None,
        unsent,
    )


def _kernel_wait_s(cells: Cells, arrived: Arrivals) -> Floats:
    """For each cell the time from flush to arrival, less the least on its channel; NaN: unknown."""
    rows = np.searchsorted(cells.seq, arrived.seq)
    way_ns = arrived.arrived_ns - cells.flush_ns[rows]
    result = np.full(len(cells), np.nan)
    result[rows] = (way_ns - _least_by(arrived.channel, way_ns)) / 1e9
    return result


def _least_by(group: Ints, values: Ints) -> Ints:
    """For each value the least of its group; all of shape (n,)."""
    numbers, of_value = np.unique(group, return_inverse=True)
    least = np.full(numbers.size, np.iinfo(np.int64).max)
    np.minimum.at(least, of_value, values)
    return least[of_value]
