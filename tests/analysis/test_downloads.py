"""Parallel downloads: measures compared with simple models, and tables of download progress."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysis_synthetic import LogWriter, extract_log
from hypothesis import given
from hypothesis import strategies as st

from analysis.measures import downloads


def download(start_s: float, done_s: float, wait_s: float = 0.0) -> downloads.Download:
    """Return a stream of 100 bytes that waits, and then receives the same amount each second."""
    begin_s = start_s + wait_s
    times = np.arange(begin_s + 1, done_s)
    received = 100.0 * (times - begin_s) / (done_s - begin_s)
    return downloads.Download.from_progress(start_s, done_s, done_s, 100.0, times, received)


def test_three_that_starve_the_others() -> None:
    group = [*[download(0, 40, wait_s=20)] * 3, *[download(0, 20)] * 3]
    first = downloads.first_done_s(group)
    assert first == 20
    shares = downloads.shares_at(group, first)
    assert downloads.starvation(shares) == 1
    assert downloads.lead_of_last(shares) == 1
    assert downloads.served(shares) == pytest.approx(3)
    assert downloads.completion_spread_s(group) == 20
    assert max(one.longest_gap_s for one in group) == 21
    middles, index = downloads.jain_over_time(group)
    assert middles == pytest.approx([5, 15, 25, 35])
    assert index == pytest.approx([0.5, 0.5, 1, 1])
    # In reverse order, the last streams have received less than the others.
    assert downloads.lead_of_last(shares[::-1]) == -1


def test_streams_count_in_the_windows_that_they_are_in_progress_in() -> None:
    group = [download(0, 14), download(0, 40), download(3, 40)]
    middles, index = downloads.jain_over_time(group)
    # Windows begin when the youngest stream starts, at 3 s. A stream counts in a window only if it
    # is in progress until the window's end, so the first stream counts only in the first window.
    assert middles == pytest.approx([8, 18, 28])
    assert index[0] < index[1] == pytest.approx(1, abs=0.01)


arrivals = st.lists(
    st.tuples(st.integers(0, 600), st.integers(0, 50)), min_size=0, max_size=30
).map(sorted)


@given(arrivals, st.booleans())
def test_a_download_against_a_plain_model(came: list[tuple[int, int]], done: bool) -> None:
    """A download has the values that follow from a list of arrivals (time in 0.1 s, bytes)."""
    times = [at / 10 for at, _ in came]
    totals = list(np.cumsum([n for _, n in came])) if came else []
    size = float(totals[-1]) if totals and totals[-1] else 1.0
    done_s = 61.0 if done else None
    one = downloads.Download.from_progress(
        0.0, 61.0, done_s, size, np.array(times), np.array(totals, dtype=float)
    )
    for at_s in np.arange(0, 61, 3.7):
        expected = sum(n for at, n in came if at / 10 <= at_s)
        assert one.received_at(np.array([at_s]))[0] == expected
    assert one.received_at(np.array([-1.0, 62.0]))[1] == (size if done else sum(n for _, n in came))
    marks = sorted({0.0, *times, 61.0})
    assert one.longest_gap_s == pytest.approx(max(b - a for a, b in pairwise(marks)))


# ----- progress of downloads, extracted from logs


# Progress of two streams: (seconds after the epoch, number of the stream, bytes received so far).
# The second stream receives nothing from 1.5 s to 7.25 s.
CAME = [(1.0 + 0.03 * k, 0, 1000 * (k + 1)) for k in range(100)]
CAME += [(1.5, 1, 500), (7.25, 1, 900)]


def test_progress_keeps_both_ends_of_gaps_and_a_tenth_of_a_second(tmp_path: Path) -> None:
    log = LogWriter("client1").start(0.25)
    log.create()
    log.create()
    log.heartbeat(0.5, 0)
    for time_s, stream, received in sorted(CAME):
        log.status(time_s, stream, 10**6, received)
    log.heartbeat(8.0, 0)
    report = extract_log(tmp_path, log.text())
    assert report.status_lines == len(CAME)
    table = pd.read_parquet(tmp_path / "out" / "progress.parquet")
    slow = table[table.stream_index == 1]
    assert slow.time_s.tolist() == [1.5, 7.25]
    assert slow.bytes_received.tolist() == [500, 900]
    quick = table[table.stream_index == 0]
    assert 25 < len(quick) < 70
    assert quick.time_s.iloc[[0, -1]].tolist() == pytest.approx([1.0, 3.97])
    assert quick.bytes_received.iloc[-1] == 100_000
    # The table has only points that were logged. Its gaps are shorter than 0.2 s.
    known = {(round(at, 6), n) for at, number, n in CAME if number == 0}
    assert set(zip(quick.time_s.round(6), quick.bytes_received, strict=True)) <= known
    assert np.diff(quick.time_s).max() < 0.2
