"""Cells joined from events, statistics of cells, and traced downloads through synthetic relays."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from celltrace_synthetic import CLIENTS, NAMES, NOW_NS, Model, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.celltrace.cell_paths import LEGS, Leg, LostError
from analysis.celltrace.cells import JOINED, MEANINGS, Fate, join
from analysis.celltrace.events import OUTWARD, Event
from analysis.celltrace.statistics import Group, relayed, summarise

# Fate of a cell -> the events of a cell with this fate, as (event, command, direction).
SCRIPTS: dict[Fate, list[tuple[Event, int, int]]] = {
    Fate.RELAYED: [(Event.INBUF, 3, 0), (Event.QUEUE, 3, 2), (Event.OUTBUF, 3, 2),
                   (Event.FLUSH, 3, 2)],
    Fate.MADE_HERE: [(Event.QUEUE, 3, 1), (Event.OUTBUF, 3, 1), (Event.FLUSH, 3, 1)],
    Fate.RECOGNIZED: [(Event.INBUF, 3, 0), (Event.RECOGNIZED, 3, 2)],
    Fate.NO_RELAY_CELL: [(Event.INBUF, 4, 0)],
    Fate.DROPPED: [(Event.INBUF, 3, 0), (Event.QUEUE, 3, 2), (Event.DROPPED, 0, 2)],
    Fate.IN_QUEUE: [(Event.INBUF, 3, 0), (Event.QUEUE, 3, 2)],
    Fate.IN_OUTBUF: [(Event.INBUF, 3, 0), (Event.QUEUE, 3, 2), (Event.OUTBUF, 3, 2)],
    Fate.NOT_TAKEN: [(Event.INBUF, 3, 0)],
    Fate.BEGINNING_MISSING: [(Event.OUTBUF, 3, 2), (Event.FLUSH, 3, 2)],
}  # fmt: skip


def test_every_fate_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Fate) == set(SCRIPTS)
    assert set(JOINED) < set(Fate)


@settings(max_examples=60)
@given(
    fates=st.lists(st.sampled_from(list(Fate)), max_size=40),
    seed=st.integers(0, 2**32),
    sparse=st.booleans(),
)
def test_interleaved_cells_keep_their_fates(fates: list[Fate], seed: int, sparse: bool) -> None:
    """For any order of interleaved events, each event is assigned to its cell, and none is lost."""
    draw = random.Random(seed)
    numbers = [i + 1 if not sparse else 1 + i * 100_000 for i in range(len(fates))]
    waiting = {n: list(SCRIPTS[fate]) for n, fate in zip(numbers, fates, strict=True)}
    rows: list[tuple[int, ...]] = []
    while waiting:
        number = draw.choice(list(waiting))
        event, command, direction = waiting[number].pop(0)
        rows.append((len(rows), number, 5, 6, event, command, direction))
        if not waiting[number]:
            del waiting[number]
    cells = join(trace_of(*rows))
    assert cells.seq.tolist() == numbers
    assert [Fate(fate) for fate in cells.fate] == fates
    assert cells.counts() == {fate: Counter(fates)[fate] for fate in Fate}
    assert sum(cells.counts().values()) == len(fates)
    assert cells.repeated == 0


def test_the_first_of_two_events_counts() -> None:
    rows = [(i, 1, 1, 2, event, 3, 2) for i, event in enumerate([Event.INBUF, Event.QUEUE] * 2)]
    cells = join(trace_of(*rows))
    assert cells.repeated == 2
    assert (cells.queue_ns - cells.inbuf_ns).tolist() == [1]


def test_traffic_of_the_span() -> None:
    rows: list[tuple[int, ...]] = []
    for seq, (begin, command) in enumerate([(0, 3), (10, 3), (10, 9), (20, 3)], start=1):
        for step, event in enumerate((Event.INBUF, Event.QUEUE, Event.OUTBUF, Event.FLUSH)):
            rows.append((begin + step, seq, 1, 2, event, command, 2))
    cells = join(trace_of(*rows))
    since_start = replace(cells, inbuf_ns=cells.inbuf_ns - NOW_NS)
    assert relayed([since_start], 10e-9, 20e-9).time_s.tolist() == [10e-9]


def test_summary_by_hand() -> None:
    summary = summarise(np.array([1.0, 2.0, 3.0, 4.0, 10.0]))
    assert summary.count == 5
    assert (summary.minimum_ms, summary.quartile1_ms, summary.median_ms) == (1.0, 2.0, 3.0)
    assert (summary.mean_ms, summary.quartile3_ms, summary.maximum_ms) == (4.0, 4.0, 10.0)


@settings(max_examples=50)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_circuits_against_a_plain_count(pairs: list[tuple[int, int]]) -> None:
    rows = [
        (0, seq, *pair, event, 3, OUTWARD)
        for seq, pair in enumerate(pairs, start=1)
        for event, _, _ in SCRIPTS[Fate.RELAYED]
    ]
    cells = join(trace_of(*rows))
    # Two relays with the same circuit IDs have different circuits.
    circuits = relayed([cells, cells], 0.0, 9e9)
    plain = Counter(pairs)
    pairs = pairs * 2
    q1, q3 = np.quantile(list(plain.values()) * 2, [0.25, 0.75])
    assert circuits.members(Group.QUIET).tolist() == [plain[pair] <= q1 for pair in pairs]
    assert circuits.members(Group.BUSY).tolist() == [
        plain[pair] >= q3 and plain[pair] > q1 for pair in pairs
    ]
    assert int(circuits.members(Group.BUSIEST).sum()) == max(plain.values())
    assert circuits.members(Group.ALL).all()


# ----- downloads through relays


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 6))
def test_the_chain_is_the_one_that_was_made(seed: int, n: int) -> None:
    model = Model(seed)
    made = []
    for _ in range(n):
        client = model.draw.choice(CLIENTS)
        # The two clients' circuits share a channel between relays, so they need different IDs.
        circ = model.draw.choice((100, 200)) + (1000 if client == CLIENTS[1] else 0)
        made.append((client, *model.download(client, circ)))
    network = model.network()
    for client, start, first_byte, legs in made:
        assert network.chain(client, NOW_NS + first_byte, NOW_NS + start) == tuple(
            Leg(leg, i, NAMES[i], NAMES[i].rstrip("1"), *(ns / 1e9 for ns in stages_ns))
            for leg, cells in zip(LEGS, legs, strict=True)
            for i, stages_ns in enumerate(cells)
        )


@pytest.mark.parametrize(
    ("traced", "problem"),
    [
        (("exit1",), "no cell for this client passed a traced guard in its time"),
        (("guard1", "middle1"), "the relay where the request ended is not traced"),
    ],
)
def test_a_relay_that_is_not_traced(traced: tuple[str, ...], problem: str) -> None:
    model = Model(1)
    start, first_byte, _ = model.download(CLIENTS[0], 100)
    with pytest.raises(LostError, match=problem):
        model.network(traced).chain(CLIENTS[0], NOW_NS + first_byte, NOW_NS + start)


@pytest.mark.parametrize("lost", [set(Event), {Event.OUTBUF}])
@pytest.mark.parametrize("relay", [0, 1])
def test_a_lost_event_is_noticed(relay: int, lost: set[Event]) -> None:
    """If a cell lacks an event, the download has no times. No later cell replaces this cell."""
    model = Model(2)
    start, first_byte, _ = model.download(CLIENTS[0], 100)
    rows = model.relays[relay].rows
    # Remove the lost events of cell 1, which is BEGIN.
    model.relays[relay].rows = [row for row in rows if row[1] != 1 or row[4] not in lost]
    with pytest.raises(LostError):
        model.network().chain(CLIENTS[0], NOW_NS + first_byte, NOW_NS + start)
