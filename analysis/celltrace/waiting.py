"""Waits of cells towards clients: in the queue of the circuit, in the outbuf, in the kernel.

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

MIN_KNOWN_SHARE = 0.5
"""Minimum share of cells whose wait in the kernel has to be known.

A guard is the middle relay of a few circuits, whose cells a traced relay reads. These are not
representative of the cells that it sends to clients.
"""


@dataclass(frozen=True)
class Waits:
    """Waits of RELAY cells towards clients at some relays; arrays of shape (n,).

    Attributes:
        queue_s: in the queue of the circuit.
        outbuf_s: in the outbuf of the connection.
        kernel_s: from the flush to the kernel until the next relay reads the cell, minus the
            minimum of this time; NaN if the arrival is unknown. None if the records have no
            arrivals.
        unsent: number of cells that were queued but never flushed to the kernel.
    """

    queue_s: Floats
    outbuf_s: Floats
    kernel_s: Floats | None
    unsent: int

    @property
    def kernel_mean_s(self) -> float | None:
        """The mean wait in the kernel; None if too few are known."""
        known_s = self.known_kernel_s
        few = not known_s.size or known_s.size < MIN_KNOWN_SHARE * self.queue_s.size
        return None if few else float(known_s.mean())

    @property
    def known_kernel_s(self) -> Floats:
        """The known waits in the kernel; empty if the records have no arrivals."""
        if self.kernel_s is None:
            return np.empty(0)
        return self.kernel_s[~np.isnan(self.kernel_s)]


def waits(relays: Sequence[tuple[Cells, Arrivals | None]], begin_s: float, end_s: float) -> Waits:
    """Return the waits of RELAY cells towards clients that were queued in [begin, end).

    relays: the cells of each, and the arrivals of those it sent; None: not in the records.
    """
    span_ns = (round(begin_s * 1e9), round(end_s * 1e9))
    queue_s, outbuf_s, kernel_s = [np.empty(0)], [np.empty(0)], [np.empty(0)]
    unsent = 0
    for cells, arrived in relays:
        queued = (cells.direction == INWARD) & cells.is_traffic
        queued &= (cells.queue_ns >= span_ns[0]) & (cells.queue_ns < span_ns[1])
        sent = queued & (cells.outbuf_ns != NEVER) & (cells.flush_ns != NEVER)
        unsent += int(np.count_nonzero(queued)) - int(np.count_nonzero(sent))
        outbuf_ns = cells.outbuf_ns[sent]
        queue_s.append((outbuf_ns - cells.queue_ns[sent]) / 1e9)
        outbuf_s.append((cells.flush_ns[sent] - outbuf_ns) / 1e9)
        if arrived is not None:
            kernel_s.append(_kernel_wait_s(cells, arrived)[sent])
    has_arrivals = all(arrived is not None for _, arrived in relays)
    return Waits(
        np.concatenate(queue_s),
        np.concatenate(outbuf_s),
        np.concatenate(kernel_s) if has_arrivals else None,
        unsent,
    )


def _kernel_wait_s(cells: Cells, arrived: Arrivals) -> Floats:
    """Return the time from flush to arrival minus its minimum on the channel; NaN: unknown."""
    rows = np.searchsorted(cells.seq, arrived.seq)
    way_ns = arrived.arrived_ns - cells.flush_ns[rows]
    result = np.full(len(cells), np.nan)
    result[rows] = (way_ns - _least_by(arrived.channel, way_ns)) / 1e9
    return result


def _least_by(group: Ints, values: Ints) -> Ints:
    """Return the minimum of each value's group; all of shape (n,)."""
    numbers, groups = np.unique(group, return_inverse=True)
    least = np.full(numbers.size, np.iinfo(np.int64).max)
    np.minimum.at(least, groups, values)
    return least[groups]
