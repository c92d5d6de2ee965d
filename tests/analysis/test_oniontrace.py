"""OnionTrace's log lines, and the tables of records made from them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from analysis_synthetic import make_level
from hypothesis import given, settings
from hypothesis import strategies as st
from tornet_synthetic import CLIENTS, RELAYS, OnionTraceWriter, write_tornet_run

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.measures.catalogue import run_statistics
from analysis.measures.data import ALL
from analysis.measures.run_data import load_run
from analysis.records.extract import extract
from analysis.records.oniontrace import Bytes, Circuit, OnionTraceLog

EPOCH_US = 946684800 * 1_000_000

circuits = st.lists(
    st.tuples(
        st.integers(0, 10**9),  # creation in us
        st.integers(0, 10**8),  # time until the result in us
        st.sampled_from(["built", "failed", "closed", "open"]),
        st.integers(0, 8),  # number of hops
        st.integers(0, 3),  # number of rebuilds
        st.sampled_from(["GENERAL", "HS_CLIENT_REND", "MEASURE_TIMEOUT"]),
    ),
    max_size=8,
)
seconds = st.lists(
    st.tuples(*(st.integers(0, 10**12) for _ in range(3))).map(lambda t: (t[0], t[1], t[2])),
    max_size=8,
)


@given(circuits, seconds)
@settings(max_examples=150)
def test_written_logs_are_read(
    written: list[tuple[int, int, str, int, int, str]], beats: list[tuple[int, int, int]]
) -> None:
    log = OnionTraceWriter("relay1guard").start(0)
    expected = {}
    for number, (created, later, result, hops, again, purpose) in enumerate(written, 1):
        log.circuit(created, number, "LAUNCHED", created, purpose=purpose)
        one = Circuit(number, result, purpose, 0, EPOCH_US + created, EPOCH_US + created)
        if result != "open":
            end = created + later
            reason = "" if result == "built" else "DESTROYED"
            log.circuit(
                end, number, result.upper(), created, hops=hops, purpose=purpose, reason=reason
            )
            one.hops, one.end_us, one.reason = hops, EPOCH_US + end, reason
            if result != "closed":
                for _ in range(again):
                    log.circuit(end + 1, number, "BUILT", created, hops=4)
                one.built_again = again
        expected[number] = one
    for time_us, read, sent in beats:
        log.seconds(time_us, read, sent)
    found = OnionTraceLog()
    found.feed(log.text().split(b"\n")[:-1])
    assert found.malformed == 0
    assert found.circuits == expected
    assert found.seconds == [Bytes(EPOCH_US + t, r, w) for t, r, w in beats]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("BW 1", "grammar"),
        ("BW -1 2", "grammar"),
        ("CIRC x BUILT", "grammar"),
        ("CIRC 1 BUILT", "no TIME_CREATED"),
        ("CIRC 1 BUILD TIME_CREATED=2000-01-01T00:05:00.000000", "not a status"),
        ("CIRC 1 BUILT TIME_CREATED=2000-13-01T00:05:00.000000", "is not a time"),
        ("CIRC 1 BUILT TIME_CREATED=2001-01-01T00:05:00.000000", "later than the line"),
        ("CIRC 1 BUILT TIME_CREATED=1969-01-01T00:05:00.000000", "outside of the run"),
        (f"BW 1 {10**17}", "more than there can be"),
    ],
)
def test_lines_that_no_tor_writes(text: str, why: str) -> None:
    log = OnionTraceWriter("relay1guard").start(0)
    log.event(1, text)
    found = OnionTraceLog()
    found.feed(log.text().split(b"\n")[:-1])
    assert found.malformed == 1
    assert why in found.examples[0].reason
    assert not found.circuits


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("tornet") / "run"
    write_tornet_run(run, 1)
    extract(run, run / files.RECORDS)
    return run


@pytest.fixture
def run(run_directory: Path, tmp_path: Path) -> Path:
    """Return a copy of the run, which a test may change."""
    return Path(shutil.copytree(run_directory, tmp_path / "run"))


def test_tables_match_the_logs(run_directory: Path) -> None:
    records = run_directory / files.RECORDS
    circuits = pq.read_table(records / files.CIRCUITS_TABLE).to_pylist()
    lines = (run_directory / files.HOSTS / "perfclient1exit/oniontrace.1003.stdout").read_text()
    own = [row for row in circuits if row["host"] == "perfclient1exit"]
    assert len(own) == lines.count(" LAUNCHED ")
    assert sum(row["result"] == "failed" for row in own) == lines.count(" FAILED ")
    built = sum(row["result"] == "built" for row in own)
    assert built + sum(row["built_again"] for row in own) == lines.count(" BUILT ")
    assert {row["class"] for row in own} == {"perf-exit"}
    assert all(row["duration_s"] == round(row["end_s"] - row["created_s"], 6) for row in own)
    sent = pq.read_table(records / files.RELAY_BYTES_TABLE)
    assert set(sent["host"].to_pylist()) == set(RELAYS)
    perf = pq.read_table(records / files.PERF_TABLE)
    assert set(perf["client"].to_pylist()) == set(CLIENTS)
    error = {row["error"] for row in perf.to_pylist() if not row["success"]}
    assert error == {"PROXY-TIMEOUT-SUCCESS_OPEN"}


def test_without_roles_there_are_no_such_tables(run_directory: Path, run: Path) -> None:
    (run / files.HOST_ROLES).unlink()
    shutil.rmtree(run / files.RECORDS)
    extract(run, run / files.RECORDS)
    streams = (run / files.RECORDS / files.STREAMS_TABLE).read_bytes()
    assert streams == (run_directory / files.RECORDS / files.STREAMS_TABLE).read_bytes()
    assert not (run / files.RECORDS / files.PERF_TABLE).exists()
    assert not (run / files.RECORDS / files.CIRCUITS_TABLE).exists()


def test_a_log_that_is_missing_or_of_something_else_is_an_error(run: Path, tmp_path: Path) -> None:
    log = run / files.HOSTS / "relay2middle/oniontrace.1003.stdout"
    log.write_text("something else\n")
    with pytest.raises(AnalysisError, match=r"relay2middle.*is not a log of OnionTrace"):
        extract(run, tmp_path / "out")
    for missing in (log, log.parent):
        missing.rename(tmp_path / missing.name)
        with pytest.raises(AnalysisError, match="relay2middle has no log of OnionTrace"):
            extract(run, tmp_path / "out")
    log.parent.mkdir()
    shutil.copy(run / files.HOSTS / "relay1exitguard/oniontrace.1003.stdout", log)
    with pytest.raises(AnalysisError, match=r"relay2middle: .* is the log of host relay1exitguard"):
        extract(run, tmp_path / "out")


def test_damaged_lines_are_counted_and_the_rest_counts(run_directory: Path, run: Path) -> None:
    log = run / files.HOSTS / "relay2middle/oniontrace.1003.stdout"
    text = log.read_bytes()
    first, newline, rest = text.partition(b"\n")
    log.write_bytes(first + newline + b"what is this\n" + rest + b"2000-01-01 00:1")
    report = extract(run, run / files.RECORDS)
    assert report.malformed_lines == 1
    assert [(one.file, one.malformed_lines, one.cut_last_line) for one in report.problems] == [
        ("shadow.data/hosts/relay2middle/oniontrace.1003.stdout", 1, True)
    ]
    own = (run / files.RECORDS / files.RELAY_BYTES_TABLE).read_bytes()
    assert own == (run_directory / files.RECORDS / files.RELAY_BYTES_TABLE).read_bytes()


def test_a_relay_whose_log_ends_early_leaves_no_goodput_of_all_relays(
    run_directory: Path, run: Path
) -> None:
    """Goodput is a sum over all relays, so it has no value if one relay's log ends too early."""
    log = run / files.HOSTS / "relay2middle/oniontrace.1003.stdout"
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    report = extract(run, run / files.RECORDS)
    assert report.classes == {"relay2middle": ""}
    assert report.not_counted() == "cut or damaged logs of OnionTrace on relay2middle"
    assert report.not_counted("perf-exit") == ""
    assert report.damaged_relays() == ["relay2middle"]
    assert replace(report, classes={}).damaged_relays() == []
    level = make_level(0.0, 1000.0, 2000.0)
    whole, partial = (
        run_statistics(load_run(path / files.RECORDS, level))[ALL, "relay_goodput_bytes_per_s"]
        for path in (run_directory, run)
    )
    assert whole.value is not None
    assert partial.value is None
    assert partial.reason == "OnionTrace's log of a relay ends before the measured span does"
