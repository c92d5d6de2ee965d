"""Arrivals at the next relay, waits, and competing circuits, compared with counts by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.arrays import Ints
from analysis.celltrace.arrivals import Arrivals, arrivals
from analysis.celltrace.cell_paths import Relay
from analysis.celltrace.cells import NEVER, Cells, Fate
from analysis.celltrace.events import INWARD, OUTWARD, RECORD, RELAY, RELAY_EARLY, Trace
from analysis.celltrace.queueing import served, waits

ADDRESSES = {"a": "11.0.0.1", "b": "11.0.0.2", "c": "11.0.0.3", "client": "11.0.1.1"}
CREATED2 = 11
NOWHERE = (NEVER, NEVER)


@dataclass(frozen=True)
class Cell:
    """A cell at one relay: where it came from, where it went, and when.

    ``came`` and ``went`` are (channel, circuit ID). Times are nanoseconds.
    """

    went: tuple[int, int] = NOWHERE
    queue: int = NEVER
    outbuf: int = NEVER
    flush: int = NEVER
    came: tuple[int, int] = NOWHERE
    inbuf: int = NEVER
    command: int = RELAY
    direction: int = INWARD


def make_relay(name: str, cells: list[Cell], channels: Mapping[int, str]) -> Relay:
    """Return a relay with these cells, numbered in order. channels: number -> name of the peer."""

    def column(values: Iterable[int]) -> Ints:
        return np.array(list(values), np.int64)

    own = Cells(
        seq=np.arange(1, len(cells) + 1),
        inbuf_ns=column(cell.inbuf for cell in cells),
        recognized_ns=column(NEVER for _ in cells),
        queue_ns=column(cell.queue for cell in cells),
        outbuf_ns=column(cell.outbuf for cell in cells),
        flush_ns=column(cell.flush for cell in cells),
        in_channel=column(cell.came[0] for cell in cells),
        in_circ=column(cell.came[1] for cell in cells),
        out_channel=column(cell.went[0] for cell in cells),
        out_circ=column(cell.went[1] for cell in cells),
        command=column(cell.command for cell in cells),
        direction=column(cell.direction for cell in cells),
        fate=column(int(Fate.RELAYED) for _ in cells),
    )
    trace = Trace(np.zeros(0, RECORD), {n: ADDRESSES.get(peer) for n, peer in channels.items()})
    return Relay(name, name, ADDRESSES[name], trace, own)


def by_name(*relays: Relay) -> dict[str, Relay]:
    return {relay.name: relay for relay in relays}


def pairs(found: Arrivals) -> dict[int, int]:
    return dict(zip(found.seq.tolist(), found.arrived_ns.tolist(), strict=True))


def sent(circ: int, flush: int, channel: int = 1, command: int = RELAY) -> Cell:
    return Cell((channel, circ), 0, 0, flush, command=command)


def came(circ: int, inbuf: int, channel: int = 5, command: int = RELAY) -> Cell:
    return Cell(came=(channel, circ), inbuf=inbuf, command=command, direction=0)


def test_other_commands_are_not_counted_and_relay_early_is() -> None:
    commands = (CREATED2, RELAY_EARLY, RELAY)
    a = make_relay("a", [sent(7, 10 + n, command=c) for n, c in enumerate(commands)], {1: "b"})
    b = make_relay("b", [came(7, 20 + n, command=c) for n, c in enumerate(commands)], {5: "a"})
    found = arrivals(by_name(a, b))["a"]
    assert pairs(found) == {2: 21, 3: 22}
    assert found.channel.tolist() == [1, 1]


def test_a_circuit_id_on_two_connections_of_the_same_relays_is_ambiguous() -> None:
    cells_a, cells_b = [sent(7, 10, 1), sent(8, 10, 2)], [came(7, 20, 6), came(8, 30, 5)]
    a = make_relay("a", cells_a, {1: "b", 2: "b"})
    b = make_relay("b", cells_b, {5: "a", 6: "a"})
    assert pairs(arrivals(by_name(a, b))["a"]) == {1: 20, 2: 30}
    a = make_relay("a", [sent(7, 10, 1), sent(7, 10, 2)], {1: "b", 2: "b"})
    b = make_relay("b", [came(7, 20, 6), came(7, 30, 5)], {5: "a", 6: "a"})
    assert pairs(arrivals(by_name(a, b))["a"]) == {}


def test_a_circuit_whose_cells_come_before_they_left_is_not_followed() -> None:
    a = make_relay("a", [sent(7, 10), sent(7, 25), sent(8, 10)], {1: "b"})
    b = make_relay("b", [came(7, 20), came(7, 24), came(8, 30)], {5: "a"})
    assert pairs(arrivals(by_name(a, b))["a"]) == {3: 30}


@pytest.mark.parametrize("damaged", ["a", "b"])
def test_a_trace_that_lacks_records_is_not_counted_by(damaged: str) -> None:
    both = by_name(
        make_relay("a", [sent(7, 10)], {1: "b"}), make_relay("b", [came(7, 20)], {5: "a"})
    )
    assert pairs(arrivals(both)["a"]) == {1: 20}
    one = both[damaged]
    for trace in (replace(one.trace, malformed=1), replace(one.trace, missing=2)):
        broken = both | {damaged: replace(one, trace=trace)}
        assert pairs(arrivals(broken)["a"]) == {}


Hop = tuple[str, int, str, int, int]
"""Sender and its channel, receiver and its channel, and the circuit."""

HOPS: tuple[Hop, ...] = tuple(
    (sender, at_sender, receiver, at_receiver, circ)
    for sender, at_sender, receiver, at_receiver in (
        ("a", 1, "b", 4), ("b", 4, "a", 1), ("b", 9, "c", 2), ("c", 2, "b", 9), ("a", 3, "c", 8),
    )
    for circ in (100, 200)
)  # fmt: skip
CHANNELS = {"a": {1: "b", 3: "c"}, "b": {4: "a", 9: "c"}, "c": {2: "b", 8: "a"}}

Sent = tuple[Hop, int, int, int, int]
"""A cell's hop, and the times (ns) at which the cell was queued, moved to the outbuf, flushed and
read. A time is NEVER if the event did not occur."""


@st.composite
def traffic(draw: st.DrawFn) -> list[Sent]:
    """Draw cells that cross some hops. The cells of a hop are listed in the order of crossing.

    The receiver may never read the last cells of a hop.
    """
    rows: list[Sent] = []
    for hop in draw(st.lists(st.sampled_from(HOPS), unique=True, max_size=6)):
        count = draw(st.integers(1, 5))
        column = st.lists(st.integers(0, 15), min_size=count, max_size=count)
        steps = [draw(column) for _ in range(4)]
        latency, reads = draw(st.integers(1, 30)), draw(st.integers(0, count))
        queue = outbuf = flush = read = 0
        for n, (more, in_queue, in_outbuf, in_kernel) in enumerate(zip(*steps, strict=True)):
            queue += more
            outbuf = max(outbuf, queue + in_queue)
            flush = max(flush, outbuf + in_outbuf)
            read = max(read, flush + latency + in_kernel)
            rows.append((hop, queue, outbuf, flush, read if n < reads else NEVER))
    return rows


def make_relays(rows: list[Sent]) -> tuple[dict[str, Relay], dict[tuple[str, int], Sent]]:
    """Return the relays through which this traffic passes, and its cells.

    The cells are given as (name of the sending relay, number of the cell there) -> cell.
    """
    seen: dict[str, list[tuple[int, int, Cell, Sent | None]]] = {name: [] for name in CHANNELS}
    for n, row in enumerate(rows):
        (sender, at_sender, receiver, at_receiver, circ), queue, outbuf, flush, read = row
        cell = Cell((at_sender, circ), queue, outbuf, flush)
        seen[sender].append((queue, n, cell, row))
        if read != NEVER:
            seen[receiver].append((read, n, came(circ, read, at_receiver), None))
    relays, by_number = {}, {}
    for name, events in seen.items():
        events.sort(key=lambda event: event[:2])
        relays[name] = make_relay(name, [cell for _, _, cell, _ in events], CHANNELS[name])
        for number, (_, _, _, sent_row) in enumerate(events, 1):
            if sent_row is not None:
                by_number[name, number] = sent_row
    return relays, by_number


@given(traffic())
def test_arrivals_match_a_naive_count(rows: list[Sent]) -> None:
    relays, by_number = make_relays(rows)
    found = {
        (name, seq): read
        for name, own in arrivals(relays).items()
        for seq, read in pairs(own).items()
    }
    assert found == {key: row[4] for key, row in by_number.items() if row[4] != NEVER}


@given(traffic(), st.integers(0, 40), st.integers(0, 40))
def test_waits_match_a_naive_count(rows: list[Sent], begin: int, length: int) -> None:
    relays, by_number = make_relays(rows)
    own = arrivals(relays)
    found = waits(
        [(relay.cells, own[name]) for name, relay in relays.items()],
        begin / 1e9, (begin + length) / 1e9,
    )  # fmt: skip
    least: dict[tuple[str, int], int] = {}
    for (name, _), ((_, channel, *_), _, _, flush, read) in by_number.items():
        if read != NEVER:
            way = (name, channel)
            least[way] = min(least.get(way, 10**9), read - flush)
    by_hand = []
    for (name, _), ((_, channel, *_), queue, outbuf, flush, read) in by_number.items():
        if begin <= queue < begin + length:
            kernel = NEVER if read == NEVER else read - flush - least[name, channel]
            by_hand.append((outbuf - queue, flush - outbuf, kernel))
    assert found.kernel_s is not None
    kernel_ns = np.where(np.isnan(found.kernel_s), NEVER, np.round(found.kernel_s * 1e9))
    columns = (np.round(found.queue_s * 1e9), np.round(found.outbuf_s * 1e9), kernel_ns)
    got = list(zip(*(column.astype(int).tolist() for column in columns), strict=True))
    assert sorted(got) == sorted(by_hand)


def test_which_cells_count() -> None:
    cells = [
        Cell((1, 7), 10, 20, 40),
        Cell((1, 7), 10, 20, 40, direction=OUTWARD),
        Cell((1, 7), 10, 20, 40, command=CREATED2),
        Cell((1, 7), 9, 20, 40),
        Cell((1, 7), 100, 120, 140),
        # Two cells were never flushed: the first one is still in the outbuf, the second one in the
        # queue.
        Cell((1, 7), 10, 20, NEVER),
        Cell((1, 7), 10, NEVER, NEVER),
    ]
    own = make_relay("a", cells, {}).cells
    found = waits([(own, None)], 10e-9, 100e-9)
    assert found.queue_s.tolist() == pytest.approx([10e-9])
    assert found.outbuf_s.tolist() == pytest.approx([20e-9])
    assert found.kernel_s is None
    assert found.unsent == 2


Queued = tuple[int, int, int, int]
"""Channel, circuit, and the times at which a cell enters and leaves the queue, in ns."""


def served_instants(
    rows: list[Queued], begin_s: float = 0, end_s: float = 1, direction: int = INWARD
) -> list[tuple[int, int]]:
    cells = [
        Cell((channel, circ), queue, outbuf, outbuf, direction=direction)
        for channel, circ, queue, outbuf in rows
    ]
    found = served([make_relay("a", cells, {}).cells], begin_s, end_s)
    return list(zip(found.cells.tolist(), found.waiting.tolist(), strict=True))


def test_which_services_count() -> None:
    assert served_instants([(1, 7, 0, NEVER)]) == []
    assert served_instants([(1, 7, 0, 10)], direction=OUTWARD) == []
    second = 10**9
    rows = [(1, 7, 0, 2 * second), (1, 8, 0, second - 1), (1, 9, 0, 3 * second)]
    # Only circuit 7 is served inside the span, at 2 s. Circuit 9 also waits then, although it is
    # served later, at the end of the span.
    assert served_instants(rows, 1, 3) == [(1, 2)]


@st.composite
def queues(draw: st.DrawFn) -> list[Queued]:
    """Draw cells of some circuits. Each circuit is a FIFO queue."""
    rows: list[Queued] = []
    for circuit in range(draw(st.integers(0, 4))):
        count = draw(st.integers(1, 6))
        came = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
        went = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
        pairs = zip(came, went, strict=True)
        rows += [(1 + circuit % 2, circuit, a, max(a, b)) for a, b in pairs]
    return rows


@given(queues())
def test_services_match_a_naive_count(rows: list[Queued]) -> None:
    by_hand: dict[tuple[int, int], tuple[int, set[int]]] = {}
    for channel, at in {(row[0], row[3]) for row in rows}:
        moved = sum(row[0] == channel and row[3] == at for row in rows)
        waiting = {row[1] for row in rows if row[0] == channel and row[2] <= at <= row[3]}
        by_hand[channel, at] = (moved, waiting)
    expected = [(moved, len(waiting)) for _, (moved, waiting) in sorted(by_hand.items())]
    assert served_instants(rows) == expected
