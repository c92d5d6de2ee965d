"""Statistics of one run with hand-made streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shipped
from analysis_synthetic import KIB, LEVEL, LogWriter, known, make_streams, write_logs

from analysis.measures.catalogue import METRICS, run_statistics
from analysis.measures.data import ALL, Beats, ClassData, Streams
from analysis.measures.metric import Statistic
from analysis.measures.over_time import throughput_over_time
from analysis.measures.run_data import load_run
from analysis.records.extract import extract

NAN = float("nan")


def streams(*rows: tuple[float, float, str, float, float]) -> Streams:
    """Return streams given as (start, end, outcome, time to first byte, time to 320 KiB)."""
    own = [(client, *row[:3]) for client, row in enumerate(rows)]
    return make_streams(own, [row[3] for row in rows], [row[4] for row in rows])


def of_size(rows: Streams, kib: float) -> Streams:
    return replace(rows, bytes_requested=np.full(rows.start_s.shape, kib * KIB))


def data(rows: Streams) -> ClassData:
    end = np.arange(1.0, 301.0)
    client = np.zeros(end.size, dtype=np.int64)
    beats = Beats(client, end - 1, end, np.where(end <= 150, 100.0, 300.0))
    return ClassData(rows, beats, 100.0, 200.0, 60.0)


ROWS = streams(
    (50.0, 60.0, "success", 1.0, 2.0),  # starts before the span, which is from 100 s to 200 s
    (99.9, 160.0, "timeout", NAN, NAN),  # starts before the span
    (100.0, 104.0, "success", 1.0, 4.0),
    (110.0, 170.5, "timeout", 3.0, NAN),
    (120.0, 180.5, "timeout", NAN, NAN),
    (130.0, 135.0, "stall", 2.0, NAN),
    (140.0, 140.5, "proxy-error", NAN, NAN),
    (150.0, 158.0, "success", 4.0, 8.0),
    (199.9, 207.0, "open", 2.0, NAN),
    (199.5, 200.0, "unknown", NAN, NAN),
    (200.0, 203.0, "success", 0.1, 0.2),  # starts at the end of the span
)


def statistic(class_data: ClassData, name: str) -> Statistic:
    return run_statistics({"web": class_data})["web", name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("streams_started", 8),
        ("success_count", 2),
        ("timeout_count", 2),
        ("stall_count", 1),
        ("proxy_error_count", 1),
        ("closed_count", 0),
        ("open_count", 1),
        ("unknown_count", 1),
        ("timeout_rate", 2 / 4),
        ("failure_rate", 4 / 6),
        # During the span, the rate is 100 B/s for 50 s and 300 B/s for 50 s.
        ("goodput_bytes_per_s", 200.0),
        # Seven streams count. Five have a first byte, after 1, 2, 2, 3 and 4 s. Two fail before it
        # and count as infinitely long. The median is the fourth of the seven times.
        ("ttfb_p50_s", 3.0),
        # Kaplan-Meier censors failed streams when they fail. After the proxy error at 0.5 s, six
        # streams remain, so the curve rises to 1/6 at 1 s and to 3/6 at 2 s.
        ("ttfb_km_p50_s", 2.0),
        # The two streams without a first byte count with the limit, 60 s.
        ("ttfb_restricted_mean_s", (1 + 2 + 2 + 3 + 4 + 60 + 60) / 7),
        ("ttfb_from_command_p50_s", 1.75),
    ],
)
def test_known_values(name: str, value: float) -> None:
    assert statistic(data(ROWS), name).value == pytest.approx(value)


def test_open_streams_are_censored_and_not_failed() -> None:
    rows = streams(
        (100.0, 101.0, "success", 1.0, 1.0),
        (110.0, 115.0, "open", NAN, NAN),
        (120.0, 128.0, "success", 8.0, 8.0),
    )
    # The open stream was censored at 5 s, so its weight goes to the last stream.
    assert statistic(data(rows), "ttfb_p99_s").value == 8.0


def test_the_timeout_probability_uses_how_long_open_streams_were_watched() -> None:
    rows = streams(
        (100.0, 160.0, "timeout", NAN, NAN),
        (110.0, 170.0, "timeout", NAN, NAN),
        (120.0, 130.0, "success", 1.0, 10.0),
        (130.0, 131.0, "proxy-error", NAN, NAN),
        (190.0, 220.0, "open", NAN, NAN),
        (190.0, 220.0, "unknown", NAN, NAN),
    )
    # Five streams count, and after the success and the error three of them remain: the open stream
    # and the two timeouts. The open stream's weight goes to the timeouts.
    assert statistic(data(rows), "timeout_incidence").value == pytest.approx(3 / 5)
    assert statistic(data(rows), "timeout_rate").value == pytest.approx(2 / 3)
    # After an error, a success and a stall, 4 of 7 streams remain, with a weight of 4/7. The open
    # stream is censored at 7.1 s. Three streams remain then, of which one succeeds at 8 s, so the
    # two timeouts have a weight of 4/7 * 2/3.
    assert statistic(data(ROWS), "timeout_incidence").value == pytest.approx(8 / 21)
    assert statistic(data(streams()), "timeout_incidence").value is None


def test_streams_that_failed_on_their_way_may_have_had_320_kib() -> None:
    name = "time_to_320kib_restricted_mean_s"
    untold = Statistic(None, "the log does not contain this time for streams of this size")
    failed = (110.0, 170.0, "timeout", 1.0, NAN)
    rows = streams((100.0, 160.0, "timeout", NAN, NAN), failed)
    assert statistic(data(of_size(rows, 5120)), name) == untold
    # A failed stream that requested only 320 KiB did not receive all of them, so its time counts as
    # the limit, 60 s.
    assert statistic(data(of_size(rows, 320)), name) == Statistic(60.0)
    # A stream without a first byte did not receive 320 KiB of its 5 MiB either.
    assert statistic(
        data(of_size(streams((100.0, 160.0, "timeout", NAN, NAN)), 5120)), name
    ) == Statistic(60.0)
    # Another stream, which began before the span, has a time to 320 KiB, so the logs have status
    # lines. The failed stream has no such time, so it did not receive 320 KiB.
    progressing = streams(failed, (50.0, 110.0, "timeout", 1.0, 6.0))
    assert statistic(data(of_size(progressing, 5120)), name) == Statistic(60.0)


def test_logs_that_end_inside_the_span_have_no_goodput() -> None:
    whole = data(ROWS)
    beats = Beats(*(column[:190] for column in vars(known(whole.beats)).values()))
    cut = replace(whole, beats=beats)
    assert "end before" in statistic(cut, "goodput_bytes_per_s").reason


def test_metric_names_are_unique_and_documented() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    shipped.require_named(names, shipped.METRICS, shipped.METRICS_PAGE)


def test_throughput_over_time() -> None:
    values = throughput_over_time(data(ROWS), np.array([0.0, 50.0, 150.0, 300.0, 400.0]))
    assert values[:4] == pytest.approx([100.0, 100.0, 200.0, 300.0])
    assert np.isnan(values[4])


def test_fairness_of_a_run(tmp_path: Path) -> None:
    logs = {}
    for name, share in (("web1client", 1), ("web2client", 3)):
        log = LogWriter(name).start(400.0)
        start = 430.5
        stream = -1
        for beat in range(401, 1080):
            if beat == 431:
                stream = log.create()
            if beat == 451:
                times: Any = {"command_s": 0.5, "first_byte_s": 2.0, "last_byte_s": 20.0}
                log.end(450.5, stream, start, requested=100 * KIB, **times)
            # The heartbeats at 432 to 436 s and at 451 s have bytes, so the longest gap is from 436
            # to 450 s.
            busy = 432 <= beat <= 436 or beat == 451
            log.heartbeat(float(beat), share * 1000 if busy else 0)
        logs[name] = ("web", log.text())
    write_logs(tmp_path / "run", logs)
    extract(tmp_path / "run", tmp_path / "records")
    found = run_statistics(load_run(tmp_path / "records", LEVEL))
    # Six heartbeats of each client have bytes, and the span lasts ten minutes.
    for name in ("web", ALL):
        assert found[name, "goodput_bytes_per_s"].value == pytest.approx(4 * 6 * 1000 / 600)
    names = ("streams_started", "timeout_rate", "jain_index_clients", "longest_gap_p50_s")
    values = [found["web", name].value for name in (*names, "starved_share")]
    assert values == pytest.approx([2, 0, 16 / (2 * 10), 14, 1])
    assert found["bulk", "starved_share"] == Statistic(None, "no stream with a known outcome")
    assert found["bulk", "jain_index_clients"].reason == "no heartbeat in the logs"
    assert (ALL, "jain_index_clients") not in found
