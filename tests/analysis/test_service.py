"""Fairness: properties of Jain's index, and gaps compared with brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.measures.service import amount_by_client, jain_index, longest_gaps

AMOUNTS = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-100, 1e100, allow_subnormal=False)),
    min_size=1,
    max_size=20,
)
NAN = float("nan")


@given(AMOUNTS, st.floats(1e-50, 1e50))
def test_jain_lies_between_one_nth_and_one_in_any_unit(amounts: list[float], unit: float) -> None:
    index = jain_index(amounts)
    if max(amounts) == 0:
        assert index is None
        return
    assert index is not None
    assert 1 / len(amounts) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index([unit * x for x in amounts]) == pytest.approx(index, rel=1e-6)
    # If the number of clients is doubled by clients that receive nothing, the index is halved.
    assert jain_index([*amounts, *(0.0 for _ in amounts)]) == pytest.approx(index / 2)


def test_amounts_are_cut_at_the_span() -> None:
    client = np.array([3, 3, 7, 7, 9])
    begin = np.array([0.0, 10.0, 0.0, 20.0, 12.0])
    end = np.array([10.0, 20.0, 40.0, 20.0, 12.0])
    amount = np.array([100.0, 60.0, 80.0, 7.0, 5.0])
    got = amount_by_client(client, begin, end, amount, 5.0, 15.0)
    assert got.tolist() == [50 + 30, 20, 5]
    none = np.empty(0)
    assert amount_by_client(client[:0], none, none, none, 0.0, 1.0).size == 0


def gaps(
    streams: list[tuple[int, float, float, float]], beats: dict[int, list[float]]
) -> np.ndarray:
    """Return the longest gap of each stream.

    streams: (client, start, end, time from the start to the first byte or NaN).
    beats: client -> bytes of each second from 0.
    """
    rows = [(c, i, i + 1, n) for c, amounts in beats.items() for i, n in enumerate(amounts)]
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else []
    if not columns:
        columns = [np.empty(0, dtype=np.int64), *(np.empty(0) for _ in range(3))]
    client, start, end, first = (np.array(column) for column in zip(*streams, strict=True))
    return longest_gaps(client, start, end, first, *columns)


@given(
    st.lists(st.booleans(), min_size=1, max_size=30),
    st.integers(0, 10),
    st.integers(1, 30),
    st.one_of(st.none(), st.integers(0, 12)),
)
def test_gaps_are_brute_forces(
    silent: list[bool], start: int, length: int, first: int | None
) -> None:
    amounts = [0.0 if quiet else 9.0 for quiet in silent]
    end = start + length
    found = gaps([(1, start, end, NAN if first is None else first)], {1: amounts})[0]
    waited = length if first is None else min(first, length)
    best = run = 0
    for second in range(start + waited, min(end, len(silent))):
        run = run + 1 if silent[second] else 0
        best = max(best, run)
    assert found == max(waited, best)
