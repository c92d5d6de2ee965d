"""Competition of circuits for a channel: cells served at one instant, and circuits waiting then.

A relay serves a channel when it moves cells from the queues of circuits to the channel's outbuf. In
simulated time, all cells of one scheduler round have the same time stamp. Only cells towards the
client are included, as the records contain their channel; so are cells that a relay created, such
as an exit from the bytes of a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Ints
from analysis.celltrace.cells import NEVER, Cells
from analysis.celltrace.events import INWARD


@dataclass(frozen=True)
class ServiceInstants:
    """The instants at which channels were served, over some relays; arrays of shape (n,).

    Attributes:
        cells: number of cells that were moved.
        waiting: number of circuits with a cell in the queue just before.
    """

    cells: Ints
    waiting: Ints


def served(relays: Sequence[Cells], begin_s: float, end_s: float) -> ServiceInstants:
    """Return the instants in [begin, end) at which the relays served channels towards clients."""
    span_ns = (round(begin_s * 1e9), round(end_s * 1e9))
    found = [_serve_channel(own, *span_ns) for cells in relays for own in _by_channel(cells)]
    return ServiceInstants(
        np.concatenate([np.zeros(0, np.int64), *(one.cells for one in found)]),
        np.concatenate([np.zeros(0, np.int64), *(one.waiting for one in found)]),
    )


@dataclass(frozen=True)
class _Queued:
    """The cells that one channel moved to its outbuf; arrays of shape (n,)."""

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


def _serve_channel(own: _Queued, begin_ns: int, end_ns: int) -> ServiceInstants:
    instants, cells = np.unique(own.outbuf_ns, return_counts=True)
    starts_ns, ends_ns = _waits(own)
    # A circuit waits from the arrival of its first cell to the departure of its last one,
    # inclusive.
    waiting = np.searchsorted(np.sort(starts_ns), instants, "right") - np.searchsorted(
        np.sort(ends_ns), instants, "left"
    )
    inside = (instants >= begin_ns) & (instants < end_ns)
    return ServiceInstants(cells[inside].astype(np.int64), waiting[inside].astype(np.int64))


def _waits(own: _Queued) -> tuple[Ints, Ints]:
    """Return when the queues of circuits became non-empty and empty; each queue is FIFO."""
    order = np.lexsort((own.outbuf_ns, own.queue_ns, own.circuit))
    circuit, queue_ns, outbuf_ns = (
        column[order] for column in (own.circuit, own.queue_ns, own.outbuf_ns)
    )
    begins = np.ones(order.size, bool)
    begins[1:] = (circuit[1:] != circuit[:-1]) | (queue_ns[1:] > outbuf_ns[:-1])
    ends = np.append(begins[1:], True)
    return queue_ns[begins], outbuf_ns[ends]
