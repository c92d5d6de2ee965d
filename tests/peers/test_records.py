"""Records extracted from complete, cut, empty and corrupt logs of BitTorrent peers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.formats.record_files import read_parse_report
from analysis.formats.study import Level
from analysis.measures.catalogue import run_statistics
from analysis.measures.run_data import load_run, load_transfer
from analysis.records.extract import extract
from analysis.records.peerlog import PeerLog

EPOCH_US = 946684800 * 1_000_000
SPAN = {"measured_start_s": 1.0, "measured_end_s": 14.0, "stop_s": 14.0}
LEVEL = Level.model_validate({"name": "one", "label": "one", "classes": {"transfer": {}}, **SPAN})


def header(role: str) -> str:
    return (
        f"onionlab-peer 1 role={role} rule=slow-start libtorrent=2.0.8.0 transport=utp size=1000000"
        " piece=262144 sample_us=5000"
    )


def at(time_s: float, line: str) -> str:
    return f"{EPOCH_US + round(time_s * 1e6)} {line}"


def utp(time_s: float, window: int, event: str = "progress", slow_start: int = 1) -> str:
    fields = f"{event} {window} {window - 100} 1048576 0 1000 {slow_start}"
    return at(time_s, f"utp 1 {fields}")


SEED = [
    header("seed"),
    at(2.0, "connected 100.20.0.1:6881"),
    utp(2.1, 3000),
    utp(2.2, 6000),
    # The window does not grow for one second.
    utp(2.7, 6000),
    utp(3.2, 12000),
    utp(3.3, 24000),
    utp(3.35, 24000, "end-by-loss", 0),
    utp(3.5, 20000, "progress", 0),
    utp(9.9, 40000, "end-by-delay", 0),
]
DOWNLOADER = [
    header("fetch"),
    at(1.9, "download 1 start seed:6881"),
    at(2.05, "connected 100.10.0.1:6881"),
    at(2.2, "requests 5 4 0 1"),
    at(2.2, "download 1 first"),
    at(2.2, "received 16384"),
    at(3.0, "beat 100000"),
    at(4.2, "requests 40 39 200000 1"),
    at(6.2, "requests 30 28 210000 0"),
    at(7.0, "received 1000000"),
    at(8.0, "requests 31 28 210000 1"),
    at(9.0, "disconnected 100.10.0.1:6881 End of file"),
    at(9.5, "download 1 done 1000000"),
]


def write_run(folder: Path, seed: bytes, downloader: bytes, ending: str = "") -> Path:
    for host, content in (("seed", seed), ("downloader", downloader)):
        path = folder / "shadow.data" / "hosts" / host / "libtorrent-peer-x.1000.stdout"
        path = path.with_name(path.name + ending)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    peers = {"seed": "seed", "downloader": "downloader", "rtt_s": 0.1, "sample_s": 0.005}
    (folder / "peers.json").write_text(json.dumps(peers))
    (folder / "run.json").write_text(json.dumps({"epoch_unix_s": 946684800, "stop_s": 10.0}))
    return folder


def whole(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", whole(SEED), whole(DOWNLOADER))


def test_every_line_of_whole_logs_is_a_row(run: Path, tmp_path: Path) -> None:
    report = extract(run, tmp_path / "records")
    assert report.clean
    assert report.lines == len(SEED) + len(DOWNLOADER)
    table = pq.read_table(tmp_path / "records" / "peers.parquet")
    assert table.num_rows == len(SEED) + len(DOWNLOADER) - 2
    first = table.to_pylist()[1]
    assert (first["time_s"], first["window_bytes"], first["in_flight_bytes"]) == (2.1, 3000, 2900)
    assert (first["delay_s"], first["slow_start"], first["role"]) == (0.001, True, "seed")


def test_the_same_logs_give_the_same_bytes_also_compressed(run: Path, tmp_path: Path) -> None:
    extract(run, tmp_path / "one")
    packed = write_run(
        tmp_path / "packed", gzip.compress(whole(SEED)), gzip.compress(whole(DOWNLOADER)), ".gz"
    )
    extract(packed, tmp_path / "two")
    for name in ("peers.parquet", "transfer.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_measures_of_a_known_transfer(run: Path, tmp_path: Path) -> None:
    extract(run, tmp_path / "records")
    statistics = run_statistics(load_run(tmp_path / "records", LEVEL))
    values = {name: one.value for (_, name), one in statistics.items()}
    assert values == {
        "slow_start_s": pytest.approx(1.35),
        "request_slow_start_s": pytest.approx(4.2),
        # After the connection, the window grows at 0.2, 1.2 and 1.3 s, and slow start ends at 1.35
        # s. The last of the four gaps, 0.05 s, is half a round trip and just counts as a stall.
        "window_stall_max_s": pytest.approx(1.0),
        "window_stall_p50_s": pytest.approx(0.15),
        "window_long_stalls_s": pytest.approx(1.2),
        "early_rate_bytes_per_s": pytest.approx(200000.0),
    }


def test_a_transfer_that_never_leaves_slow_start_has_no_such_time(tmp_path: Path) -> None:
    seed = [line for line in SEED if "end-by" not in line]
    run = write_run(tmp_path / "run", whole(seed), whole(DOWNLOADER))
    extract(run, tmp_path / "records")
    statistics = run_statistics(load_run(tmp_path / "records", LEVEL))
    left = statistics["transfer", "slow_start_s"]
    assert left.value is None
    assert "until the run's end" in left.reason


def test_a_truncated_log_loses_its_last_line_and_reports_it(run: Path, tmp_path: Path) -> None:
    # The last line loses its last field.
    write_run(run, whole(SEED)[:-3], whole(DOWNLOADER))
    report = extract(run, tmp_path / "records")
    assert (report.truncated_files, report.malformed_lines) == (1, 1)
    assert report.problems[0].cut_last_line
    rows = pq.read_table(tmp_path / "records" / "peers.parquet").num_rows
    assert rows == len(SEED) + len(DOWNLOADER) - 3
    assert read_parse_report(tmp_path / "records" / "parse.json") == report


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("946684802100000 utp 1 progress 3000 2900 1048576 0 1000", "not a line of kind utp"),
        ("946684802100000 utp 1 nothing 3000 2900 1048576 0 1000 1", "not a line of kind utp"),
        ("946684802100000 utp 1 progress -3000 2900 1 0 1000 1", "not a line of kind utp"),
        ("946684802100000 requests 5 4 0 1 ", "not a line of kind requests"),
        ("", "unknown kind"),
        ("\x00\x00\x00", "unknown kind"),
        ("946684801000000 utp 1 progress 3000 2900 1048576 0 1000 1", "the time goes back"),
    ],
)
def test_a_corrupt_line_is_counted_and_shown_and_no_other_is_lost(
    run: Path, tmp_path: Path, broken: str, reason: str
) -> None:
    lines = [*SEED[:3], broken, *SEED[3:]]
    write_run(run, whole(lines), whole(DOWNLOADER))
    report = extract(run, tmp_path / "records")
    assert report.malformed_lines == 1
    example = report.problems[0].examples[0]
    assert (example.line, example.text) == (4, broken)
    assert reason in example.reason
    rows = pq.read_table(tmp_path / "records" / "peers.parquet").num_rows
    assert rows == len(SEED) + len(DOWNLOADER) - 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty log"),
        (b"hello\nworld\n", "does not begin like a peer's log"),
        (whole(SEED[1:]), "does not begin like a peer's log"),
        (whole([header("seed").replace("peer 1", "peer 2"), *SEED[1:]]), "does not begin"),
    ],
)
def test_an_invalid_log_is_an_error(
    run: Path, tmp_path: Path, content: bytes, message: str
) -> None:
    write_run(run, content, whole(DOWNLOADER))
    with pytest.raises(AnalysisError, match=message):
        extract(run, tmp_path / "records")
    assert not (tmp_path / "records" / "parse.json").exists()


def test_a_seed_that_was_never_connected_is_an_error(run: Path, tmp_path: Path) -> None:
    write_run(run, whole([line for line in SEED if "connected" not in line]), whole(DOWNLOADER))
    extract(run, tmp_path / "records")
    with pytest.raises(AnalysisError, match="never connected"):
        load_transfer(tmp_path / "records")


@given(st.lists(st.integers(0, len(SEED) - 2), unique=True), st.binary(max_size=40))
def test_any_line_is_parsed_or_counted(left_out: list[int], junk: bytes) -> None:
    lines = [line.encode() for n, line in enumerate(SEED[1:]) if n not in left_out]
    log = PeerLog()
    log.feed([SEED[0].encode(), *lines, *junk.split(b"\n")])
    assert len(log.entries) + log.malformed + 1 == log.lines
    assert len(log.entries) >= len(lines)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30), st.data())
def test_stalls_are_the_gaps_between_growths(gaps_ms: list[int], data: st.DataObject) -> None:
    """The window grows after each gap. The stalls are the gaps of at least half a round trip."""
    from analysis.measures.peer_transfer import STALL_RTTS, PeerTransfer

    rest_ms = data.draw(st.integers(0, 300))
    times = np.cumsum(gaps_ms) / 1000
    end_s = float(times[-1]) + rest_ms / 1000
    # The first gap begins with the connection, at the time of the first line.
    utp_s = np.concatenate(([0.0], times, [end_s]))
    window = np.concatenate((np.arange(1.0, len(gaps_ms) + 2), [1.0]))
    event = np.array(["progress"] * (len(gaps_ms) + 1) + ["end-by-loss"])
    nothing = np.empty(0)
    trace = PeerTransfer(
        0.1, end_s, utp_s, window, window, event, nothing, nothing, nothing,
        np.empty(0, dtype=np.bool_), nothing, nothing,
    )  # fmt: skip
    expected = [gap for gap in [*gaps_ms, rest_ms] if gap >= 1000 * STALL_RTTS * 0.1]
    assert len(trace.stalls_s) == len(expected) or 50 in [*gaps_ms, rest_ms]
    if 50 not in [*gaps_ms, rest_ms]:
        assert np.allclose(np.sort(trace.stalls_s), np.sort(expected) / 1000)
