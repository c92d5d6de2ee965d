"""File formats: their exact bytes and versions, and the refusal of damaged or oversized files."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from analysis.errors import AnalysisError
from analysis.formats import columns, files, record_files, run_files
from analysis.formats.byte_marks import COLUMN_ROWS
from analysis.formats.columns import STREAMS, Column, arrow_schema
from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import read_as, read_json, write_json
from analysis.formats.manifest import Build, Manifest, read_manifest, write_manifest
from analysis.formats.plan_file import PlanFile, PlannedRun, Request, Resources, read_plan_file
from analysis.formats.tables import read_table

REPOSITORY = Path(__file__).resolve().parents[2]

SCHEMAS = {
    "STREAMS": "bfae0dc98452aeeb",
    "GOODPUT": "df353cc1035b4a44",
    "PROGRESS": "84a6172efcf10332",
    "PEERS": "ae2d33819a35d6d7",
    "CELLS": "3e8d2476174d2a29",
    "RELAY_TIME": "d41bc3bbc1e99a9d",
    "ARRIVALS": "a4d433fe769d2a2c",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_tables_of_records_keep_their_columns_and_descriptions(name: str) -> None:
    """The files contain the columns' descriptions, so a changed description changes the bytes."""
    schema = arrow_schema(getattr(columns, name))
    found = [(f.name, str(f.type), f.metadata[b"description"].decode()) for f in schema]
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == SCHEMAS[name]
    assert schema.metadata == {b"format": b"1"}


RUN_FILES: dict[str, tuple[FormatModel | run_files.Clients, bytes]] = {
    files.RUN: (
        run_files.RunClock(epoch_unix_s=946684800, stop_s=60.0),
        b'{\n "epoch_unix_s": 946684800,\n "stop_s": 60.0\n}\n',
    ),
    files.CLIENTS: (
        run_files.Clients({"web2": "web", "bulk1": "bulk"}),
        b'{\n "bulk1": "bulk",\n "web2": "web"\n}\n',
    ),
    files.PEERS: (
        run_files.PeerPair(seed="s", downloader="d", rtt_s=0.1, sample_s=0.005),
        b'{\n "downloader": "d",\n "rtt_s": 0.1,\n "sample_s": 0.005,\n "seed": "s"\n}\n',
    ),
    files.TRACE_PLAN: (
        run_files.TracePlan(
            epoch_unix_s=946684800,
            file="cells",
            traced=("g1",),
            hosts={"g1": run_files.TracedHost(role="guard", address="1.2.3.4")},
        ),
        b'{\n "epoch_unix_s": 946684800,\n "file": "cells",\n "hosts": {\n  "g1": {\n'
        b'   "address": "1.2.3.4",\n   "role": "guard"\n  }\n },\n "traced": [\n  "g1"\n ]\n}\n',
    ),
}


@pytest.mark.parametrize("name", RUN_FILES)
def test_files_that_name_a_run_keep_their_bytes(name: str, tmp_path: Path) -> None:
    model, content = RUN_FILES[name]
    assert run_files.written(model) == content
    (tmp_path / name).write_bytes(content)
    assert read_as(type(model), tmp_path / name, "file") == model


@pytest.mark.parametrize("name", [files.RUN, files.PEERS, files.TRACE_PLAN])
def test_a_file_without_a_version_is_of_the_first(name: str, tmp_path: Path) -> None:
    model, content = RUN_FILES[name]
    write_json(tmp_path / name, {**json.loads(content), "format": 1})
    assert read_as(type(model), tmp_path / name, "file") == model
    write_json(tmp_path / name, {**json.loads(content), "format": 2})
    with pytest.raises(AnalysisError, match="format: Input should be 1"):
        read_as(type(model), tmp_path / name, "file")


def test_rows_of_a_table_need_not_be_adjacent() -> None:
    """A new column is a new row of columns.csv, which users may add at the end."""
    order = [*COLUMN_ROWS[1::2], *COLUMN_ROWS[::2]]
    tables = columns.read_tables(order)
    assert {name: {*found} for name, found in tables.items()} == {
        name: {*found} for name, found in columns.TABLES.items()
    }


@pytest.mark.parametrize("epoch", ["946684800", True, None])
def test_a_time_is_a_number(tmp_path: Path, epoch: Any) -> None:
    write_json(tmp_path / files.RUN, {"epoch_unix_s": epoch})
    with pytest.raises(AnalysisError, match="epoch_unix_s"):
        run_files.read_clock(tmp_path)


def test_a_manifest_reads_back_and_knows_its_run(tmp_path: Path) -> None:
    path = tmp_path / files.MANIFEST
    manifest = Manifest(
        seed=1,
        identity={"format": 1, "files": {"run.json": "00"}},
        tor={"tor-stock": Build(version="0.4.9", sha256="11", source={"kind": "debian"})},
        cpus=(0, 1),
    )
    write_manifest(path, manifest)
    assert manifest.identity_hash == "f9699241603a29d9"
    written = read_json(path)
    write_json(path, {**written, "of a newer program": 1})
    assert read_manifest(path) == manifest
    write_json(path, {**written, "format": 2})
    with pytest.raises(AnalysisError, match="is not a valid manifest: format"):
        read_manifest(path)


def test_a_plan_reads_back(tmp_path: Path) -> None:
    plan = PlanFile(
        format=1,
        request=Request("quick", seeds=[1, 3], variants=("rr",)),
        runs=(PlannedRun("ab", "small", "rr", 1),),
        store="/somewhere/runs",
        cpus_per_run=1,
        resources=Resources(1, 2, 3),
    )
    write_json(tmp_path / files.PLAN, plan.content())
    assert read_plan_file(tmp_path / files.PLAN) == plan
    default = dict.fromkeys(("scale", "shadow", "tgen", "repeats"))
    asked = {"experiment": "quick", "seeds": [1, 3], "variants": ["rr"], "engine": "auto"}
    assert read_json(tmp_path / files.PLAN)["request"] == default | asked


def test_json_files_of_records_are_read_back(tmp_path: Path) -> None:
    problems = record_files.FileProblems(
        "a.log", malformed_lines=1, examples=[record_files.Example(3, "cut", "x")]
    )
    report = record_files.ParseReport(lines=3, clients={"web": 1}, problems=[problems])
    record_files.write_beside_tables(tmp_path / files.PARSE_REPORT, report)
    assert record_files.read_parse_report(tmp_path / files.PARSE_REPORT) == report
    facts = record_files.TransferFacts(rtt_s=0.2, sample_s=1)
    record_files.write_beside_tables(tmp_path / files.TRANSFER_FACTS, facts)
    assert (tmp_path / files.TRANSFER_FACTS).read_text() == '{\n "rtt_s": 0.2,\n "sample_s": 1\n}\n'
    assert record_files.read_transfer_facts(tmp_path) == facts


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", None, "is missing"),
        ("a.json", b"{", "is not valid JSON"),
        ("a.json", b"\xff", "is not valid JSON"),
        ("a.json", b"[" * 100_000, "is not valid JSON"),
        ("a.json.xz", b"{}", "is damaged or not xz"),
    ],
)
def test_errors_in_json_files(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(AnalysisError, match=message) as refused:
        read_json(tmp_path / name, missing="make it", wrong="get it again")
    assert str(tmp_path / name) in refused.value.message
    assert refused.value.hint == ("make it" if content is None else "get it again")


def test_a_file_of_ours_that_is_too_large_is_not_parsed(tmp_path: Path) -> None:
    """As Python objects, the content would need twenty times as much memory as the file's size."""
    (tmp_path / files.PARSE_REPORT).write_bytes(b"[" + b"[]," * 12_000_000 + b"[]]")
    with pytest.raises(AnalysisError, match="is too large: it holds more than 32 MiB"):
        record_files.read_parse_report(tmp_path / files.PARSE_REPORT)


SOUND: dict[str, Any] = {
    **{column.name: 1 for column in STREAMS if column.is_number},
    **{column.name: "a" for column in STREAMS if not column.is_number},
    "outcome": "success",
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"bytes_received": -5}, "column bytes_received, row 2: -5 is not from 0 to "),
        ({"start_s": math.nan}, "column start_s, row 2: nan is not from 0 to "),
        ({"stream_index": None}, "column stream_index, row 2: null but each row must have a value"),
        ({"start_s": 2.0}, "column end_s, row 2: 1.0 is less than start_s"),
        ({"outcome": "succes"}, "column outcome, row 2: 'succes' is not one of: success, timeout"),
    ],
)
def test_a_value_that_cannot_be_is_named(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    table = pa.Table.from_pylist([SOUND, {**SOUND, **change}], schema=arrow_schema(STREAMS))
    pq.write_table(table, tmp_path / files.STREAMS_TABLE)
    with pytest.raises(AnalysisError, match=r"streams\.parquet is damaged: ") as refused:
        read_table(tmp_path / files.STREAMS_TABLE, STREAMS)
    assert problem in refused.value.message
    assert "make analyse" in (refused.value.hint or "")


LIMITED = """
import resource, sys
from pathlib import Path
from analysis.errors import AnalysisError
from analysis.formats.columns import HISTORY
from analysis.formats.tables import read_table
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for name in sys.argv[1:]:
    try:
        print(read_table(Path(name), HISTORY).num_rows)
    except AnalysisError as error:
        print(error.message)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def test_a_small_file_with_gigabytes_of_content_needs_little_memory(tmp_path: Path) -> None:
    """The gigabytes are in an unread column, or in strings or lists of a column that is read."""
    rows = 400
    once = pa.array(np.zeros(rows, np.int32))
    text = pa.DictionaryArray.from_arrays(once, pa.array(["x" * 10_000_000]))
    of_list = pa.array([np.zeros(10_000_000, np.int64), *[np.ones(1, np.int64)] * (rows - 1)])
    lists = {"seeds": [[1]] * rows, "values": [[1.0]] * rows}
    sound = {
        column.name: pa.array(lists.get(column.name, ["1"] * rows)).cast(column.type)
        for column in columns.HISTORY
    }
    bombs = {"unread": {"more": text}, "text": {"records": text}, "list": {"seeds": of_list}}
    for name, change in bombs.items():
        # The layout of the history requires columns of strings. If the file does not contain
        # Arrow's own schema, Arrow reads a dictionary column as a column of strings.
        pq.write_table(
            pa.table({**sound, **change}), tmp_path / name, compression="zstd", store_schema=False
        )
        assert (tmp_path / name).stat().st_size < 100_000
    command = [sys.executable, "-c", LIMITED, *(str(tmp_path / name) for name in bombs)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    *answers, most_kib = result.stdout.splitlines()
    assert answers[0] == str(rows)
    assert "text cannot be read: it holds more than 64 MiB" in answers[1]
    assert "list cannot be read: it holds more than 64 MiB" in answers[2]
    assert int(most_kib) < 2**19


NAME = (Column("name", pa.string(), "a name"),)


def test_a_page_that_states_a_wrong_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"name": ["abc"]}), path, compression="zstd", use_dictionary=False)
    data = path.read_bytes()
    assert read_table(path, NAME).num_rows == 1
    # A page's header begins with the type (0) and the unpacked size, each after the byte 0x15. The
    # unpacked size is replaced by 2**31 - 1, and by a number with too many bytes.
    assert data[4:7] == bytes([0x15, 0, 0x15])
    begin = next(at for at in range(7, 20) if data[at] < 128) + 1
    for size in (b"\xfe\xff\xff\xff\x0f", b"\xff" * 20):
        path.write_bytes(data[:7] + size + data[begin:])
        with pytest.raises(AnalysisError, match=r"x\.parquet cannot be read"):
            read_table(path, NAME)


def test_a_footer_with_more_columns_than_the_schema_does_not_end_the_process(
    tmp_path: Path,
) -> None:
    """PyArrow aborts the process if it is asked for a row group's column that the schema lacks.

    The file's schema has one column, and the file's row group has two columns.
    """
    path = tmp_path / "x.parquet"
    data, footers = {}, {}
    for names in (("name",), ("name", "more")):
        pq.write_table(pa.table(dict.fromkeys(names, ["a"] * 77)), path, store_schema=False)
        data[names] = path.read_bytes()
        length = int.from_bytes(data[names][-8:-4], "little")
        # A footer has the version and the schema, then the number of rows (77), the row groups, and
        # the name of the program. The code splits it into parts, so that it can combine parts of
        # two footers.
        schema, rest = data[names][-8 - length : -8].split(b"\x16\x9a\x01", 1)
        groups, program = rest.split(b"parquet-cpp", 1)
        footers[names] = (schema, groups, program)
    (schema, _, program), (_, groups, _) = footers.values()
    footer = schema + b"\x16\x9a\x01" + groups + b"parquet-cpp" + program
    path.write_bytes(data["name", "more"] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert read_table(path, NAME).num_rows == 77
