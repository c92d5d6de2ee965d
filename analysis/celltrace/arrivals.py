"""Arrival times of cells at the next traced relay.

A circuit has the same circuit ID at both ends of a connection, and TLS preserves order: the n-th
RELAY cell that one relay flushed on a hop of a circuit is the n-th that its peer read. All hops are
matched with array operations, as full-size traces have tens of millions of cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Bools, Ints
from analysis.celltrace.cell_paths import Relay
from analysis.celltrace.cells import NEVER
from analysis.celltrace.events import RELAY, RELAY_EARLY

CIRC_BITS = 32


@dataclass(frozen=True)
class Arrivals:
    """The cells of one relay whose arrival at the next is known; arrays of shape (n,).

    Attributes:
        seq: the number of the cell at the sending relay, ascending.
        channel: the channel on which that relay sent it.
        arrived_ns: when the next relay read it into its inbuf, on the clock of the cells.
    """

    seq: Ints
    channel: Ints
    arrived_ns: Ints


def arrivals(relays: Mapping[str, Relay]) -> dict[str, Arrivals]:
    """Return the cells that each relay sent to others of these relays, with their arrival times.

    This includes RELAY and RELAY_EARLY cells in both directions. A hop is excluded if counting is
    ambiguous: two relays use one circuit ID on two connections at once, a cell would have arrived
    before it left, or the trace of either relay lacks records.
    """
    whole = [r for r in relays.values() if not (r.trace.malformed or r.trace.missing)]
    place = {relay.address: number for number, relay in enumerate(whole)}
    sent = [_end_of_hops(relay, place, leaving=True) for relay in whole]
    came = [_end_of_hops(relay, place, leaving=False) for relay in whole]
    none = np.zeros(0, np.int64)
    result = {name: Arrivals(none, none, none) for name in relays}
    for number, relay in enumerate(whole):
        found = [
            _matched(relay, sent[number].to(peer), whole[peer], came[peer].to(number))
            for peer in sent[number].peers()
        ]
        if not found:
            continue
        rows, arrived_ns = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(rows)
        rows, cells = rows[order], relay.cells
        result[relay.name] = Arrivals(cells.seq[rows], cells.out_channel[rows], arrived_ns[order])
    return result


@dataclass(frozen=True)
class _Hops:
    """The cells of a relay by hop. The cells of hop i are rows[starts[i]:starts[i] + counts[i]].

    Attributes:
        rows: indices into the relay's Cells, in the order in which cells passed, hop by hop.
        keys: the peer's number and the circuit ID of each hop, ascending.
        starts: start of each hop in ``rows``.
        counts: number of cells of each hop.
    """

    rows: Ints
    keys: Ints
    starts: Ints
    counts: Ints

    def peers(self) -> list[int]:
        """Return the numbers of the relays at the other ends."""
        return [int(peer) for peer in np.unique(self.keys >> CIRC_BITS)]

    def to(self, peer: int) -> _Hops:
        """Return the hops to one relay; their keys are only circuit IDs."""
        low, high = np.searchsorted(self.keys, [peer << CIRC_BITS, (peer + 1) << CIRC_BITS])
        own = slice(low, high)
        circ = self.keys[own] - (peer << CIRC_BITS)
        return _Hops(self.rows, circ, self.starts[own], self.counts[own])

    def where(self, keep: Bools | Ints) -> _Hops:
        """Return some of the hops."""
        return _Hops(self.rows, self.keys[keep], self.starts[keep], self.counts[keep])


def _end_of_hops(relay: Relay, place: Mapping[str, int], *, leaving: bool) -> _Hops:
    """Return the cells that a relay flushed (leaving) or read, by hop, for known peers.

    place: address of a relay -> its number.
    """
    cells = relay.cells
    if leaving:
        passed, channel, circ = cells.flush_ns != NEVER, cells.out_channel, cells.out_circ
    else:
        passed, channel, circ = cells.inbuf_ns != NEVER, cells.in_channel, cells.in_circ
    rows = np.flatnonzero(passed & ((cells.command == RELAY) | (cells.command == RELAY_EARLY)))
    peer = _peers(relay, place, channel[rows])
    rows, peer = rows[peer != NEVER], peer[peer != NEVER]
    key = (peer << CIRC_BITS) | circ[rows]
    # Cells are ordered by number, which within a hop is the order in which they passed.
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if key.size else key
    hops = _Hops(rows, key[starts], starts, np.diff(np.append(starts, key.size)))
    if not starts.size:
        return hops
    cell_channel = channel[rows]
    one = np.minimum.reduceat(cell_channel, starts) == np.maximum.reduceat(cell_channel, starts)
    return hops.where(one)


def _peers(relay: Relay, place: Mapping[str, int], channel: Ints) -> Ints:
    """Return the number of the relay at the other end of each channel, NEVER if unknown."""
    known = {
        number: place[one.address]
        for number, one in relay.trace.channels.items()
        if one.address is not None and one.address in place
    }
    if not known:
        return np.full(channel.shape, NEVER, np.int64)
    numbers = np.array(sorted(known), np.int64)
    peer = np.array([known[number] for number in sorted(known)], np.int64)
    at = np.minimum(np.searchsorted(numbers, channel), numbers.size - 1)
    return np.where(numbers[at] == channel, peer[at], NEVER)


def _matched(sender: Relay, sent: _Hops, receiver: Relay, came: _Hops) -> tuple[Ints, Ints]:
    """Return the sender's rows of cells that the receiver read, and the times, unordered."""
    _, here, there = np.intersect1d(sent.keys, came.keys, assume_unique=True, return_indices=True)
    sent, came = sent.where(here), came.where(there)
    both = np.minimum(sent.counts, came.counts)
    begins = np.cumsum(both) - both
    nth = np.arange(both.sum()) - np.repeat(begins, both)
    rows = sent.rows[np.repeat(sent.starts, both) + nth]
    read = came.rows[np.repeat(came.starts, both) + nth]
    arrived_ns = receiver.cells.inbuf_ns[read]
    if not both.size:
        return rows, arrived_ns
    least_ns = np.minimum.reduceat(arrived_ns - sender.cells.flush_ns[rows], begins)
    sound = np.repeat(least_ns >= 0, both)
    return rows[sound], arrived_ns[sound]
