"""A download followed through relays whose traces were made by a small model of them."""

from __future__ import annotations

import pytest
from celltrace_synthetic import CLIENTS, NAMES, NOW_NS, Model
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.celltrace.cell_paths import LEGS, Leg
from analysis.celltrace.cells import Fate


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 6))
def test_the_chain_is_the_one_that_was_made(seed: int, n: int) -> None:
    model = Model(seed)
    made = []
    for _ in range(n):
        client = model.draw.choice(CLIENTS)
        # The same circuit IDs on the two clients' channels: only the pair tells circuits apart.
        circ = model.draw.choice((100, 200)) + (1000 if client == CLIENTS[1] else 0)
        made.append((client, *model.download(client, circ)))
    network = model.network()
    for client, start, first_byte, legs in made:
        chain = network.chain(client, NOW_NS + first_byte, NOW_NS + start)
        assert chain.problem == ""
        assert list(chain.legs) == [
            Leg(number, NAMES[position], NAMES[position].rstrip("1"), position, stages)
            for number, cells in enumerate(legs)
            for position, stages in enumerate(cells)
        ]
        assert len(chain.legs) == 3 * len(LEGS)


def test_a_guard_that_is_not_traced() -> None:
    model = Model(1)
    start, first_byte, _ = model.download(CLIENTS[0], 100)
    chain = model.network(("exit1",)).chain(CLIENTS[0], NOW_NS + first_byte, NOW_NS + start)
    assert chain.legs == ()
    assert chain.problem == "no cell for this client passed a traced guard in its time"


def test_an_exit_that_is_not_traced() -> None:
    model = Model(1)
    start, first_byte, _ = model.download(CLIENTS[0], 100)
    network = model.network(("guard1", "middle1"))
    chain = network.chain(CLIENTS[0], NOW_NS + first_byte, NOW_NS + start)
    assert chain.legs == ()
    assert chain.problem == "the relay where the request ended is not traced"


@pytest.mark.parametrize("relay", [0, 1, 2])
def test_a_lost_event_is_noticed(relay: int) -> None:
    """Without one cell the following ones do not quietly take its place."""
    model = Model(2)
    start, first_byte, _ = model.download(CLIENTS[0], 100)
    rows = model.relays[relay].rows
    # The first cell, BEGIN, leaves no event at this relay.
    model.relays[relay].rows = [row for row in rows if row[1] != 1]
    chain = model.network().chain(CLIENTS[0], NOW_NS + first_byte, NOW_NS + start)
    assert chain.legs == ()
    assert chain.problem


def test_the_model_has_whole_cells() -> None:
    model = Model(3)
    model.download(CLIENTS[0], 100)
    for name, relay in zip(NAMES, model.relays, strict=True):
        fates = relay.traced(name).cells.counts()
        whole = fates[Fate.RELAYED] + fates[Fate.MADE_HERE] + fates[Fate.RECOGNIZED]
        assert whole == sum(fates.values()) == relay.cells
