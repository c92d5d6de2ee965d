"""Cell traces of a run: their tables, csv files, figures, and section of the report."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from analysis_synthetic import make_level, study_content
from celltrace_synthetic import LATENCY_NS, NAMES, Model, eight_downloads, write_traces

from analysis.celltrace.cell_paths import LEGS
from analysis.celltrace.cell_tables import extract, load_arrivals, load_cells
from analysis.celltrace.cells import Fate
from analysis.celltrace.events import INWARD
from analysis.celltrace.statistics import Group, Stage, summarise
from analysis.celltrace.summaries import TIME_COLUMNS, WAIT_COLUMNS, TraceTable
from analysis.errors import AnalysisError
from analysis.figures.cells import draw_all
from analysis.formats import files
from analysis.formats.columns import GOODPUT, STREAMS, arrow_schema
from analysis.formats.csv_tables import csv_text
from analysis.formats.record_files import ParseReport, read_trace_counts, write_beside_tables
from analysis.formats.run_files import is_traced
from analysis.formats.study import CellTimes, PublishedCellTimes, Run, Study
from analysis.measures.catalogue import run_statistics
from analysis.measures.metric import Statistic
from analysis.measures.run_data import load_run
from analysis.pages.cells import section
from analysis.pages.html import render

LEVEL = make_level(0.0, 1.0, 1.0, name="small", label="small")
OWN = {"levels": [LEVEL], "figures": [], "asked": {}}
STUDY = Study.model_validate(study_content([]) | OWN)
RUN = Run(run_id="r1", level="small", variant="ewma", seed=1, directory="r1", records="r1/records")

OLD_RECORDS = Statistic(None, "the records lack arrival times of cells: extract them again")


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """Return a run of a guard, a middle relay and an exit, with downloads of two clients."""
    return made_by(Model(5, kernel_wait_ns=90), tmp_path)


@pytest.fixture
def table(run_directory: Path) -> TraceTable:
    """Return the tables of cells for the report, with the run's data."""
    made = TraceTable()
    made.add(RUN, LEVEL, extracted(run_directory))
    return made


def made_by(model: Model, tmp_path: Path) -> Path:
    """Write a run with eight downloads through a model's relays, and return its folder."""
    streams = [
        {
            "client": f"client{index % 2}",
            "class": "web",
            "stream_index": index // 2,
            "start_s": start / 1e9,
            "ttfb_from_start_s": (first_byte - start) / 1e9,
        }
        for index, (start, first_byte) in enumerate(eight_downloads(model))
    ]
    # Two more downloads follow. The first one has no first byte, so no cells are searched for it.
    # The second one has no cells in any relay. It counts under this reason, not as "followed".
    streams.append({**streams[-1], "stream_index": 8, "ttfb_from_start_s": None})
    streams.append({**streams[-1], "stream_index": 9, "start_s": 9.0, "ttfb_from_start_s": 0.1})
    write_traces(tmp_path, model, ["client0", "client1"])
    (tmp_path / "records").mkdir()
    pq.write_table(pa.Table.from_pylist(streams), tmp_path / "records" / "streams.parquet")
    return tmp_path


def extracted(run_directory: Path) -> Path:
    records = run_directory / "records"
    extract(run_directory, records / "streams.parquet", records)
    return records


def test_the_tables_contain_the_events_of_the_traces(run_directory: Path) -> None:
    assert is_traced(run_directory)
    records = extracted(run_directory)
    counts = read_trace_counts(records / files.TRACE_COUNTS)
    assert [relay.relay for relay in counts.relays] == list(NAMES)
    for relay, (name, role, cells) in zip(counts.relays, load_cells(records), strict=True):
        assert (relay.relay, relay.role) == (name, role)
        assert relay.fates == {fate.name: n for fate, n in cells.counts().items()}
        assert sum(relay.fates.values()) == len(cells)
        relayed = cells.where(cells.fate == Fate.RELAYED)
        assert len(relayed) == (0 if name == "exit1" else len(cells))
        assert relayed.inbuf_ns.min(initial=2**62) >= 0
        assert relayed.inbuf_ns.max(initial=0) < 10**9
    assert counts.streams == {
        "followed": 8,
        "no cell for this client passed a traced guard in its time": 1,
    }
    rows = pq.read_table(records / files.RELAY_TIME_TABLE).to_pylist()
    assert len(rows) == 8 * 3 * len(LEGS) + 1
    assert {row["leg"] for row in rows} == {*LEGS, None}


def statistics(records: Path) -> dict[tuple[str, str], Statistic]:
    """Replace the tables of streams and heartbeats by empty ones. Return the metrics of cells."""
    for name, columns in ((files.STREAMS_TABLE, STREAMS), (files.GOODPUT_TABLE, GOODPUT)):
        pq.write_table(arrow_schema(columns).empty_table(), records / name)
    write_beside_tables(records / files.PARSE_REPORT, ParseReport())
    return run_statistics(load_run(records, LEVEL))


def test_arrivals_and_waits_match_the_model(tmp_path: Path) -> None:
    model = Model(5, kernel_wait_ns=90)
    records = extracted(made_by(model, tmp_path))
    relays = load_cells(records)
    found = load_arrivals(records, relays)
    read = dict.fromkeys(NAMES, 0)
    for sender, _, _ in model.crossings:
        read[sender] += 1
    assert [own.seq.size for own in found if own is not None] == list(read.values())
    for (_, _, cells), own in zip(relays, found, strict=True):
        assert own is not None
        sent_ns = cells.flush_ns[np.isin(cells.seq, own.seq)]
        assert set(own.arrived_ns - sent_ns) <= set(range(LATENCY_NS, LATENCY_NS + 90))
    values = statistics(records)
    for name in ("middle", "exit"):
        waits_ns = [
            wait for sender, way, wait in model.crossings if (sender, way) == (f"{name}1", INWARD)
        ]
        expected_s = (np.mean(waits_ns) - min(waits_ns)) / 1e9
        assert values[name, "cell_kernel_wait_mean_s"].value == pytest.approx(expected_s)
    assert values["guard", "cell_kernel_wait_mean_s"].value is None
    assert values["guard", "cell_queue_wait_mean_s"].value is not None


def test_older_records_without_arrivals_are_read_with_a_note(run_directory: Path) -> None:
    records = extracted(run_directory)
    new = statistics(records)
    (records / files.ARRIVALS_TABLE).unlink()
    old = statistics(records)
    kernel = {key for key in new if key[1] == "cell_kernel_wait_mean_s"}
    assert kernel == {(role, "cell_kernel_wait_mean_s") for role in ("guard", "middle", "exit")}
    for key in new:
        assert old[key] == (OLD_RECORDS if key in kernel else new[key])
    table = TraceTable()
    table.add(RUN, LEVEL, records)
    content = section(table, STUDY, ())
    ((_, row),) = content["waits"]["middle"]
    assert np.isnan(row["kernel_s"])
    assert row["arrived"] == 0


def test_arrivals_of_other_cells_are_refused(run_directory: Path) -> None:
    records = extracted(run_directory)
    path = records / files.ARRIVALS_TABLE
    table = pq.read_table(path)
    place = table.schema.get_field_index("seq")
    seq = pa.array(table["seq"].to_numpy() + 10**6)
    pq.write_table(table.set_column(place, table.schema.field(place), seq), path)
    with pytest.raises(AnalysisError, match="contains cells that guard1 did not send"):
        statistics(records)


def test_tables_figures_and_section(table: TraceTable, tmp_path: Path) -> None:
    assert table
    by_key = {(row["role"], row["group"], row["stage"]): row for row in table.times}
    guard = by_key["guard", Group.ALL, Stage.TOTAL]
    parts = [by_key["guard", Group.ALL, stage] for stage in Stage if stage is not Stage.TOTAL]
    assert sum(part["share"] for part in parts) == pytest.approx(1.0)
    assert sum(part["mean_ms"] for part in parts) == pytest.approx(guard["mean_ms"])
    assert guard["circuits"] == 2
    lines = list(csv.DictReader(io.StringIO(csv_text(table.times, TIME_COLUMNS))))
    assert len(lines) == len(table.times)
    assert len(table.relay_times) == 9
    lines = list(csv.DictReader(io.StringIO(csv_text(table.waits, WAIT_COLUMNS))))
    kernel = {line["role"]: line["kernel_s"] != "" for line in lines}
    assert kernel == {"guard": False, "middle": True, "exit": True}
    inside_s = sum(row["time_s"] for row in table.relay_times)
    assert 0 < inside_s < table.relay_times[0]["ttfb_s"]
    figures = draw_all(table, STUDY, tmp_path)
    names = [f"celltrace-{name}" for name in ("scatter-guard", "stages", "waits", "ttfb")]
    assert [figure.name for figure in figures] == names
    for figure in figures:
        assert all(figure.path(end).stat().st_size > 1000 for end in ("pdf", "png"))
    content = section(table, STUDY, figures)
    html = render("celltrace.html.j2", trace=content)
    assert "Completeness of events" in html
    assert "Waits of RELAY cells towards clients" in html
    assert "relayed: inbuf, queue, outbuf, flush" in html
    # Every cell starts or ends at the exit, so the exit relays none.
    assert list(content["times"]) == ["guard", "middle", "all relays"]
    assert "so they are not in the tables of times: exit. Circuits end there" in html


def test_published_values_are_listed_next_to_measured_ones(table: TraceTable) -> None:
    """The published values of a role and a level are listed below the experiment's own values."""
    quiet = CellTimes(
        count=3078, minimum_ms=0.63, quartile1_ms=49.48, median_ms=329.58, mean_ms=4174.12,
        quartile3_ms=2445.33, maximum_ms=106639.76,
    )  # fmt: skip
    published = PublishedCellTimes(
        source="text of 2019", role="guard", levels={"small": {"quiet": quiet}}
    )
    study = STUDY.model_copy(update={"published_cell_times": published})
    content = section(table, study, ())
    shown = {
        (role, group.value): [row["label"] for row in rows]
        for role, groups in content["times"].items()
        for group, rows in groups.items()
    }
    own = shown["guard", "all"]
    assert len(own) == 1
    assert shown.pop(("guard", "quiet circuits")) == [*own, "small, text of 2019"]
    assert all(labels == own for labels in shown.values())
    html = render("celltrace.html.j2", trace=content)
    assert '<td>small, text of 2019</td><td class="number">' in html
    for number in ("3,078", "0.63", "49.48", "329.58", "4,174.12", "2,445.33", "106,639.76"):
        assert f'<td class="number">{number}</td>' in html


def test_cells_that_took_no_time_have_no_shares(table: TraceTable) -> None:
    """Under the Vanilla scheduler, a cell that does not wait takes no simulated time."""
    for row in table.times:
        row |= {"share": np.nan, **asdict(summarise(np.zeros(row["count"])))}
    content = section(table, STUDY, ())
    html = render("celltrace.html.j2", trace=content)
    assert '<td class="number">0 (0), \N{EN DASH}</td>' in html


NO_SUCH_HOST = '{"epoch_unix_s": 0, "file": "cells", "traced": ["x"], "hosts": {}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is not a valid plan of cell traces: epoch_unix_s: .*traced: "),
        (NO_SUCH_HOST, "the traced host x is not among hosts"),
    ],
)
def test_an_invalid_plan_is_refused(run_directory: Path, text: str, message: str) -> None:
    (run_directory / files.TRACE_PLAN).write_text(text)
    with pytest.raises(AnalysisError, match=message):
        extracted(run_directory)
