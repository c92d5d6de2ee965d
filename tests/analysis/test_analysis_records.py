"""Extraction of the tables of records from run directories."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_synthetic import (
    KIB,
    PACKERS,
    WEB,
    LogWriter,
    client_log,
    digests,
    extract_log,
    golden_text,
    write_run,
)

from analysis.errors import AnalysisError
from analysis.formats.record_files import ParseReport
from analysis.records.extract import extract


def one_log(tmp_path: Path, text: bytes) -> tuple[ParseReport, list[dict[str, Any]]]:
    report = extract_log(tmp_path, text)
    streams = pd.read_parquet(tmp_path / "out" / "streams.parquet")
    rows = streams.astype(object).where(streams.notna(), None).to_dict("records")
    return report, [{str(key): value for key, value in row.items()} for row in rows]


@pytest.mark.parametrize(
    ("name", "outcomes", "error", "first_byte"),
    [
        ("web-success", ["success"] * 4, None, True),
        ("web-direct", ["success"] * 2, None, True),
        ("web-timeout", ["timeout"] * 2, "TIMEOUT", True),
        ("web-timeout-nobyte", ["timeout"] * 2, "TIMEOUT", False),
        ("web-stall", ["stall"] * 2, "STALLOUT", True),
        ("web-stall-nobyte", ["stall"], "STALLOUT", False),
        ("web-closed", ["closed"] * 2, "READEOF", True),
        ("web-proxy-refused", ["proxy-error"] * 3, "PROXY-CONNECT", False),
        ("web-proxy-status", ["proxy-error"] * 2, "PROXY-STATUS", False),
    ],
)
def test_outcomes_of_real_logs(
    tmp_path: Path, name: str, outcomes: list[str], error: str | None, first_byte: bool
) -> None:
    report, rows = one_log(tmp_path, golden_text(f"{name}.log"))
    assert report.clean
    assert [row["outcome"] for row in rows] == outcomes
    assert [row["stream_index"] for row in rows] == list(range(len(outcomes)))
    for row in rows:
        assert row["error"] == error
        assert row["bytes_requested"] == 320 * KIB
        assert row["server"] == "localhost"
        assert (row["ttfb_from_start_s"] is not None) == first_byte
        done = row["outcome"] == "success"
        assert (row["time_to_320kib_s"] is not None) == done
        assert (row["time_to_last_byte_s"] is not None) == done
        if done:
            assert row["time_to_320kib_s"] == row["time_to_last_byte_s"]
            assert 0 < row["ttfb_from_command_s"] < row["ttfb_from_start_s"]
            assert row["ttfb_from_start_s"] < row["time_to_last_byte_s"]
            assert row["start_s"] + row["time_to_last_byte_s"] <= row["end_s"] + 1e-3


def test_a_real_open_stream(tmp_path: Path) -> None:
    report, rows = one_log(tmp_path, golden_text("bulk-open.log"))
    assert report.streams == {"web": {"success": 2, "open": 1}}
    last = rows[-1]
    assert last["outcome"] == "open"
    # In the log, the end of the second stream precedes the heartbeat that counts a third stream. So
    # the third stream started between these two lines.
    assert rows[1]["end_s"] < last["start_s"] < last["end_s"]
    assert 0 < last["start_resolution_s"] <= 1.01
    assert last["bytes_received"] == 401420
    assert last["bytes_requested"] == KIB * KIB
    assert last["ttfb_from_start_s"] is not None
    assert last["ttfb_resolution_s"] > 0


def test_log_level_info_times_an_open_stream_exactly(tmp_path: Path) -> None:
    report, rows = one_log(tmp_path, golden_text("bulk-info.log.gz"))
    assert report.status_lines > 100
    done, still_open = rows
    assert 0 < done["ttfb_from_start_s"] < done["time_to_320kib_s"] < done["time_to_last_byte_s"]
    assert still_open["outcome"] == "open"
    assert still_open["start_resolution_s"] == 0
    assert still_open["ttfb_resolution_s"] == 0
    assert still_open["time_to_320kib_s"] == pytest.approx(done["time_to_320kib_s"], rel=0.2)


def test_known_rows(tmp_path: Path) -> None:
    log = LogWriter("client1").start()
    log.heartbeat(241.0, 0)
    first = log.create()
    log.heartbeat(242.0, 200_000, 3250)
    log.end(242.5, first, 241.25, command_s=0.25, first_byte_s=0.5, last_byte_s=1.2)
    log.heartbeat(243.0, 127_778)
    second = log.create()
    log.heartbeat(244.0, 12)
    log.heartbeat(245.0, 60)
    log.heartbeat(246.0, 5_000)
    log.heartbeat(247.0, 0)
    log.line(247.25, "the last word")
    assert second == 1
    extract_log(tmp_path, log.text())
    goodput = pd.read_parquet(tmp_path / "out" / "goodput.parquet")
    done, still_open = pd.read_parquet(tmp_path / "out" / "streams.parquet").to_dict("records")
    assert done.items() >= {
        "outcome": "success", "server": "server1", "start_s": 241.25, "ttfb_from_start_s": 0.5,
        "ttfb_from_command_s": 0.25, "time_to_320kib_s": 1.2, "end_s": 242.5,
    }.items()  # fmt: skip
    # The open stream was created between the heartbeats at 243 s and 244 s, and its first kilobyte
    # arrived between those at 245 s and 246 s. Each time is the middle of its interval.
    assert still_open.items() >= {
        "outcome": "open", "start_s": 243.5, "start_resolution_s": 1.0, "ttfb_from_start_s": 2.0,
        "ttfb_resolution_s": 1.0, "bytes_received": 5_072, "end_s": 247.25,
    }.items()  # fmt: skip
    assert goodput.to_dict("list").items() >= {
        "time_s": [241.0, 242.0, 243.0, 244.0, 245.0, 246.0, 247.0], "interval_s": [1.0] * 7,
        "bytes_written": [0, 3250, 0, 0, 0, 0, 0],
        "bytes_read": [0, 200_000, 127_778, 12, 60, 5_000, 0],
        "streams_created": [0, 1, 0, 1, 0, 0, 0], "streams_succeeded": [0, 0, 1, 0, 0, 0, 0],
    }.items()  # fmt: skip


def test_a_last_byte_of_an_error_counts_only_if_nothing_was_to_come(tmp_path: Path) -> None:
    log = LogWriter("client1").start()
    for payload in (1000, 320 * KIB):
        stream = log.create()
        start = 241.0 + stream
        times: Any = {"command_s": 0.1, "first_byte_s": 0.2, "last_byte_s": 0.5}
        log.end(start + 0.75, stream, start, payload=payload, error="TIMEOUT", **times)
    _, rows = one_log(tmp_path, log.text())
    assert [row["outcome"] for row in rows] == ["timeout", "timeout"]
    assert [row["time_to_last_byte_s"] for row in rows] == [None, 0.5]
    assert [row["time_to_320kib_s"] for row in rows] == [None, 0.5]


def test_proxy_stage_timeouts_are_timeouts(tmp_path: Path) -> None:
    log = LogWriter("client1").start()
    for transport_error in ("TIMEOUT", "STALLOUT", "ADDR"):
        stream = log.create()
        proxy: Any = {"error": "PROXY", "transport_error": transport_error}
        log.end(300.0 + stream, stream, 241.0, payload=0, **proxy)
    _, rows = one_log(tmp_path, log.text())
    assert [row["outcome"] for row in rows] == ["timeout", "stall", "proxy-error"]
    assert [row["error"] for row in rows] == ["PROXY-TIMEOUT", "PROXY-STALLOUT", "PROXY-ADDR"]


def test_a_lost_line_does_not_count_as_an_open_stream(tmp_path: Path) -> None:
    text = golden_text("bulk-open.log")
    lines = text.split(b"\n")
    index = next(i for i, line in enumerate(lines) if b"stream-success" in line)
    lines[index] = lines[index][:300]
    report, rows = one_log(tmp_path, b"\n".join(lines))
    assert [row["outcome"] for row in rows] == ["unknown", "success", "open"]
    (problem,) = report.problems
    assert problem.file == "shadow.data/hosts/client1/tgen.1000.stdout"
    assert (problem.malformed_lines, problem.lost_streams) == (1, 1)
    assert problem.examples[0].line == index + 1
    assert report.malformed_lines == 1


def test_streams_that_end_after_the_last_heartbeat_are_not_pending(tmp_path: Path) -> None:
    log = LogWriter("client1").start()
    log.end(240.5, log.create(), 240.0, first_byte_s=0.2, last_byte_s=0.4)
    log.create()
    log.heartbeat(241.0, 400_000)
    log.end(241.5, 1, 240.75, first_byte_s=0.2, last_byte_s=0.4)
    lines = [line for line in log.lines if "[id=0," not in line]
    _, rows = one_log(tmp_path, "\n".join([*lines, ""]).encode())
    assert [(row["stream_id"], row["outcome"]) for row in rows] == [(0, "unknown"), (1, "success")]


def test_bytes_of_ended_streams_do_not_count_for_the_open_one(tmp_path: Path) -> None:
    log = LogWriter("client1").start()
    log.create()
    log.heartbeat(241.0, 300_000)
    log.end(241.5, 0, 240.0, first_byte_s=0.2, last_byte_s=1.4)
    log.create()
    log.heartbeat(242.0, 27_778)
    log.heartbeat(243.0, 100)
    log.heartbeat(244.0, 4_000)
    _, rows = one_log(tmp_path, log.text())
    expected = {"outcome": "open", "start_s": 241.5, "bytes_received": 4_100}
    assert rows[1].items() >= {**expected, "ttfb_from_start_s": 2.0}.items()


def test_logs_with_crlf_read_as_plain_ones(tmp_path: Path) -> None:
    text = golden_text("bulk-open.log")
    _, rows = one_log(tmp_path / "lf", text)
    report, again = one_log(tmp_path / "crlf", text.replace(b"\n", b"\r\n"))
    assert report.clean
    assert again == rows


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_logs_read_as_plain_ones(tmp_path: Path, suffix: str) -> None:
    """A compressor that appends to a file leaves two compressed streams in it."""
    text = client_log("client1", WEB, np.random.default_rng(1))
    extract_log(tmp_path, text)
    plain = digests(tmp_path / "out")
    half = text.index(b"\n", len(text) // 2) + 10
    for parts in ([text], [text[:half], text[half:]]):
        extract_log(tmp_path, b"".join(map(PACKERS[suffix], parts)), suffix)
        assert digests(tmp_path / "out") == plain


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_truncated_compressed_log_gives_its_complete_lines(tmp_path: Path, suffix: str) -> None:
    text = client_log("client1", WEB, np.random.default_rng(1), stop_s=3000.0)
    data = PACKERS[suffix](text)
    report = extract_log(tmp_path, data[: len(data) * 3 // 4], suffix)
    assert report.truncated_files == 1
    assert report.problems[0].damage == "compressed data ends early"
    assert 0 < report.lines < text.count(b"\n")


def test_the_same_logs_give_the_same_bytes(tmp_path: Path) -> None:
    write_run(tmp_path / "run", seed=1)
    extract(tmp_path / "run", tmp_path / "one")
    (tmp_path / "moved").mkdir()
    (tmp_path / "run").rename(tmp_path / "moved" / "elsewhere")
    extract(tmp_path / "moved" / "elsewhere", tmp_path / "two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert set(digests(tmp_path / "one")) == {"streams.parquet", "goodput.parquet", "parse.json"}
    extract(tmp_path / "moved" / "elsewhere", tmp_path / "one")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_missing_and_empty_logs_are_errors_that_name_the_host(tmp_path: Path) -> None:
    write_run(tmp_path / "run", seed=1, web=3)
    host = tmp_path / "run" / "shadow.data" / "hosts" / "web2client"
    log = host / "tgen.1000.stdout"
    text = log.read_bytes()

    def require_error(message: str) -> None:
        with pytest.raises(AnalysisError, match=f"web2client{message}"):
            extract(tmp_path / "run", tmp_path / "out")

    log.write_bytes(b"")
    require_error(" has an empty log")
    log.write_bytes(b"what is this\n")
    require_error(": no line")
    log.unlink()
    require_error(" has no tgen log")
    host.rmdir()
    require_error(" has no directory")
    host.mkdir()
    log.write_bytes(text)
    log.with_name(log.name + ".gz").write_bytes(gzip.compress(text))
    require_error(" has its log .* more than once")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_log_of_another_host_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "run", seed=1, web=3)
    hosts = tmp_path / "run" / "shadow.data" / "hosts"
    one, two = (hosts / name / "tgen.1000.stdout" for name in ("web1client", "web2client"))
    own = one.read_bytes()
    for text in (two.read_bytes(), own + two.read_bytes()):
        one.write_bytes(text)
        with pytest.raises(AnalysisError, match=r"web1client: .* is the log of host web2client"):
            extract(tmp_path / "run", tmp_path / "out")
    # TGENHOSTNAME can set a name that does not belong to any host, so such a name is accepted.
    one.write_bytes(own.replace(b"on host web1client", b"on host alias"))
    assert extract(tmp_path / "run", tmp_path / "out").clean
