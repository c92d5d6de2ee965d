"""When a cell that one relay handed to its kernel was read at the next traced relay.

A circuit has the same circuit ID at both ends of a connection, and TLS keeps the order: the n-th
RELAY cell that one relay flushed on a circuit's hop is the n-th that its peer read. All hops are
matched as arrays: full-size traces have tens of millions of cells.
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
    """The cells of one relay whose arrival at the next is known, by number; arrays of shape (n,).

    Attributes:
        seq: the cell's number at the relay that sent it, ascending.
        channel: that relay's channel on which it went.
        arrived_ns: when the next relay read it: its inbuf there, on the clock of the cells.
    """

    seq: Ints
    channel: Ints
    arrived_ns: Ints


def arrivals(relays: Mapping[str, Relay]) -> dict[str, Arrivals]:
    """What each relay sent to others of these relays, and when they read it.

    Of RELAY and RELAY_EARLY cells in both directions. A hop is left out where counting cannot tell:
    where two relays use one circuit ID on two connections at once, where a cell would have arrived
    before it left, and where the trace of either lacks records.
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
    """A relay's cells by hop. The cells of hop i are rows[starts[i]:starts[i] + counts[i]].

    Attributes:
        rows: places in the relay's Cells, in the order in which the cells passed, hop by hop.
        keys: the peer's number and the circuit ID of each hop, ascending.
        starts, counts: where its cells are in ``rows``, and how many.
    """

    rows: Ints
    keys: Ints
    starts: Ints
    counts: Ints

    def peers(self) -> list[int]:
        """The relays at the other ends."""
        return [int(peer) for peer in np.unique(self.keys >> CIRC_BITS)]

    def to(self, peer: int) -> _Hops:
        """The hops with one relay at the other end; keys are circuit IDs alone."""
        low, high = np.searchsorted(self.keys, [peer << CIRC_BITS, (peer + 1) << CIRC_BITS])
        own = slice(low, high)
        circ = self.keys[own] - (peer << CIRC_BITS)
        return _Hops(self.rows, circ, self.starts[own], self.counts[own])

    def where(self, keep: Bools | Ints) -> _Hops:
        """Some of the hops."""
        return _Hops(self.rows, self.keys[keep], self.starts[keep], self.counts[keep])


def _end_of_hops(relay: Relay, place: Mapping[str, int], *, leaving: bool) -> _Hops:
    """The cells that a relay flushed (leaving) or read, by hop; to and from known relays alone.

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
    # Cells stand in the order of their numbers, which within a hop is that in which they pass.
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if key.size else key
    hops = _Hops(rows, key[starts], starts, np.diff(np.append(starts, key.size)))
    if not starts.size:
        return hops
    of_cell = channel[rows]
    one = np.minimum.reduceat(of_cell, starts) == np.maximum.reduceat(of_cell, starts)
    return hops.where(one)


def _peers(relay: Relay, place: Mapping[str, int], channel: Ints) -> Ints:
    """The number of the relay at the other end of each channel, NEVER where none is known."""
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
    """The sender's rows of cells that the receiver read, and when; in no order."""
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
