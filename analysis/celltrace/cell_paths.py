"""Paths of cells, and the time that each relay adds to the first byte of a download.

The addresses of the channels' peers show which relays a connection links. Cells are matched at
both ends of a hop as in ``arrivals``.

The first byte of a download waits for a chain of cells, each of which is caused by the previous
one: BEGIN goes from the client to the exit and CONNECTED comes back, then the request goes out and
the first answer comes back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from analysis.arrays import Ints
from analysis.celltrace.cells import NEVER, Cells
from analysis.celltrace.events import INWARD, OUTWARD, RELAY, RELAY_EARLY, Trace

LEGS = ("BEGIN", "CONNECTED", "request", "first answer")
MAX_RELAYS = 9
"""Maximum number of relays of a circuit, more than Tor allows."""

_Key = tuple[int, int]
"""Key of a circuit at one relay: channel and circuit ID on the side towards the client."""
_Steps = list[tuple[str, _Key]]
"""The relays of a circuit from its guard on, each with the circuit's key at this relay."""


@dataclass(frozen=True)
class Relay:
    """One traced relay of a run. address: the relay's IP address in the traces of other relays."""

    name: str
    role: str
    address: str
    trace: Trace
    cells: Cells


@dataclass(frozen=True)
class Leg:
    """The time that one cell spent in each stage inside one relay.

    ``leg`` says which cell of the download it was, as one of ``LEGS``. ``position`` is the index of
    the relay in the circuit; the guard has 0.
    """

    leg: str
    position: int
    relay: str
    role: str
    inbuf_queue_s: float
    queue_outbuf_s: float
    outbuf_flush_s: float


class LostError(Exception):
    """Raised with the reason if the cells of a download cannot be followed."""


@dataclass(frozen=True)
class _Circuit:
    """The RELAY and RELAY_EARLY cells of one circuit at one relay: indices into its ``Cells``.

    Each relay has a separate ``Cells``. It numbers cells when it receives or creates them, and the
    queue of a circuit is FIFO. Within a circuit and direction, cells are therefore received and
    flushed in the order of their numbers.

    Attributes:
        came, sent: direction -> the received and the flushed cells of this direction, in order.
        onward: address of the next relay, and the circuit ID on the connection to it; None at the
            last relay, or if the address is unknown.
    """

    came: dict[int, Ints]
    sent: dict[int, Ints]
    onward: tuple[str, int] | None


class Network:
    """The traced relays of a run, with their circuits linked.

    Relays that are not traced are ignored.
    """

    def __init__(self, relays: Mapping[str, Relay]) -> None:
        self._relays = relays
        self._names = {relay.address: name for name, relay in relays.items()}
        self._circuits = {name: _find_circuits(relay) for name, relay in relays.items()}
        self._channels: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._by_client: dict[str, list[tuple[str, _Key]]] = defaultdict(list)
        for name, relay in relays.items():
            for channel, address in relay.trace.peers.items():
                if address is not None:
                    self._channels[name, address].append(channel)
            for key in self._circuits[name]:
                address = relay.trace.peers.get(key[0])
                if address is not None and address not in self._names:
                    self._by_client[address].append((name, key))

    def chain(self, client: str, first_byte_ns: int, start_ns: int) -> tuple[Leg, ...]:
        """Return a ``Leg`` for each cell that a download's first byte depended on, at each relay.

        The request is the last cell that the guard received from the client before the first byte.
        The answer is the first cell that the exit created after it received the request. CONNECTED
        is the last cell that the guard had sent to the client when the request arrived at the
        guard. BEGIN is the last cell that the exit had received when it created CONNECTED.

        Args:
            client: address of the client.
            first_byte_ns: when the client received the first byte, in nanoseconds since 1970.
            start_ns: start of the download on the same clock; earlier cells do not belong to it.

        Raises:
            LostError: the chain cannot be followed.
        """
        steps = self._steps(*self._first_step(client, first_byte_ns, start_ns))
        (guard, guard_key), (end, end_key) = steps[0], steps[-1]
        at_guard, at_end = self._circuits[guard][guard_key], self._circuits[end][end_key]
        guard_cells, end_cells = self._relays[guard].cells, self._relays[end].cells

        row = _last_before(at_guard.came[OUTWARD], guard_cells.inbuf_ns, first_byte_ns)
        request = self._pass(steps, OUTWARD, row, forwards=True)
        if guard_cells.inbuf_ns[request[0]] < start_ns:
            raise LostError("no request came from the client in its time")
        recognized_ns = int(end_cells.recognized_ns[request[-1]])
        if recognized_ns == NEVER:
            raise LostError("the relay where the request ended is not traced")

        created = at_end.sent[INWARD]
        created = created[end_cells.inbuf_ns[created] == NEVER]
        created = created[end_cells.queue_ns[created] >= recognized_ns]
        if not created.size:
            raise LostError("the exit made no answer")
        answer = self._pass(steps, INWARD, int(created[0]), forwards=False)
        if guard_cells.flush_ns[answer[0]] > first_byte_ns:
            raise LostError("the first answer left the guard after the client had its first byte")

        arrived_ns = int(guard_cells.inbuf_ns[request[0]])
        row = _last_before(at_guard.sent[INWARD], guard_cells.flush_ns, arrived_ns)
        connected = self._pass(steps, INWARD, row, forwards=True)
        ended = at_end.came[OUTWARD]
        ended = ended[end_cells.recognized_ns[ended] != NEVER]
        created_ns = int(end_cells.queue_ns[connected[-1]])
        row = _last_before(ended, end_cells.recognized_ns, created_ns + 1)
        begin = self._pass(steps, OUTWARD, row, forwards=False)
        if guard_cells.inbuf_ns[begin[0]] < start_ns:
            raise LostError("its circuit had no BEGIN and CONNECTED in its time")
        return tuple(
            _leg(name, position, self._relays[relay], row)
            for name, rows in zip(LEGS, (begin, connected, request, answer), strict=True)
            for position, ((relay, _), row) in enumerate(zip(steps, rows, strict=True))
        )

    def _first_step(self, client: str, first_byte_ns: int, start_ns: int) -> tuple[str, _Key]:
        """Return the name of the guard of a download's circuit, and the circuit's key there.

        The circuit is the one of the last cell that a guard sent to the client between the start
        of the download and its first byte.
        """
        best_ns, best = start_ns, None
        for name, key in self._by_client[client]:
            flush_ns = self._relays[name].cells.flush_ns[self._circuits[name][key].sent[INWARD]]
            place = int(np.searchsorted(flush_ns, first_byte_ns)) - 1
            if place >= 0 and flush_ns[place] > best_ns:
                best_ns, best = int(flush_ns[place]), (name, key)
        if best is None:
            raise LostError("no cell for this client passed a traced guard in its time")
        return best

    def _steps(self, guard: str, key: _Key) -> _Steps:
        """Return the traced relays of a circuit from its guard on, and the circuit's key at each.

        key: the circuit's key at the guard.
        """
        steps: _Steps = [(guard, key)]
        while len(steps) < MAX_RELAYS:
            name, key = steps[-1]
            onward = self._circuits[name][key].onward
            peer = self._names.get(onward[0]) if onward is not None else None
            if onward is None or peer is None:
                break
            keys = [(ch, onward[1]) for ch in self._channels[peer, self._relays[name].address]]
            found = [one for one in keys if one in self._circuits[peer]]
            if len(found) != 1:
                break
            steps.append((peer, found[0]))
        return steps

    def _pass(self, steps: _Steps, direction: int, row: int, *, forwards: bool) -> list[int]:
        """Follow a cell through a circuit; return its row in the ``Cells`` of each of ``steps``.

        row: the cell's row at the first relay if ``forwards`` is set, else at the last relay.
        """
        # True if the loop goes in the direction of the cell, so that the cell leaves each relay for
        # the next one of the loop. An outward cell goes from the first relay to the last.
        leaves = forwards == (direction == OUTWARD)
        rows = [row]
        for (name, key), (next_name, next_key) in pairwise(steps if forwards else steps[::-1]):
            here, there = self._circuits[name][key], self._circuits[next_name][next_key]
            own = (here.sent if leaves else here.came)[direction]
            other = (there.came if leaves else there.sent)[direction]
            place = int(np.searchsorted(own, rows[-1]))
            if place >= len(own) or own[place] != rows[-1] or place >= len(other):
                raise LostError("a cell was not found at its next relay")
            ends = [(name, rows[-1]), (next_name, int(other[place]))]
            (sender, sent), (receiver, came) = ends if leaves else ends[::-1]
            sent_ns = self._relays[sender].cells.flush_ns[sent]
            if sent_ns > self._relays[receiver].cells.inbuf_ns[came]:
                raise LostError("a cell left a relay after it had come to the next one")
            rows.append(int(other[place]))
        return rows if forwards else rows[::-1]


def _find_circuits(relay: Relay) -> dict[_Key, _Circuit]:
    cells = relay.cells
    channel, circ = cells.circuits()
    is_relay = (cells.command == RELAY) | (cells.command == RELAY_EARLY)
    rows = np.flatnonzero(is_relay & (channel != NEVER))
    keys = pd.DataFrame({"channel": channel[rows], "circ": circ[rows]})
    groups: Any = keys.groupby(["channel", "circ"]).indices
    circuits = {}
    for key, places in sorted(groups.items()):
        group = rows[places]
        by_way = {way: group[cells.direction[group] == way] for way in (OUTWARD, INWARD)}
        onward = by_way[OUTWARD][cells.out_channel[by_way[OUTWARD]] != NEVER]
        address = relay.trace.peers.get(int(cells.out_channel[onward[0]])) if onward.size else None
        circuits[int(key[0]), int(key[1])] = _Circuit(
            came={way: own[cells.inbuf_ns[own] != NEVER] for way, own in by_way.items()},
            sent={way: own[cells.flush_ns[own] != NEVER] for way, own in by_way.items()},
            # Store the peer's address, because both ends number their channels independently.
            onward=(address, int(cells.out_circ[onward[0]])) if address is not None else None,
        )
    return circuits


def _last_before(rows: Ints, times_ns: Ints, before_ns: int) -> int:
    """Return the last of ``rows``, which have ascending times, whose time is before ``before_ns``.

    times_ns: the time of each cell of the relay.
    """
    place = int(np.searchsorted(times_ns[rows], before_ns)) - 1
    if place < 0:
        raise LostError("a cell of the chain is missing at its first relay")
    return int(rows[place])


def _leg(leg: str, position: int, relay: Relay, row: int) -> Leg:
    cells = relay.cells
    inbuf_ns, queue_ns = int(cells.inbuf_ns[row]), int(cells.queue_ns[row])
    if queue_ns == NEVER:
        # The cell ended at this relay. Its only stage is from the inbuf until it was recognized.
        stages_ns = (max(0, int(cells.recognized_ns[row]) - inbuf_ns), 0, 0)
    else:
        outbuf_ns, flush_ns = int(cells.outbuf_ns[row]), int(cells.flush_ns[row])
        if outbuf_ns == NEVER or flush_ns == NEVER:
            raise LostError("an event of a cell is missing")
        came_ns = queue_ns if inbuf_ns == NEVER else inbuf_ns
        stages_ns = (queue_ns - came_ns, outbuf_ns - queue_ns, flush_ns - outbuf_ns)
    return Leg(leg, position, relay.name, relay.role, *(ns / 1e9 for ns in stages_ns))
