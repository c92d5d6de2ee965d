"""Arrivals at the next relay, waits, and competing circuits, compared with counts by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from analysis_synthetic import known
from hypothesis import given
from hypothesis import strategies as st

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
    rows = [
        (cell.inbuf, NEVER, cell.queue, cell.outbuf, cell.flush, *cell.came, *cell.went,
         cell.command, cell.direction, int(Fate.RELAYED))
        for cell in cells
    ]  # fmt: skip
    columns = np.array(rows, np.int64).reshape(-1, 12).T
    own = Cells(np.arange(1, len(cells) + 1), *columns)
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


def test_arrivals_and_waits_by_hand() -> None:
    """The wait in the kernel is the time on the way, minus the least time on the same channel."""
    sent_by_a = [
        Cell((1, 7), 0, 5, 10),
        Cell((1, 8), 2, 6, 12),
        came(7, 19, 1),
        Cell((3, 7), 4, 4, 30),
        Cell((1, 7), 5, 7, 20),
    ]
    relays = by_name(
        make_relay("a", sent_by_a, {1: "b", 3: "c", 9: "client"}),
        make_relay("b", [Cell((4, 7), 0, 0, 9), came(7, 20, 4), came(8, 25, 4)], {4: "a"}),
        # Another pair of relays may use the same circuit ID. The second cell was not sent by a.
        make_relay("c", [came(7, 90, 8), came(9, 95, 8)], {8: "a"}),
    )
    found = arrivals(relays)
    assert {name: pairs(own) for name, own in found.items()} == {
        "a": {1: 20, 2: 25, 4: 90}, "b": {1: 19}, "c": {},
    }  # fmt: skip
    both = waits([(relays[name].cells, found[name]) for name in "ab"], 0.0, 5e-9)
    assert both.queue_s.tolist() == pytest.approx([5e-9, 4e-9, 0.0, 0.0])
    assert both.outbuf_s.tolist() == pytest.approx([5e-9, 6e-9, 26e-9, 9e-9])
    # The shortest way on channel 1 takes 10 ns, also if the cell that took it is not in the span.
    assert known(both.kernel_s).tolist() == pytest.approx([0.0, 3e-9, 0.0, 0.0])
    later = waits([(relays["a"].cells, found["a"])], 2e-9, 1.0)
    assert known(later.kernel_s).tolist() == pytest.approx([3e-9, 0.0, np.nan], nan_ok=True)


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
