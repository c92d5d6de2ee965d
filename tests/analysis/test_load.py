"""Measures of the offered load, and rates over time compared with naive implementations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from analysis_synthetic import LEVEL, make_streams, write_run
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formats.columns import Outcome
from analysis.measures.catalogue import run_statistics
from analysis.measures.over_time import averaged
from analysis.measures.run_data import load_run
from analysis.measures.service import cumulative_at
from analysis.records.extract import extract

times_s = st.integers(0, 40).map(float)
spans = st.tuples(times_s, times_s, st.sampled_from([Outcome.SUCCESS, Outcome.OPEN]))


@given(st.lists(spans, max_size=20), times_s)
def test_started_streams_are_ended_or_open(
    rows: list[tuple[float, float, Outcome]], time_s: float
) -> None:
    streams = make_streams([(0, min(a, b), max(a, b), outcome) for a, b, outcome in rows])
    found = streams.open_at(time_s)
    begun = [row for row in rows if min(row[:2]) <= time_s]
    over = [row for row in begun if row[2] != Outcome.OPEN and max(row[:2]) <= time_s]
    assert found == len(begun) - len(over)


def test_classes_of_background_load_report_their_open_streams(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 1, 1.5, 3, 2)
    extract(tmp_path / "run", tmp_path / "records")
    usual = run_statistics(load_run(tmp_path / "records", LEVEL))
    assert not [name for _, name in usual if name.startswith("open_streams")]
    web = LEVEL.classes["web"].model_copy(update={"load": True})
    of_streams = load_run(tmp_path / "records", LEVEL)["web"].streams
    level = LEVEL.model_copy(
        update={
            "classes": LEVEL.classes | {"web": web},
            # Some streams are open when the span begins.
            "measured_start_s": float(of_streams.start_s[3]) + 0.1,
            "measured_end_s": float(of_streams.start_s[5]),
        }
    )
    found = run_statistics(load_run(tmp_path / "records", level))
    own = {name: statistic.value for (of, name), statistic in found.items() if of == "web"}
    for name, time_s in (("begin", level.measured_start_s), ("end", level.measured_end_s)):
        count = own[f"open_streams_at_{name}"]
        assert count == sum(
            begin <= time_s and (time_s < end or outcome == Outcome.OPEN)
            for begin, end, outcome in zip(
                of_streams.start_s, of_streams.end_s, of_streams.outcome, strict=True
            )
        )
        assert count
    assert {name for name in own if not name.startswith("open_streams")} == {"goodput_bytes_per_s"}


# ----- rates over time

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
