"""Rates over time compared with naive implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measures.over_time import averaged
from analysis.measures.service import cumulative_at

INTERVALS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 20), st.integers(0, 1000)), max_size=30
)


def naive_cumulative(t: float, intervals: list[tuple[int, int, int]]) -> float:
    total = 0.0
    for begin, length, amount in intervals:
        if length == 0:
            total += amount if t >= begin else 0
        else:
            total += amount * min(1.0, max(0.0, (t - begin) / length))
    return total


def arrays(intervals: list[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    begin = [b for b, _, _ in intervals]
    end = [b + length for b, length, _ in intervals]
    return begin, end, [amount for _, _, amount in intervals]


@given(INTERVALS)
@settings(max_examples=50)
def test_cumulative_amount(intervals: list[tuple[int, int, int]]) -> None:
    grid = np.arange(-2.0, 125.0, 0.5)
    got = cumulative_at(grid, *arrays(intervals))
    assert got == pytest.approx([naive_cumulative(t, intervals) for t in grid], abs=1e-6)


@given(INTERVALS, st.sampled_from([1.0, 7.0, 60.0]))
@settings(max_examples=50)
def test_averaged(intervals: list[tuple[int, int, int]], window: float) -> None:
    grid = np.arange(-40.0, 160.0, 2.5)
    spans = arrays(intervals)
    got = averaged(grid, lambda times: cumulative_at(times, *spans), window, 0.0, 120.0)
    for t, value in zip(grid, got, strict=True):
        left = min(max(t - window / 2, 0.0), 120.0)
        right = min(max(t + window / 2, 0.0), 120.0)
        if right <= left:
            assert np.isnan(value)
        else:
            amount = naive_cumulative(right, intervals) - naive_cumulative(left, intervals)
            assert value == pytest.approx(amount / (right - left), abs=1e-6)
