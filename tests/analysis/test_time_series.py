"""Rates over time against naive versions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measures.time_series import averaged, count_by, cumulative_at

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


def test_a_constant_rate_stays_constant_up_to_the_edges() -> None:
    end = np.arange(1.0, 201.0)
    spans = end - 1, end, np.full(200, 500.0)
    grid = np.arange(0.0, 201.0)
    average = averaged(grid, lambda times: cumulative_at(times, *spans), 60.0, 0.0, 200.0)
    assert average == pytest.approx(np.full(201, 500.0))


def test_a_step_is_smeared_over_the_window_and_centred() -> None:
    end = np.arange(1.0, 201.0)
    spans = end - 1, end, np.where(end > 100, 60.0, 0.0)
    grid = [69.0, 70.0, 85.0, 100.0, 130.0]
    average = averaged(grid, lambda times: cumulative_at(times, *spans), 60.0, 0, 200)
    assert average == pytest.approx([0.0, 0.0, 15.0, 30.0, 60.0])


@given(st.lists(st.integers(0, 50), max_size=40))
@settings(max_examples=50)
def test_count_by(times: list[int]) -> None:
    grid = np.arange(0.0, 52.0, 0.5)
    expected = [sum(time <= t for time in times) for t in grid]
    assert count_by(grid, times).tolist() == expected
