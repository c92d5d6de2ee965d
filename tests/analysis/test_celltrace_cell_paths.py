"""A download is followed through relays, whose traces come from a small model of them."""

from __future__ import annotations

import pytest
from celltrace_synthetic import CLIENTS, NAMES, NOW_NS, Model
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.celltrace.cell_paths import LEGS, Leg, LostError
from analysis.celltrace.events import Event


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 6))
def test_the_chain_is_the_one_that_was_made(seed: int, n: int) -> None:
    model = Model(seed)
    made = []
    for _ in range(n):
        client = model.draw.choice(CLIENTS)
        # The two clients' channels have the same circuit IDs: only the pair is unique.
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
    """Later cells do not take the place of a lost one, and a missing time is not counted."""
    model = Model(2)
    start, first_byte, _ = model.download(CLIENTS[0], 100)
    rows = model.relays[relay].rows
    # The first cell is BEGIN.
    model.relays[relay].rows = [row for row in rows if row[1] != 1 or row[4] not in lost]
    with pytest.raises(LostError):
        model.network().chain(CLIENTS[0], NOW_NS + first_byte, NOW_NS + start)
