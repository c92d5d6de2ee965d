"""A published pack gives exactly the values of its runs' records, except for a few metrics."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from analysis_synthetic import LEVEL, digests, forget_hashes, make_level, write_run
from celltrace_synthetic import write_traced_run
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.test_records import DOWNLOADER, SEED, whole
from peers.test_records import write_run as write_peers

from analysis.errors import AnalysisError
from analysis.figures.catalogue import FIGURES
from analysis.formats import files
from analysis.formats.columns import (
    CODED_STREAMS,
    GAP,
    GOODPUT,
    PROGRESS,
    RECEIVED,
    STREAMS,
    Column,
    Outcome,
    arrow_schema,
)
from analysis.formats.published import TICKS_PER_S, read_published
from analysis.formats.published_streams import MAX_TICKS, PUBLISHED_COLUMNS, decode, encode
from analysis.formats.record_files import ParseReport, write_beside_tables
from analysis.formats.study import ClassLoad, Level
from analysis.formats.tables import TableWriter, read_table
from analysis.formats.whole_run import require_published, require_whole
from analysis.measures.catalogue import run_statistics
from analysis.measures.contention import measure_contention
from analysis.measures.data import ALL
from analysis.measures.metric import NOT_PUBLISHED
from analysis.measures.publishing import publish
from analysis.measures.run_data import load_run
from analysis.records.extract import extract

LEFT_OUT = {f"longest_gap_{quantile}_s" for quantile in ("p50", "p90", "p99")}
LEFT_OUT |= {"jain_index_clients", "starved_share", "ttfb_from_command_p50_s"}
"""Metrics that a published pack lacks, as docs/how-to/publish-runs.md states."""

LOAD_LEFT_OUT = {"open_streams_at_begin", "open_streams_at_end"}
"""Metrics that a published pack also lacks for classes that only add load."""


def require_same(records: Path, small: Path, level: Level) -> dict[tuple[str, str], Any]:
    """Check that ``records`` and ``small`` give bit-identical values and curves.

    ``small`` is the published run. It must lack the metrics that published packs omit. Return the
    values of ``records``.
    """
    whole, published = load_run(records, level), load_run(small, level)
    assert list(whole) == list(published)
    values, again = run_statistics(whole), run_statistics(published)
    assert list(values) == list(again)
    for (class_name, metric), value in values.items():
        expected = NOT_PUBLISHED if metric in LEFT_OUT | LOAD_LEFT_OUT else value
        assert again[class_name, metric] == expected, (class_name, metric)
    assert repr(measure_contention(whole, level)) == repr(measure_contention(published, level))
    # A transfer between peers does not have these figures.
    lines = ("throughput-timeouts", "ttfb-320kib", "quantile-ratios") if ALL in whole else ()
    for name in (*lines, "stream-progress", "starvation-map"):
        one, other = (FIGURES[name].keep(run, level) for run in (whole, published))
        assert repr(as_bits(one)) == repr(as_bits(other)), name
    return values


def as_bits(value: Any) -> Any:
    """Return the data that a figure keeps, with each array replaced by its bytes."""
    if isinstance(value, list):
        return [as_bits(one) for one in value]
    if hasattr(value, "__dict__"):
        return {name: as_bits(one) for name, one in vars(value).items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


# ----- a run with two classes of clients


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return records that were extracted from logs in TGen's format."""
    directory = tmp_path_factory.mktemp("run")
    write_run(directory, 1, 1.5, 3, 2)
    extract(directory, directory / "records-v1")
    return directory / "records-v1"


def test_metrics_and_figures_of_classes_are_the_same(run: Path, tmp_path: Path) -> None:
    level = LEVEL.model_copy(update={"measured_start_s": 421.3, "measured_end_s": 999.999999})
    publish(run, [LEVEL, level], tmp_path / "out")
    require_same(run, tmp_path / "out", LEVEL)
    values = require_same(run, tmp_path / "out", level)
    known = {metric for (_, metric), value in values.items() if value.value is not None}
    # These metrics must have values, because a comparison of missing values proves nothing.
    assert known >= LEFT_OUT | {"goodput_bytes_per_s", "timeout_rate", "time_to_320kib_p50_s"}
    hashes = read_published(tmp_path / "out").records
    assert set(hashes) == {files.STREAMS_TABLE, files.GOODPUT_TABLE}


def test_the_same_records_give_the_same_bytes(run: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        publish(run, [LEVEL], tmp_path / name)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    with pytest.raises(AnalysisError, match="is from a published pack"):
        publish(tmp_path / "a", [LEVEL], tmp_path / "c")


@pytest.fixture(scope="module")
def published_run(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of published records and a manifest."""
    folder = tmp_path_factory.mktemp("published")
    publish(run, [LEVEL], folder / files.RECORDS)
    (folder / files.MANIFEST).write_text("{}")
    load_run(folder / files.RECORDS, LEVEL)
    require_published(folder)
    return folder


@pytest.fixture
def records(published_run: Path, tmp_path: Path) -> Path:
    """Return the records of a copy of the published run, which a test may change."""
    return Path(shutil.copytree(published_run, tmp_path / "copy")) / files.RECORDS


@pytest.mark.parametrize(
    "name", [files.PUBLISHED, files.PUBLISHED_STREAMS, files.PUBLISHED_GOODPUT, files.PARSE_REPORT]
)
@pytest.mark.parametrize("content", [None, b"[]"])
def test_a_missing_or_damaged_file_is_named(
    records: Path, name: str, content: bytes | None
) -> None:
    if content is not None:
        (records / name).write_bytes(content)
    else:
        (records / name).unlink()
    # Without published.json, the folder is read like a full run, but lacks a full run's tables.
    as_whole = files.GOODPUT_TABLE if (name, content) == (files.PUBLISHED, None) else name
    with pytest.raises(AnalysisError, match=as_whole):
        load_run(records, LEVEL)
    with pytest.raises(AnalysisError, match=name):
        require_published(records.parent)


@pytest.mark.parametrize("name", [files.STREAMS_TABLE, "more", "../run.json"])
def test_a_published_run_has_no_other_files(records: Path, name: str) -> None:
    (records / name).write_text("{}")
    with pytest.raises(AnalysisError, match=r"has (files that are not published|other files)"):
        require_published(records.parent)


TableChange = Callable[[pa.Table], pa.Table]


def change_column(name: str, change: Callable[[list[Any]], list[Any]]) -> TableChange:
    def change_table(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        values = pa.array(change(table[name].to_pylist()), field.type)
        return table.set_column(place, field, values)

    return change_table


def all_null(values: list[Any]) -> list[Any]:
    return [None] * len(values)


def negative(values: list[Any]) -> list[Any]:
    return [*values[:82], -4_000_000, *values[83:]]


def change_sign(values: list[Any]) -> list[Any]:
    """Return values of `rounding` that flip the sign bit of all sums, making them negative."""
    return [None if value is None else 2**63 - 1 for value in values]


def first_half(table: pa.Table) -> pa.Table:
    return table.slice(0, table.num_rows // 2)


def duplicate_rows(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


WRONG_COUNT = r"\d+ streams of \w+ \(.*\), and its logs had"
TWICE = "several rows have the same client"
SUMS_FILE, STREAMS_FILE = files.PUBLISHED_GOODPUT, files.PUBLISHED_STREAMS


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (SUMS_FILE, lambda table: table.slice(0, 9), "have other classes"),
        (SUMS_FILE, change_column("time_s", lambda values: values[::-1]), "that do not ascend"),
        (SUMS_FILE, change_column("bytes_read", all_null), "rows without bytes"),
        (SUMS_FILE, change_column("rounding", all_null), "without rounding"),
        (SUMS_FILE, change_column("rounding", change_sign), "bytes that do not ascend"),
        # A negative pause is valid, but the start that is computed from it is not.
        (STREAMS_FILE, change_column("pause_s", negative), r"start_s, row 83: -\S+ is not from 0"),
        (STREAMS_FILE, first_half, WRONG_COUNT),
        (STREAMS_FILE, duplicate_rows, TWICE),
    ],
)
def test_a_changed_table_of_a_published_run_is_refused(
    records: Path, name: str, change: TableChange, message: str
) -> None:
    pq.write_table(change(pq.read_table(records / name)), records / name)
    with pytest.raises(AnalysisError, match=r"published\.json does not have its SHA-256"):
        load_run(records, LEVEL)
    forget_hashes(records / files.PUBLISHED)
    with pytest.raises(AnalysisError, match=message):
        load_run(records, LEVEL)


def move_last_download(clients: list[str]) -> list[str]:
    """Move the last client's last download to another client.

    The other client then has two downloads with the same number.
    """
    other = next(name for name in clients if name.startswith("web") and name != clients[-1])
    return [*clients[:-1], other]


@pytest.mark.parametrize("name", [files.STREAMS_TABLE, files.GOODPUT_TABLE])
@pytest.mark.parametrize(
    "change", [first_half, duplicate_rows, change_column("client", move_last_download)]
)
def test_a_changed_table_of_a_run_is_refused(
    run: Path, tmp_path: Path, name: str, change: TableChange
) -> None:
    records = tmp_path / "run" / files.RECORDS
    shutil.copytree(run, records)
    (tmp_path / "run" / files.MANIFEST).write_text("{}")
    pq.write_table(change(pq.read_table(records / name)), records / name)
    for read in (lambda: load_run(records, LEVEL), lambda: require_whole(tmp_path / "run")):
        with pytest.raises(AnalysisError, match=f"{name} is damaged: parse.json does not have its"):
            read()
    forget_hashes(records / files.PARSE_REPORT)
    if name == files.STREAMS_TABLE:
        for read in (lambda: load_run(records, LEVEL), lambda: require_whole(tmp_path / "run")):
            with pytest.raises(AnalysisError, match=f"{WRONG_COUNT}|{TWICE}"):
                read()


# ----- randomly drawn records


Rows = list[dict[str, Any]]


def zeros(columns: tuple[Column, ...]) -> dict[str, Any]:
    """Return a row with 0 in each column that must have a value."""
    return {column.name: 0 for column in columns if not column.optional}


def class_of(client: str) -> dict[str, str]:
    return {"client": client, "class": "web" if client < "c" else "bulk"}


microseconds = st.integers(0, 40_000_000)
halves = st.integers(0, 80_000_000).map(lambda n: n / 2e6)
seconds = microseconds.map(lambda n: n / 1e6) | halves


@st.composite
def stream_rows(draw: st.DrawFn, times: st.SearchStrategy[float]) -> Rows:
    """Draw rows of streams in the order of records: by client, then by start."""
    rows: Rows = []
    for client in draw(st.lists(st.sampled_from("abcd"), unique=True)):
        starts = sorted(draw(st.lists(times, max_size=5)))
        for index, start_s in enumerate(starts):
            maybe = st.none() | times
            outcome = draw(st.sampled_from(Outcome))
            last_s = draw(times) if outcome is Outcome.SUCCESS else draw(maybe)
            end_s = start_s + (last_s if last_s is not None else draw(times))
            rows.append(
                {
                    **zeros(STREAMS),
                    **class_of(client),
                    "stream_index": index,
                    "start_s": start_s,
                    "ttfb_from_start_s": draw(maybe),
                    "ttfb_from_command_s": draw(maybe),
                    "time_to_320kib_s": draw(maybe),
                    "time_to_last_byte_s": last_s,
                    "bytes_requested": draw(st.none() | st.integers(1, 10**6)),
                    "outcome": outcome.value,
                    # A rounded end must not be before the start.
                    "end_s": max(start_s, np.rint(end_s * 1e6) / 1e6)
                    if draw(st.booleans())
                    else end_s,
                }
            )
    return rows


@st.composite
def beat_rows(draw: st.DrawFn) -> Rows:
    rows: Rows = []
    for client in draw(st.lists(st.sampled_from("abcd"), unique=True)):
        time_s = draw(seconds)
        for interval_s in draw(st.lists(seconds.map(lambda s: s / 8) | st.just(0.0), max_size=6)):
            time_s += interval_s
            some = {"time_s": time_s, "interval_s": interval_s}
            amount = draw(st.integers(0, 10**9))
            rows.append(zeros(GOODPUT) | class_of(client) | some | {"bytes_read": amount})
    return rows


@st.composite
def progress_rows(draw: st.DrawFn, streams: Rows) -> Rows:
    rows: Rows = []
    for stream in streams:
        moments = sorted(draw(st.lists(microseconds, max_size=6)))
        amounts = sorted(draw(st.lists(st.integers(0, 10**6), max_size=len(moments))))
        rows += [
            {name: stream[name] for name in ("client", "class", "stream_index")}
            | {"time_s": stream["start_s"] + moment / 1e6, "bytes_received": amount}
            for moment, amount in zip(moments, amounts, strict=False)
        ]
    return rows


def write_rows(path: Path, columns: tuple[Column, ...], rows: Rows) -> None:
    with TableWriter(path, columns) as table:
        table.add(pa.Table.from_pylist(rows, schema=arrow_schema(columns)))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_records_give_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Streams may overlap or have no end. Clients may lack heartbeats. Spans have any bounds."""
    folder = tmp_path_factory.mktemp("any")
    records, small = folder / "records", folder / "small"
    records.mkdir()
    streams = data.draw(stream_rows(seconds))
    begin_s, end_s = sorted(data.draw(st.lists(halves, min_size=2, max_size=2, unique=True)))
    load = data.draw(st.sampled_from([(), ("web",), ("bulk",), ("web", "bulk")]))
    classes = dict.fromkeys(load, ClassLoad(load=True))
    level = make_level(begin_s, end_s, end_s + 20, classes=classes)
    other = make_level(0.0, 50.0, 60.0, classes=classes)
    write_rows(records / files.STREAMS_TABLE, STREAMS, streams)
    write_rows(records / files.GOODPUT_TABLE, GOODPUT, data.draw(beat_rows()))
    if data.draw(st.booleans()):
        rows = data.draw(progress_rows(streams))
        write_rows(records / files.PROGRESS_TABLE, PROGRESS, rows)
    write_beside_tables(records / files.PARSE_REPORT, ParseReport())
    publish(records, [level, other], small)
    require_same(records, small, level)
    require_same(records, small, other)


quarters = st.integers(0, 10**15).map(lambda n: n / TICKS_PER_S)
anything = st.floats(0, 1e12) | st.just(-0.0)


@settings(max_examples=50, deadline=None)
@given(rows=stream_rows(quarters) | stream_rows(seconds | anything))
def test_streams_are_restored_to_the_bit_or_not_encoded(rows: Rows) -> None:
    table = pa.Table.from_pylist(rows, schema=arrow_schema(STREAMS))
    short = encode(table)
    if short is None:
        times = [row[name] for row in rows for name in row if name.endswith("_s")]
        known = [(time, time * TICKS_PER_S) for time in times if time is not None]
        assert any(
            round(ticks) / TICKS_PER_S != time or ticks >= MAX_TICKS or str(time) == "-0.0"
            for time, ticks in known
        )
        return
    gaps = {GAP.name: pa.nulls(len(rows), pa.float64())}
    schema = arrow_schema(CODED_STREAMS)
    back = decode(pa.table([{**short, **gaps}[c.name] for c in CODED_STREAMS], schema=schema))
    for column in PUBLISHED_COLUMNS:
        # The texts of numbers also differ between 0 and -0.
        assert repr(back[column.name].to_pylist()) == repr(table[column.name].to_pylist())


# ----- parallel downloads


def test_downloads_are_published_by_the_second_with_their_gaps(tmp_path: Path) -> None:
    """A pack has only the progress of downloads that overlap in its own measured span.

    In another span, other downloads overlap, so the pack is refused. The second download receives
    nothing for 15.75 s.
    """
    common = zeros(STREAMS) | class_of("a") | {"outcome": "success", "bytes_requested": 900}
    streams = [
        {**common, "stream_index": i, "start_s": start, "end_s": start + 20}
        | {"time_to_last_byte_s": 20.0}
        for i, start in enumerate((10.0, 11.0, 25.0))
    ]
    progress = [
        class_of("a") | {"stream_index": i, "time_s": t, "bytes_received": n}
        for i, t, n in [(0, 11.3, 300), (0, 19.0, 600), (1, 12.5, 100), (1, 28.25, 800)]
    ]
    write_rows(tmp_path / files.STREAMS_TABLE, STREAMS, streams)
    write_rows(tmp_path / files.GOODPUT_TABLE, GOODPUT, [])
    write_rows(tmp_path / files.PROGRESS_TABLE, PROGRESS, progress)
    write_beside_tables(tmp_path / files.PARSE_REPORT, ParseReport())
    level = make_level(0, 20, 60)
    publish(tmp_path, [level], tmp_path / "out")
    values = require_same(tmp_path, tmp_path / "out", level)
    assert values["web", "stream_gap_max_s"].value == 15.75
    table = read_table(tmp_path / "out" / files.PUBLISHED_PROGRESS, RECEIVED)
    assert table.num_rows == 2 * len(set(table["time_s"].to_pylist()))
    with pytest.raises(AnalysisError, match="was published for a different measured span"):
        load_run(tmp_path / "out", make_level(0, 30, 60))


# ----- tables that are copied into a pack


def publish_copied(directory: Path, level: Level) -> tuple[Path, dict[tuple[str, str], Any]]:
    """Publish a run, and check its values. Return the folder of published records, and values."""
    folder = directory.with_name("published")
    records = folder / files.RECORDS
    publish(directory / files.RECORDS, [level], records)
    (folder / files.MANIFEST).write_text("{}")
    require_published(folder)
    return records, require_same(directory / files.RECORDS, records, level)


def test_transfers_between_peers_are_copied(tmp_path: Path) -> None:
    directory = write_peers(tmp_path / "run", whole(SEED), whole(DOWNLOADER))
    extract(directory, directory / files.RECORDS)
    level = make_level(0, 10, 20, classes={"transfer": ClassLoad()})
    records, values = publish_copied(directory, level)
    assert values["transfer", "early_rate_bytes_per_s"].value is not None
    (records / files.TRANSFER_FACTS).write_text("{")
    with pytest.raises(AnalysisError, match=f"{files.TRANSFER_FACTS} is not valid JSON"):
        require_published(records.parent)


def test_cell_traces_are_copied(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    write_traced_run(directory)
    extract(directory, directory / files.RECORDS)
    level = make_level(0, 1080, 1080)
    records, values = publish_copied(directory, level)
    assert values["middle", "cell_time_p50_s"].value is not None
    (records / files.RELAY_TIME_TABLE).unlink()
    for read in (lambda: load_run(records, level), lambda: require_published(records.parent)):
        with pytest.raises(AnalysisError, match=f"{files.RELAY_TIME_TABLE} is missing"):
            read()
    (directory / files.MANIFEST).write_text("{}")
    (directory / files.RECORDS / files.TRACE_COUNTS).write_text("{")
    with pytest.raises(AnalysisError, match=f"{files.TRACE_COUNTS} is not valid JSON"):
        require_whole(directory)
