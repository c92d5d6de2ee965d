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


@given(
    st.lists(st.booleans(), min_size=1, max_size=30),
    st.integers(0, 10),
    st.integers(1, 30),
    st.one_of(st.none(), st.integers(0, 12)),
)
def test_gaps_are_brute_forces(
    silent: list[bool], start: int, length: int, first: int | None
) -> None:
    end = start + length
    start_s, end_s, first_byte_s = (
        np.array([time_s], dtype=np.float64)
        for time_s in (start, end, float("nan") if first is None else first)
    )
    seconds = np.arange(len(silent), dtype=np.float64)
    amounts = np.where(silent, 0.0, 9.0)
    client = np.ones(len(silent), np.int64)
    (found,) = longest_gaps(
        client[:1], start_s, end_s, first_byte_s, client, seconds, seconds + 1.0, amounts
    )
    waited = length if first is None else min(first, length)
    best = run = 0
    for second in range(start + waited, min(end, len(silent))):
        run = run + 1 if silent[second] else 0
        best = max(best, run)
    assert found == max(waited, best)
