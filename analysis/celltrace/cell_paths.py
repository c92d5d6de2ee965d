"""Following cells from relay to relay, and the time of a download's first byte in relays.

A circuit has the same circuit ID at both ends of a connection. The addresses of channels show which
connections two relays share. TLS preserves the order of cells, so the n-th RELAY cell that one end
of a hop flushed is the n-th that the other end received.

The first byte of a download waits for a chain of cells, each of which is caused by the previous
one: BEGIN goes from the client to the exit and CONNECTED comes back, then the request goes out and
the first answer comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.arrays import Ints
from analysis.celltrace.cells import NEVER, Cells
from analysis.celltrace.events import INWARD, OUTWARD, RELAY, RELAY_EARLY, Trace

STAGES = ("inbuf to queue", "queue to outbuf", "outbuf to flush")


@dataclass(frozen=True)
class Relay:
    """One traced relay of a run. address: the address that others use for it."""

    name: str
    role: str
    address: str
    trace: Trace
    cells: Cells


class CellsOfCircuit:
    """The RELAY cells of one circuit at one relay, as indices into the relay's Cells.

    ``came`` and ``sent`` contain the received and the flushed cells of each direction, in order. A
    relay numbers cells as they are received or created, and the queue of a circuit is FIFO. Within
    a circuit and direction, the number therefore orders both.
    """

    def __init__(self, cells: Cells, rows: Ints) -> None:
        rows = rows[np.argsort(cells.seq[rows], kind="stable")]
        self.came: dict[int, Ints] = {}
        self.sent: dict[int, Ints] = {}
        for direction in (OUTWARD, INWARD):
            own = rows[cells.direction[rows] == direction]
            self.came[direction] = own[cells.inbuf_ns[own] != NEVER]
            self.sent[direction] = own[cells.flush_ns[own] != NEVER]


_Steps = list[tuple[str, tuple[int, int]]]
"""The relays of a circuit from its guard on, each with its key for the circuit."""

LEGS = ("BEGIN", "CONNECTED", "request", "first answer")


class _LostError(Exception):
    """Raised for a chain that cannot be followed, with the reason."""


def _last_before(rows: Ints, times_ns: Ints, before_ns: int) -> int:
    """Return the last of ``rows`` whose time is before another; the rows' times must ascend."""
    place = int(np.searchsorted(times_ns[rows], before_ns)) - 1
    if place < 0:
        raise _LostError("a cell of the chain is missing at its first relay")
    return int(rows[place])


@dataclass(frozen=True)
class Leg:
    """The stay of one cell in one relay. leg: index into LEGS; position: 0 for the guard."""

    leg: int
    relay: str
    role: str
    position: int
    stage_ns: tuple[int, int, int]


@dataclass(frozen=True)
class Chain:
    """The chain of one download: its stays in relays, or why it could not be followed."""

    legs: tuple[Leg, ...]
    problem: str = ""


class Network:
    """The traced relays of a run, with their circuits linked.

    Relays that are not traced are ignored.
    """

    def __init__(self, relays: Mapping[str, Relay]) -> None:
        self._relays = relays
        self._by_address = {relay.address: name for name, relay in relays.items()}
        self._peer: dict[str, dict[int, str | None]] = {
            name: {number: channel.address for number, channel in relay.trace.channels.items()}
            for name, relay in relays.items()
        }
        self._circuits: dict[str, dict[tuple[int, int], CellsOfCircuit]] = {}
        self._next: dict[str, dict[tuple[int, int], tuple[str, int]]] = {}
        self._by_client: dict[str, list[tuple[str, int, int]]] = {}
        self._links = self._find_links()
        for name, relay in relays.items():
            self._index(name, relay)

    def _index(self, name: str, relay: Relay) -> None:
        cells = relay.cells
        relayed = (cells.command == RELAY) | (cells.command == RELAY_EARLY)
        channel, circ = cells.circuits()
        rows = np.flatnonzero(relayed & (channel != NEVER))
        key = np.stack([channel[rows], circ[rows]], axis=1)
        order = np.lexsort((key[:, 1], key[:, 0]))
        rows, key = rows[order], key[order]
        edges = np.flatnonzero(np.any(key[1:] != key[:-1], axis=1)) + 1
        circuits: dict[tuple[int, int], CellsOfCircuit] = {}
        following: dict[tuple[int, int], tuple[str, int]] = {}
        for group in np.split(rows, edges) if len(rows) else []:
            own = (int(channel[group[0]]), int(circ[group[0]]))
            circuits[own] = CellsOfCircuit(cells, group)
            onward = group[
                (cells.direction[group] == OUTWARD) & (cells.out_channel[group] != NEVER)
            ]
            if len(onward):
                out = int(cells.out_channel[onward[0]])
                peer = self._peer[name].get(out)
                if peer is not None:
                    # The peer's table has its own number for the channel.
                    following[own] = (peer, int(cells.out_circ[onward[0]]))
            address = self._peer[name].get(own[0])
            if address is not None and address not in self._by_address:
                self._by_client.setdefault(address, []).append((name, *own))
        self._circuits[name] = circuits
        self._next[name] = following

    def _find_links(self) -> dict[tuple[str, str], list[int]]:
        """Return (relay, address of its peer) -> its channels to that peer."""
        links: dict[tuple[str, str], list[int]] = {}
        for name, channels in self._peer.items():
            for number, address in channels.items():
                if address is not None:
                    links.setdefault((name, address), []).append(number)
        return links

    def path(self, guard: str, channel: int, circ: int) -> _Steps:
        """Return the traced relays of a circuit from its guard on, with their keys for it."""
        steps: _Steps = [(guard, (channel, circ))]
        while True:
            name, key = steps[-1]
            onward = self._next[name].get(key)
            if onward is None or len(steps) > 8:
                return steps
            address, next_circ = onward
            peer = self._by_address.get(address)
            if peer is None:
                return steps
            own_address = self._relays[name].address
            found = [
                (number, next_circ)
                for number in self._links.get((peer, own_address), [])
                if (number, next_circ) in self._circuits[peer]
            ]
            if len(found) != 1:
                return steps
            steps.append((peer, found[0]))

    def chain(self, client: str, first_byte_ns: int, start_ns: int) -> Chain:
        """Return the chain of cells that the first byte of a download waited for.

        Legs 0 to 3 are BEGIN, CONNECTED, the request, and the first answer. The request is the last
        cell from the client before its first byte. The answer is the first cell that the exit
        created after it received the request. CONNECTED is the last cell that the guard sent before
        the request arrived, and BEGIN the last cell that the exit had received when it created
        CONNECTED.

        Args:
            client: address of the client.
            first_byte_ns: when the client received its first byte, since 1970.
            start_ns: start of the download; earlier cells do not belong to it.
        """
        found = self._find_circuit(client, first_byte_ns, start_ns)
        if found is None:
            return Chain((), "no cell for this client passed a traced guard in its time")
        steps = self.path(*found)
        try:
            return self._follow(steps, first_byte_ns, start_ns)
        except _LostError as lost:
            return Chain((), str(lost))

    def _follow(self, steps: _Steps, first_byte_ns: int, start_ns: int) -> Chain:
        (guard, guard_key), (end, end_key) = steps[0], steps[-1]
        at_guard, at_end = self._circuits[guard][guard_key], self._circuits[end][end_key]
        guard_cells, end_cells = self._relays[guard].cells, self._relays[end].cells
        came = at_guard.came[OUTWARD]
        request = self._pass(
            steps, OUTWARD, _last_before(came, guard_cells.inbuf_ns, first_byte_ns), forwards=True
        )
        if guard_cells.inbuf_ns[request[0]] < start_ns:
            raise _LostError("no request came from the client in its time")
        recognized_ns = int(end_cells.recognized_ns[request[-1]])
        if recognized_ns == NEVER:
            raise _LostError("the relay where the request ended is not traced")
        created = at_end.sent[INWARD]
        created = created[end_cells.inbuf_ns[created] == NEVER]
        later = created[end_cells.queue_ns[created] >= recognized_ns]
        if not len(later):
            raise _LostError("the exit made no answer")
        answer = self._pass(steps, INWARD, int(later[0]), forwards=False)
        if guard_cells.flush_ns[answer[0]] > first_byte_ns:
            raise _LostError("the first answer left the guard after the client had its first byte")
        connected = self._pass(
            steps,
            INWARD,
            _last_before(
                at_guard.sent[INWARD], guard_cells.flush_ns, int(guard_cells.inbuf_ns[request[0]])
            ),
            forwards=True,
        )
        ended = at_end.came[OUTWARD]
        ended = ended[end_cells.recognized_ns[ended] != NEVER]
        begin = self._pass(
            steps,
            OUTWARD,
            _last_before(
                ended, end_cells.recognized_ns, int(end_cells.queue_ns[connected[-1]]) + 1
            ),
            forwards=False,
        )
        if guard_cells.inbuf_ns[begin[0]] < start_ns:
            raise _LostError("its circuit had no BEGIN and CONNECTED in its time")
        return Chain(
            tuple(
                self._leg(self._relays[name], row, position, leg)
                for leg, rows in enumerate((begin, connected, request, answer))
                for position, ((name, _), row) in enumerate(zip(steps, rows, strict=True))
            )
        )

    def _pass(self, steps: _Steps, direction: int, row: int, *, forwards: bool) -> list[int]:
        """Return the row of one cell at each relay of a circuit, in the order of ``steps``.

        row: at the first relay (forwards, away from the client) or at the last one.
        """
        order = steps if forwards else list(reversed(steps))
        # An outward cell goes from the first relay to the last.
        leaves = forwards == (direction == OUTWARD)
        rows = [row]
        for (name, key), (next_name, next_key) in pairwise(order):
            here, there = self._circuits[name][key], self._circuits[next_name][next_key]
            own = here.sent[direction] if leaves else here.came[direction]
            other = there.came[direction] if leaves else there.sent[direction]
            place = int(np.searchsorted(own, rows[-1]))
            if place >= len(own) or own[place] != rows[-1] or place >= len(other):
                raise _LostError("a cell was not found at its next relay")
            sender, receiver = (name, next_name) if leaves else (next_name, name)
            sent_row, came_row = rows[-1], int(other[place])
            if not leaves:
                sent_row, came_row = came_row, sent_row
            sent_ns = self._relays[sender].cells.flush_ns[sent_row]
            if sent_ns > self._relays[receiver].cells.inbuf_ns[came_row]:
                raise _LostError("a cell left a relay after it had come to the next one")
            rows.append(int(other[place]))
        return rows if forwards else rows[::-1]

    def _find_circuit(
        self, client: str, first_byte_ns: int, start_ns: int
    ) -> tuple[str, int, int] | None:
        """Return the client's circuit that delivered the last cell before its first byte."""
        best_ns, best = start_ns, None
        for name, channel, circ in self._by_client.get(client, []):
            flush = self._relays[name].cells.flush_ns[
                self._circuits[name][channel, circ].sent[INWARD]
            ]
            place = int(np.searchsorted(flush, first_byte_ns)) - 1
            if place >= 0 and flush[place] > best_ns:
                best_ns, best = int(flush[place]), (name, channel, circ)
        return best

    def _leg(self, relay: Relay, row: int, position: int, turn: int) -> Leg:
        cells = relay.cells
        inbuf, queue, outbuf, flush, recognized = (
            int(column[row])
            for column in (
                cells.inbuf_ns,
                cells.queue_ns,
                cells.outbuf_ns,
                cells.flush_ns,
                cells.recognized_ns,
            )
        )
        if queue == NEVER:
            # The cell ended here: all of its time is from the inbuf until it was recognized.
            stages = (max(0, recognized - inbuf), 0, 0)
        else:
            first = 0 if inbuf == NEVER else queue - inbuf
            stages = (first, outbuf - queue, flush - outbuf)
        return Leg(turn, relay.name, relay.role, position, stages)
