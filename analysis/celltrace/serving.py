"""What a channel's circuits compete for: cells served in one instant, circuits that wait then.

A relay serves a channel when it moves cells from circuits' queues to the channel's outbuf. In
simulated time all that one round of the scheduler moves has one time stamp: for a circuit policy
the clock stands meanwhile. Of cells towards the client, whose channel the records hold; those that
a relay made (an exit, of a stream's bytes) are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Ints
from analysis.celltrace.cells import NEVER, Cells
from analysis.celltrace.events import INWARD


@dataclass(frozen=True)
class Served:
    """The instants at which channels were served, over some relays; arrays have shape (n,).

    Attributes:
        cells: how many cells were moved.
        waiting: of how many circuits a cell was in the queue just before.
    """

    cells: Ints
    waiting: Ints


def served(relays: Sequence[Cells], begin_s: float, end_s: float) -> Served:
    """The instants within [begin, end) at which the relays served channels towards clients."""
    span_ns = (round(begin_s * 1e9), round(end_s * 1e9))
    found = [_of_channel(own, *span_ns) for cells in relays for own in _by_channel(cells)]
    return Served(
        np.concatenate([np.zeros(0, np.int64), *(one.cells for one in found)]),
        np.concatenate([np.zeros(0, np.int64), *(one.waiting for one in found)]),
    )


@dataclass(frozen=True)
class _Queued:
    """The cells that one channel moved to its outbuf; arrays have shape (n,)."""

    circuit: Ints
    queue_ns: Ints
    outbuf_ns: Ints


def _by_channel(cells: Cells) -> list[_Queued]:
    channel, circuit = cells.circuits()
    keep = (cells.direction == INWARD) & (cells.queue_ns != NEVER) & (cells.outbuf_ns != NEVER)
    order = np.flatnonzero(keep)
    order = order[np.argsort(channel[order], kind="stable")]
    edges = np.flatnonzero(np.diff(channel[order])) + 1
    return [
        _Queued(circuit[own], cells.queue_ns[own], cells.outbuf_ns[own])
        for own in np.split(order, edges)
        if own.size
    ]


def _of_channel(own: _Queued, begin_ns: int, end_ns: int) -> Served:
    instants, cells = np.unique(own.outbuf_ns, return_counts=True)
    starts_ns, ends_ns = _waits(own)
    # A circuit waits from its first cell's coming until its last one's going, and both count.
    waiting = np.searchsorted(np.sort(starts_ns), instants, "right") - np.searchsorted(
        np.sort(ends_ns), instants, "left"
    )
    inside = (instants >= begin_ns) & (instants < end_ns)
    return Served(cells[inside].astype(np.int64), waiting[inside].astype(np.int64))


def _waits(own: _Queued) -> tuple[Ints, Ints]:
    """When circuits' queues began and ceased to hold cells; each queue is first in, first out."""
    order = np.lexsort((own.outbuf_ns, own.queue_ns, own.circuit))
    circuit, queue_ns, outbuf_ns = (
        column[order] for column in (own.circuit, own.queue_ns, own.outbuf_ns)
    )
    begins = np.ones(order.size, bool)
    begins[1:] = (circuit[1:] != circuit[:-1]) | (queue_ns[1:] > outbuf_ns[:-1])
    ends = np.append(begins[1:], True)
    return queue_ns[begins], outbuf_ns[ends]
