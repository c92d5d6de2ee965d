"""Metrics of perf clients, circuits and relays, which agree with tornettools' own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from analysis_synthetic import EPOCH, LogWriter, known, make_level
from tornet_synthetic import needs_tornettools, write_tornet_run

from analysis.formats import files
from analysis.formats.byte_marks import PERF_MARKS
from analysis.imports.tornettools import read_plot_data
from analysis.judgement.judging import usual_endpoints
from analysis.measures.catalogue import run_statistics
from analysis.measures.data import ALL, ClassData
from analysis.measures.perf import Circuits, PerfStreams
from analysis.measures.plot_data import CONVERGE_S, plot_data
from analysis.measures.publishing import publish
from analysis.measures.run_data import load_run
from analysis.records.extract import extract
from analysis.records.tgen import perf_table
from analysis.records.tgenlog import TgenLog

LOADS = {"perf-exit": {"timeout_s": 120.0}, "perf-onionservice": {"timeout_s": 120.0}}
LEVEL = make_level(1200.0, 1800.0, 2000.0, classes=LOADS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("perf") / "tornet-1"
    write_tornet_run(made, 1)
    extract(made, made / files.RECORDS)
    return made


@pytest.fixture(scope="module")
def whole(run: Path) -> dict[str, ClassData]:
    return load_run(run / files.RECORDS, LEVEL)


def streams(**columns: Any) -> PerfStreams:
    count = len(columns["end_s"])
    usual: dict[str, Any] = {
        "client": np.array(["a"] * count),
        "success": np.array([True] * count),
        "error": np.array([""] * count),
        "payload_bytes": np.full(count, 51200),
    }
    unknown = {one.name: np.full(count, np.nan) for one in fields(PerfStreams)}
    given = {name: np.asarray(value) for name, value in columns.items()}
    return PerfStreams(**{**unknown, **usual, **given})


def test_a_download_counts_by_its_end_and_only_when_it_completed() -> None:
    some = streams(
        end_s=[9.999999, 10.0, 19.5, 20.0],
        last_byte_s=[1.0, 2.0, 3.0, 4.0],
        success=[True, True, False, True],
        error=["", "", "TIMEOUT", ""],
    )
    inside = some.ended_in(10, 20)
    assert inside.last_bytes_s().tolist() == [2.0]
    assert inside.counts() == (1, 2)
    assert inside.errors() == {"TIMEOUT": 1}
    assert some.last_bytes_s(51200).tolist() == [1.0, 2.0, 4.0]
    assert some.last_bytes_s(2**20).size == 0


def test_goodput_is_between_two_amounts_that_came_at_two_times() -> None:
    some = streams(
        end_s=[1.0] * 4,
        success=[True, True, True, False],
        at_500kib_s=[1.0, 1.0, np.nan, 1.0],
        at_1mib_s=[3.0, 1.0, 2.0, 3.0],
    )
    assert some.goodputs_bytes_per_s("500kib", "1mib").tolist() == [(2**20 - 512_000) / 2]
    assert some.reached("1mib") == 3


def test_downloads_without_a_goodput_are_noted(whole: dict[str, ClassData]) -> None:
    data = whole["perf-exit"]
    perf = known(data.perf)
    name = "perf-exit", "download_goodput_500kib_1mib_p50_bytes_per_s"
    reached = perf.ended_in(data.begin_s, data.end_s).reached("1mib")
    assert run_statistics({"perf-exit": data})[name].reason == ""
    late = np.isfinite(perf.at_1mib_s) & (perf.end_s >= data.begin_s)
    low_s = perf.at_500kib_s.copy()
    low_s[np.flatnonzero(late)[0]] = perf.at_1mib_s[late][0]
    changed = replace(data, perf=replace(perf, at_500kib_s=low_s))
    reason = run_statistics({"perf-exit": changed})[name].reason
    assert reason == f"without 1 of {reached} downloads, which reached both in one log line"


def test_a_circuit_counts_by_when_it_was_built() -> None:
    some = Circuits(
        np.array([5.0, 10.0, 11.0, 12.0, np.nan]),
        np.array([1.0, 2.0, 3.0, 4.0, np.nan]),
        np.array(["built", "built", "failed", "closed", "open"]),
    )
    assert some.build_times_s(10, 20).tolist() == [2.0]
    assert some.counts(10, 20) == (1, 2)


def test_downloads_of_several_sizes_are_compared_by_size(whole: dict[str, ClassData]) -> None:
    found = run_statistics({"perf-exit": whole["perf-exit"]})
    of_class = {(metric, "ewma"): {1: statistic} for (_, metric), statistic in found.items()}
    statistics = {("level", "perf-exit"): of_class}
    assert usual_endpoints("level", statistics, "ewma") == [
        ("perf-exit", "time_to_last_byte_1mib_p50_s"),
        ("perf-exit", "ttfb_p50_s"),
        ("perf-exit", "download_error_rate"),
    ]


def test_metrics_apply_where_the_records_are(whole: dict[str, ClassData]) -> None:
    found = run_statistics(whole)
    for name in ("perf-exit", "perf-onionservice"):
        for metric in ("time_to_last_byte_50kib_p50_s", "download_ttlb_50kib_p50_s"):
            assert found[name, metric].value is not None
        assert found[name, "circuit_build_time_p50_s"].value is not None
    circuits = known(whole["perf-exit"].circuits)
    # tornettools measures times from the command, so its times exclude what precedes the command.
    own = found["perf-exit", "time_to_last_byte_50kib_p50_s"].value
    assert known(own) > known(found["perf-exit", "download_ttlb_50kib_p50_s"].value)
    built = circuits.build_times_s(1200, 1800)
    assert found["perf-exit", "circuit_build_time_p90_s"].value == float(np.quantile(built, 0.9))
    relays = found[ALL, "relay_goodput_bytes_per_s"].value
    assert relays == pytest.approx(3e6, rel=0.05)  # three relays at 0 to 2 MB/s each
    assert ("perf-exit", "relay_goodput_bytes_per_s") not in found


def test_relays_that_were_not_watched_to_the_end_give_no_mean(whole: dict[str, ClassData]) -> None:
    data = whole[ALL]
    relay_bytes = known(data.relay_bytes)
    assert relay_bytes.seen_until_s == 1999.865305
    cut = replace(data, relay_bytes=replace(relay_bytes, seen_until_s=1790.0))
    found = run_statistics({ALL: cut})[ALL, "relay_goodput_bytes_per_s"]
    assert found.value is None
    assert "ends before" in found.reason


def test_failed_downloads_count_as_infinitely_long(whole: dict[str, ClassData]) -> None:
    data = whole["perf-exit"]
    of_size = data.streams.select_size(51200).started_in(1200.0, 1800.0)
    failed = (of_size.outcome != "success").sum()
    assert failed  # without failed downloads the test would check nothing
    times = np.sort(np.where(of_size.outcome == "success", of_size.time_to_last_byte_s, np.inf))
    expected = times[int(np.ceil(0.5 * times.size)) - 1]
    found = run_statistics({"perf-exit": data})["perf-exit", "time_to_last_byte_50kib_p50_s"]
    assert found.value == expected


def test_a_published_pack_has_the_same_values(
    run: Path, whole: dict[str, ClassData], tmp_path: Path
) -> None:
    publish(run / files.RECORDS, [LEVEL], tmp_path / "published")
    published = run_statistics(load_run(tmp_path / "published", LEVEL))
    kept = re.compile("download_|circuit_|time_to_last_byte_50kib|relay_")
    values = {key: one for key, one in run_statistics(whole).items() if kept.search(key[1])}
    assert values
    # A published pack lacks the rows that no metric reads.
    for name in (files.CIRCUITS_TABLE, files.RELAY_BYTES_TABLE):
        every = pq.read_table(run / files.RECORDS / name)
        some = pq.read_table(tmp_path / "published" / name)
        assert some.num_rows < every.num_rows
        assert some.schema.equals(every.schema)
    assert {key: published[key] for key in values} == values


def test_exported_plot_data_can_be_imported(run: Path, tmp_path: Path) -> None:
    for name, content in plot_data(run / files.RECORDS).items():
        (tmp_path / name).write_text(json.dumps(content))
    read = read_plot_data(tmp_path)
    late = LEVEL.model_copy(update={"measured_start_s": float(CONVERGE_S), "measured_end_s": 2e3})
    found = run_statistics(load_run(run / files.RECORDS, late))
    for q, metric in ((0.5, "download_ttlb_50kib_p50_s"), (0.9, "download_ttlb_50kib_p90_s")):
        times = read.values["exit 50 KiB", "download_ttlb"]
        assert found["perf-exit", metric].value == float(np.quantile(times, q))
    failed, total = read.downloads["exit"]
    assert found["perf-exit", "download_error_rate"].value == pytest.approx(failed / total)
    assert found[ALL, "relay_goodput_bytes_per_s"].value == np.mean(
        read.values[ALL, "relay_goodput_bytes_per_s"]
    )


def in_any_order(content: Any) -> Any:
    """Return the content with sorted lists. tornettools writes clients and seconds in any order."""
    if isinstance(content, list):
        return sorted(map(in_any_order, content))
    if isinstance(content, dict):
        return {str(key): in_any_order(value) for key, value in content.items()}
    return content


@needs_tornettools
def test_tornettools_makes_the_same_of_the_same_logs(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tornet-1"
    shutil.copytree(run, copy)
    subprocess.run(["tornettools", "parse", str(copy)], check=True, capture_output=True)
    made = plot_data(run / files.RECORDS)
    for name, content in made.items():
        theirs = json.loads((copy / "tornet.plot.data" / name).read_text())
        assert in_any_order(content) == in_any_order(theirs), name
    assert json.loads((copy / "tornet.plot.data/error_rate.exit.json").read_text())["ALL"]


def started_log() -> LogWriter:
    """Return the log of a perf client with one stream that has begun."""
    log = LogWriter("perfclient1exit").start()
    log.create()
    return log


def test_four_mib_are_the_least_payload_that_tgen_prints_as_80_per_cent_of_5_mib() -> None:
    four_mib = PERF_MARKS["at_4mib_s"]
    shares = [f"{100 * payload / (5 << 20):.2f}" for payload in (four_mib - 1, four_mib)]
    assert shares == ["79.99", "80.00"]
    log = started_log()
    log.status(301.0, 0, 5 << 20, four_mib - 1)
    log.status(302.0, 0, 5 << 20, four_mib)
    log.status(303.0, 0, 5 << 20, 5 << 20)
    read = parse(log)
    at_s = {amount: us / 1e6 - EPOCH for amount, us in read.progress[0].marks_us.items()}
    early = dict.fromkeys([1, 320 * 2**10, 512_000, 2**20], 301.0)
    assert at_s == early | {four_mib: 302.0, 5 << 20: 303.0}


def parse(log: LogWriter) -> TgenLog:
    read = TgenLog()
    read.feed(log.text().splitlines())
    return read


def marks(log: LogWriter) -> list[float | None]:
    """Return the times at which a log's only stream reached the amounts of PERF_MARKS.

    Times are in seconds from the stream's start. If an amount was not reached, its time is None.
    """
    read = parse(log)
    stream = {"client": "a", "class": "b", "stream_index": 0}
    table = perf_table([(stream, read.completes[0], read.progress[0])], EPOCH * 10**6)
    (row,) = table.select(list(PERF_MARKS)).to_pylist()
    return list(row.values())


def test_later_status_lines_count_for_amounts_that_the_last_line_lacks() -> None:
    """A stream-success line counts as a status line for the amounts that it shows, as in tgentools.

    Status lines after it count only for larger amounts.
    """
    log = started_log()
    log.status(301.0, 0, 5 << 20, 1)
    log.end(302.0, 0, 300.0, requested=5 << 20, payload=2**20, command_s=0.5)
    log.status(303.0, 0, 5 << 20, 2**20)
    log.status(304.0, 0, 5 << 20, 5 << 20)
    assert marks(log) == [2.0, 2.0, 4.0, 4.0]


def test_a_last_line_before_all_status_lines_gives_no_marks() -> None:
    log = started_log()
    log.end(302.0, 0, 300.0, requested=5 << 20, command_s=0.5)
    log.status(303.0, 0, 5 << 20, 512_000)
    assert marks(log) == [3.0, None, None, None]
