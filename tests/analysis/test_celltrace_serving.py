"""Instants at which channels are served: what is moved, and which circuits wait."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.celltrace.cells import NEVER, Cells, Fate
from analysis.celltrace.events import INWARD, OUTWARD, RELAY
from analysis.celltrace.serving import ServiceInstants, served
from analysis.measures.data import Beats, ClassData, Streams
from analysis.measures.families.cells import METRICS

Row = tuple[int, int, int, int]
"""Channel, circuit, time of coming into the queue and of leaving it, in nanoseconds."""


def cells_of(rows: list[Row], direction: int = INWARD) -> Cells:
    table = np.array(rows, np.int64).reshape(-1, 4)
    n = len(table)
    never, channel, circuit = np.full(n, NEVER), table[:, 0], table[:, 1]
    return Cells(
        seq=np.arange(n),
        inbuf_ns=never,
        recognized_ns=never,
        queue_ns=table[:, 2],
        outbuf_ns=table[:, 3],
        flush_ns=table[:, 3],
        dropped_ns=never,
        in_channel=never,
        in_circ=never,
        out_channel=channel,
        out_circ=circuit,
        command=np.full(n, RELAY),
        direction=np.full(n, direction),
        fate=np.full(n, int(Fate.MADE_HERE)),
    )


def instants(found: ServiceInstants) -> list[tuple[int, int]]:
    return list(zip(found.cells.tolist(), found.waiting.tolist(), strict=True))


def test_cells_of_one_instant_and_circuits_that_wait() -> None:
    rows = [(1, 7, 0, 10), (1, 7, 5, 10), (1, 8, 0, 20), (1, 9, 15, 20), (2, 7, 0, 10)]
    # On channel 1: two cells at 10, when 7 and 8 wait; two at 20, when 8 and 9 do.
    assert instants(served([cells_of(rows)], 0, 1)) == [(2, 2), (2, 2), (1, 1)]


def test_a_queue_that_runs_empty_does_not_wait_until_its_next_cell() -> None:
    rows = [(1, 7, 0, 10), (1, 7, 40, 50), (1, 8, 20, 30)]
    assert instants(served([cells_of(rows)], 0, 1)) == [(1, 1), (1, 1), (1, 1)]


def test_what_was_never_sent_or_goes_the_other_way_does_not_count() -> None:
    assert instants(served([cells_of([(1, 7, 0, NEVER)])], 0, 1)) == []
    assert instants(served([cells_of([(1, 7, 0, 10)], OUTWARD)], 0, 1)) == []


def test_instants_outside_of_the_span_do_not_count_and_those_before_it_matter() -> None:
    second = 10**9
    rows = [(1, 7, 0, 2 * second), (1, 8, 0, second - 1), (1, 9, 0, 3 * second)]
    assert instants(served([cells_of(rows)], 1, 3)) == [(1, 2)]


@st.composite
def queues(draw: st.DrawFn) -> list[Row]:
    """Cells of some circuits, each circuit's first in, first out."""
    rows: list[Row] = []
    for circuit in range(draw(st.integers(0, 4))):
        count = draw(st.integers(1, 6))
        came = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
        went = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
        pairs = zip(came, went, strict=True)
        rows += [(1 + circuit % 2, circuit, a, max(a, b)) for a, b in pairs]
    return rows


@given(queues())
def test_the_counts_are_those_of_a_count_by_hand(rows: list[Row]) -> None:
    by_hand: dict[tuple[int, int], tuple[int, set[int]]] = {}
    for channel, at in {(row[0], row[3]) for row in rows}:
        moved = sum(row[0] == channel and row[3] == at for row in rows)
        waits = {row[1] for row in rows if row[0] == channel and row[2] <= at <= row[3]}
        by_hand[channel, at] = (moved, waits)
    found = instants(served([cells_of(rows)], 0, 1))
    assert found == [(moved, len(waits)) for _, (moved, waits) in sorted(by_hand.items())]


def test_metrics_are_means_over_cells() -> None:
    values = defaultdict(float)
    nothing, codes = np.empty(0), np.empty(0, np.int64)
    streams = Streams(codes, nothing, nothing, np.empty(0, np.str_), *([nothing] * 4))
    beats = Beats(codes, nothing, nothing, nothing)
    own = ServiceInstants(np.array([1, 3]), np.array([5, 9]))
    for metric in METRICS:
        if metric.name in ("cells_at_once", "circuits_waiting"):
            with_cells = ClassData(streams, beats, 0.0, 1.0, None, served=own)
            without = ClassData(streams, beats, 0.0, 1.0, None)
            values[metric.name] = metric.compute(with_cells).value or 0.0
            assert metric.compute(without).value is None
    # One cell alone with 5 circuits, three together with 9.
    assert values == {
        "cells_at_once": pytest.approx((1 * 1 + 3 * 3) / 4),
        "circuits_waiting": pytest.approx((5 + 3 * 9) / 4),
    }
