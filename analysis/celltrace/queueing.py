"""Waits of cells towards clients, and the circuits that compete for a channel.

docs/explanation/celltrace.md has the definitions. A relay serves a channel when it moves cells from
the queues of circuits to the channel's outbuf. In simulated time, all cells of one scheduler round
have the same time stamp, so the cells that a channel gets at one time count as one service. Only
cells towards the client are included, because the records lack the channel on which a relay sends a
cell away from the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.arrays import Floats, Ints
from analysis.celltrace.arrivals import Arrivals
from analysis.celltrace.cells import NEVER, Cells
from analysis.celltrace.events import INWARD, RELAY

MIN_KNOWN_SHARE = 0.5
"""Minimum share of cells with a known wait in the kernel; below it, no mean wait is computed.

A guard sends most of its cells to clients, which are not traced. The wait is known only on the few
circuits in which the guard is the middle relay, and these circuits are not representative.
"""


@dataclass(frozen=True)
class Waits:
    """Waits of RELAY cells towards clients at some relays; arrays of shape (n,).

    Attributes:
        queue_s: the wait in the queue of the circuit.
        outbuf_s: the wait in the outbuf of the connection.
        kernel_s: the time from the flush to the kernel until the next relay reads the cell, minus
            the minimum of this time on the same channel; NaN for a cell whose arrival is unknown.
            The whole array is None if the records have no arrivals.
        unsent: number of cells that were queued but never flushed to the kernel.
    """

    queue_s: Floats
    outbuf_s: Floats
    kernel_s: Floats | None
    unsent: int

    @property
    def known_kernel_s(self) -> Floats:
        """The known waits in the kernel; empty if the records have no arrivals."""
        return np.empty(0) if self.kernel_s is None else self.kernel_s[~np.isnan(self.kernel_s)]

    @property
    def kernel_mean_s(self) -> float | None:
        """The mean wait in the kernel; None if too few of these waits are known."""
        known_s = self.known_kernel_s
        if not known_s.size or known_s.size < MIN_KNOWN_SHARE * self.queue_s.size:
            return None
        return float(known_s.mean())


def waits(relays: Sequence[tuple[Cells, Arrivals | None]], begin_s: float, end_s: float) -> Waits:
    """Return the waits of the RELAY cells towards clients that entered a queue in [begin, end).

    relays: for each relay its cells, and the arrivals of the cells that it sent. If the records do
        not contain the arrivals, they are None.
    """
    begin_ns, end_ns = round(begin_s * 1e9), round(end_s * 1e9)
    queue_s, outbuf_s, kernel_s = [np.empty(0)], [np.empty(0)], [np.empty(0)]
    unsent = 0
    for cells, arrived in relays:
        queued = (cells.direction == INWARD) & (cells.command == RELAY)
        queued &= (cells.queue_ns >= begin_ns) & (cells.queue_ns < end_ns)
        sent = queued & (cells.outbuf_ns != NEVER) & (cells.flush_ns != NEVER)
        unsent += int(np.count_nonzero(queued & ~sent))
        queue_s.append((cells.outbuf_ns - cells.queue_ns)[sent] / 1e9)
        outbuf_s.append((cells.flush_ns - cells.outbuf_ns)[sent] / 1e9)
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
    """Return the time of each cell from flush to arrival, minus the minimum on the same channel.

    It is NaN for cells whose arrival is unknown.
    """
    rows = np.searchsorted(cells.seq, arrived.seq)
    way_ns = pd.Series(arrived.arrived_ns - cells.flush_ns[rows])
    least_ns = way_ns.groupby(arrived.channel).transform("min")
    result = np.full(len(cells), np.nan)
    result[rows] = (way_ns - least_ns).to_numpy() / 1e9
    return result


@dataclass(frozen=True)
class ServiceInstants:
    """The instants at which some relays served their channels: arrays with one entry for each.

    Attributes:
        cells: number of cells that the relay moved from queues to the channel's outbuf.
        waiting: number of the channel's circuits that had a queued cell just before.
    """

    cells: Ints
    waiting: Ints


def served(relays: Sequence[Cells], begin_s: float, end_s: float) -> ServiceInstants:
    """Return the instants in [begin, end) at which the relays served channels towards clients."""
    counts = [np.zeros((2, 0), np.int64)]
    for cells in relays:
        for circuit, queue_ns, outbuf_ns in _queued_by_channel(cells):
            instants, moved = np.unique(outbuf_ns, return_counts=True)
            begins_ns, ends_ns = _waiting_periods(circuit, queue_ns, outbuf_ns)
            # A circuit waits from the arrival of its first cell to the departure of its last one,
            # inclusive.
            waiting = np.searchsorted(np.sort(begins_ns), instants, "right")
            waiting -= np.searchsorted(np.sort(ends_ns), instants, "left")
            inside = (instants >= round(begin_s * 1e9)) & (instants < round(end_s * 1e9))
            counts.append(np.stack([moved, waiting])[:, inside])
    return ServiceInstants(*np.concatenate(counts, axis=1))


def _queued_by_channel(cells: Cells) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the cells towards clients that were moved to an outbuf, for one channel at a time.

    Each item consists of these cells' circuits, ``queue_ns`` and ``outbuf_ns``.
    """
    channel, circuit = cells.circuits()
    keep = (cells.direction == INWARD) & (cells.queue_ns != NEVER) & (cells.outbuf_ns != NEVER)
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(channel[rows], kind="stable")]
    for own in np.split(rows, np.flatnonzero(np.diff(channel[rows])) + 1):
        if own.size:
            yield circuit[own], cells.queue_ns[own], cells.outbuf_ns[own]


def _waiting_periods(circuit: Ints, queue_ns: Ints, outbuf_ns: Ints) -> tuple[Ints, Ints]:
    """Return the times at which FIFO queues of circuits became non-empty, and became empty."""
    order = np.lexsort((outbuf_ns, queue_ns, circuit))
    circuit, queue_ns, outbuf_ns = circuit[order], queue_ns[order], outbuf_ns[order]
    begins = np.ones(order.size, bool)
    begins[1:] = (circuit[1:] != circuit[:-1]) | (queue_ns[1:] > outbuf_ns[:-1])
    return queue_ns[begins], outbuf_ns[np.append(begins[1:], True)]
