"""Downloads side by side: measures against plain models, and from logs to figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysis_synthetic import EPOCH, write_logs
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.formats.record_files import ParseReport
from analysis.formats.study import Level
from analysis.measures.downloads import (
    Download,
    completion_spread_s,
    download,
    first_done_s,
    jain_over_time,
    lead_of_last,
    served,
    shares_at,
    starvation,
)
from analysis.measures.run_data import load_run
from analysis.records.extract import extract


def steady(
    start_s: float, done_s: float | None, size: float = 100.0, end_s: float = 50.0
) -> Download:
    """A stream that gets an equal piece each second."""
    last = end_s if done_s is None else done_s
    times = np.arange(start_s + 1, last)
    # One that does not come to its end is half way there.
    reach = size if done_s is not None else size / 2
    received = reach * (times - start_s) / (last - start_s)
    return download(start_s, last, done_s, size, times, received)


def waiting(start_s: float, until_s: float, done_s: float, size: float = 100.0) -> Download:
    """A stream that gets nothing for a while, and then all evenly."""
    times = np.arange(until_s + 1, done_s)
    received = size * (times - until_s) / (done_s - until_s)
    return download(start_s, done_s, done_s, size, times, received)


def test_equals_are_neither_starved_nor_ahead() -> None:
    group = [steady(0, 20) for _ in range(6)]
    first = first_done_s(group)
    assert first == 20
    shares = shares_at(group, first)
    assert starvation(shares) == 0
    assert lead_of_last(shares) == 0
    assert served(shares) == pytest.approx(6)
    assert completion_spread_s(group) == 0
    _, index = jain_over_time(group)
    assert index == pytest.approx(np.ones(2))


def test_three_that_starve_the_others() -> None:
    group = [waiting(0, 20, 40) for _ in range(3)] + [steady(0, 20) for _ in range(3)]
    first = first_done_s(group)
    assert first == 20
    shares = shares_at(group, first)
    assert starvation(shares) == 1
    assert lead_of_last(shares) == 1
    assert served(shares) == pytest.approx(3)
    assert completion_spread_s(group) == 20
    assert max(one.longest_gap_s for one in group) == 21
    middles, index = jain_over_time(group)
    assert middles == pytest.approx([5, 15, 25, 35])
    assert index == pytest.approx([0.5, 0.5, 1, 1])
    # The other way round the last ones are behind.
    assert lead_of_last(shares[::-1]) == -1


def test_no_others_than_the_last_three() -> None:
    assert lead_of_last(np.array([0.0, 1.0, 1.0])) is None


def test_what_is_not_complete_has_no_spread() -> None:
    assert completion_spread_s([steady(0, 20), steady(0, None)]) is None
    assert first_done_s([steady(0, None)]) is None
    assert steady(0, None).longest_gap_s == 1.0
    # From the last byte on it waits until the observation ends.
    stuck = download(0.0, 50.0, None, 100.0, np.array([5.0]), np.array([10.0]))
    assert stuck.longest_gap_s == 45
    silent = download(0.0, 50.0, None, 100.0, np.empty(0), np.empty(0))
    assert silent.longest_gap_s == 50


def test_streams_count_in_the_windows_that_they_are_in_progress_in() -> None:
    group = [steady(0, 14), steady(0, 40), steady(3, 40)]
    middles, index = jain_over_time(group)
    # Windows begin with the youngest stream; the first one to end is in none after its end.
    assert middles == pytest.approx([8, 18, 28])
    assert index[0] < index[1] == pytest.approx(1, abs=0.01)


amounts = st.lists(st.integers(0, 1000), min_size=2, max_size=12)


@given(amounts)
def test_starvation_and_lead_stay_in_their_range(received: list[int]) -> None:
    shares = np.array(received) / 1000
    assert 0 <= starvation(shares) <= 1
    lead = lead_of_last(shares)
    assert lead is None or -1 <= lead <= 1
    count = served(shares)
    assert count is None or 1 - 1e-9 <= count <= shares.size + 1e-9


arrivals = st.lists(
    st.tuples(st.integers(0, 600), st.integers(0, 50)), min_size=0, max_size=30
).map(sorted)


@given(arrivals, st.booleans())
def test_a_download_against_a_plain_model(came: list[tuple[int, int]], done: bool) -> None:
    """Each arrival is a time in tenths of seconds and bytes; nothing else happens."""
    times = [at / 10 for at, _ in came]
    totals = list(np.cumsum([n for _, n in came])) if came else []
    size = float(totals[-1]) if totals and totals[-1] else 1.0
    done_s = 61.0 if done else None
    one = download(0.0, 61.0, done_s, size, np.array(times), np.array(totals, dtype=float))
    for at_s in np.arange(0, 61, 3.7):
        expected = sum(n for at, n in came if at / 10 <= at_s)
        assert one.received_at(np.array([at_s]))[0] == expected
    assert one.received_at(np.array([-1.0, 62.0]))[1] == (size if done else sum(n for _, n in came))
    marks = sorted({0.0, *times, 61.0})
    assert one.longest_gap_s == pytest.approx(max(b - a for a, b in pairwise(marks)))


# ----- from logs


def status(time_s: float, stream_id: int, received: int) -> str:
    stream = f"id={stream_id},vertexid=stream{stream_id + 1},name=s,peername=p,sendsize=1"
    sizes = f"total-bytes-recv={received},total-bytes-send=1,payload-bytes-recv={received}"
    stamp = f"2000-01-01 00:00:00 {EPOCH + time_s:.6f} [info] [tgen-stream.c:1] [f]"
    return f"{stamp} [stream-status] transport [fd=1] stream [{stream}] bytes [{sizes}]"


def beat(time_s: float, created: int) -> str:
    stamp = f"2000-01-01 00:00:00 {EPOCH + time_s:.6f} [message] [tgen-driver.c:1] [f]"
    return (
        f"{stamp} [driver-heartbeat] [bytes-read=0,bytes-written=0,total-streams-created={created}]"
    )


def log_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


# Two streams, one of which waits; times in seconds after the epoch.
CAME = [(1.0 + 0.03 * k, 0, 1000 * (k + 1)) for k in range(100)]
CAME += [(1.5, 1, 500), (7.25, 1, 900)]
LINES = [beat(0.5, 2), *(status(*one) for one in sorted(CAME)), beat(8.0, 2)]


def progress_of(tmp_path: Path, text: bytes) -> tuple[ParseReport, pd.DataFrame | None]:
    write_logs(tmp_path / "run", {"client1": ("web", text)})
    report = extract(tmp_path / "run", tmp_path / "out")
    table = tmp_path / "out" / "progress.parquet"
    return report, pd.read_parquet(table) if table.exists() else None


def test_progress_keeps_both_ends_of_gaps_and_a_tenth_of_a_second(tmp_path: Path) -> None:
    report, table = progress_of(tmp_path, log_of(LINES))
    assert report.status_lines == len(CAME)
    assert table is not None
    slow = table[table.stream_index == 1]
    assert slow.time_s.tolist() == [1.5, 7.25]
    assert slow.bytes_received.tolist() == [500, 900]
    quick = table[table.stream_index == 0]
    assert 25 < len(quick) < 70
    assert quick.time_s.iloc[[0, -1]].tolist() == pytest.approx([1.0, 3.97])
    assert quick.bytes_received.iloc[-1] == 100_000
    # What is kept is as it was logged, and never far from what was left out.
    known = {(round(at, 6), n) for at, number, n in CAME if number == 0}
    assert set(zip(quick.time_s.round(6), quick.bytes_received, strict=True)) <= known
    assert np.diff(quick.time_s).max() < 0.2


def test_without_status_lines_there_is_no_such_table(tmp_path: Path) -> None:
    progress_of(tmp_path, log_of(LINES))
    report, table = progress_of(tmp_path, log_of([LINES[0], LINES[-1]]))
    assert report.status_lines == 0
    assert table is None


def test_a_log_that_is_cut_loses_its_end_and_nothing_else(tmp_path: Path) -> None:
    whole = log_of(LINES)
    _, before = progress_of(tmp_path, whole)
    cut = whole[: whole.rindex(b"payload-bytes-recv=900")]
    report, table = progress_of(tmp_path, cut)
    assert (report.truncated_files, report.malformed_lines) == (1, 0)
    assert before is not None
    assert table is not None
    # The line that is cut in two was the slow stream's last one.
    assert table[table.stream_index == 1].time_s.tolist() == [1.5]
    pd.testing.assert_frame_equal(table[table.stream_index == 0], before[before.stream_index == 0])


def test_an_empty_log_is_an_error_and_a_corrupt_line_is_counted(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="empty log"):
        progress_of(tmp_path, b"")
    broken = LINES[5].replace("payload-bytes-recv=", "payload-bytes-recv=x")
    report, table = progress_of(tmp_path, log_of([*LINES[:5], broken, *LINES[6:]]))
    assert report.malformed_lines == 1
    assert report.status_lines == len(CAME) - 1
    assert table is not None
    (problem,) = report.problems
    assert "payload-bytes-recv" in problem.examples[0].reason


def test_damaged_records_are_an_error(tmp_path: Path) -> None:
    progress_of(tmp_path, log_of(LINES))
    level = Level(name="a", label="a", measured_start_s=0, measured_end_s=5, stop_s=9, classes={})
    (tmp_path / "out" / "progress.parquet").write_bytes(b"PAR1")
    with pytest.raises(AnalysisError, match="is damaged: "):
        load_run(tmp_path / "out", level)
