"""Check that a run's directory contains everything that an analysis needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import GOODPUT, RECEIVED, RELAY_TIME, STREAMS, SUMS, TABLES
from analysis.formats.manifest import read_manifest
from analysis.formats.published import COPIED_FILES, GET_ANEW, is_published, read_published
from analysis.formats.published_streams import read_streams
from analysis.formats.record_files import (
    ParseReport,
    read_parse_report,
    read_records_format,
    read_trace_counts,
    read_transfer_facts,
    table_hashes,
)
from analysis.formats.tables import DAMAGED_HINT, read_table

_PUBLISHED_FILES = {
    *COPIED_FILES,
    files.CIRCUITS_TABLE,
    files.RELAY_BYTES_TABLE,
    files.PUBLISHED,
    files.PUBLISHED_STREAMS,
    files.PUBLISHED_GOODPUT,
    files.PUBLISHED_PROGRESS,
}


def require_whole(run: Path) -> None:
    """Check a finished run by reading everything that reports and comparisons need.

    A run has its records, the logs that they are read from, or both. Records of another format are
    accepted, because another version of this program can read them.

    Raises:
        AnalysisError: The manifest or a record file is damaged or missing, there are neither
            records nor logs, or the records are those of a published pack.
    """
    read_manifest(run / files.MANIFEST)
    folders = sorted(path for path in run.glob(files.ANY_RECORDS) if path.is_dir())
    if not folders and not (run / files.HOSTS).is_dir():
        raise AnalysisError(f"{run.name} has neither records nor logs")
    for records in folders:
        if is_published(records):
            raise AnalysisError(f"{run.name} is from a published pack, so it is incomplete")
        if read_records_format(records) == files.RECORDS_FORMAT:
            _require_records(records)


def require_published(run: Path) -> None:
    """Check a run of a published pack by reading all of its files.

    Raises:
        AnalysisError: A file is damaged or missing, or does not belong to a published pack.
    """
    read_manifest(run / files.MANIFEST)
    records = run / files.RECORDS
    if [path for path in run.iterdir() if path.name != files.MANIFEST] != [records]:
        raise AnalysisError(f"{run.name} has other files than {files.MANIFEST} and {files.RECORDS}")
    read_published(records)
    unknown = {path.name for path in records.iterdir()} - _PUBLISHED_FILES
    if unknown:
        raise AnalysisError(f"{run.name} has files that are not published: {min(unknown)}")
    report = read_parse_report(records / files.PARSE_REPORT)
    require_tables(records, report)
    _read_tables(records)
    if not (records / files.PEERS_TABLE).is_file():
        require_streams(records, report, read_streams(records))
        read_table(records / files.PUBLISHED_GOODPUT, SUMS, missing=GET_ANEW, wrong=GET_ANEW)
        if (records / files.PUBLISHED_PROGRESS).is_file():
            read_table(records / files.PUBLISHED_PROGRESS, RECEIVED, wrong=GET_ANEW)


def require_tables(records: Path, report: ParseReport) -> None:
    """Check the tables in a folder of records against their stored hashes.

    Records and packs of older versions have no hashes and are not checked.

    Raises:
        AnalysisError: A table is missing, or its bytes differ.
    """
    expected, by, hint = report.tables, files.PARSE_REPORT, DAMAGED_HINT
    if is_published(records):
        expected, by, hint = read_published(records).tables, files.PUBLISHED, GET_ANEW
    found = table_hashes(records) if expected else {}
    for name in sorted(set(expected) | set(found)):
        if expected.get(name) != found.get(name):
            wrong = f"is damaged: {by} does not have its SHA-256"
            what = "is missing" if name not in found else wrong
            raise AnalysisError(f"{records / name} {what}", hint)


def require_streams(records: Path, report: ParseReport, streams: pa.Table) -> None:
    """Check the number of streams of each class and outcome against the counts of parse.json.

    streams: The rows of streams.parquet, or of its replacement in a published pack, which omits
    classes of background load.

    Raises:
        AnalysisError: The counts differ.
    """
    published = is_published(records)
    rows = streams.select(["class", "outcome"])
    found: dict[str, dict[str, int]] = {} if published else {name: {} for name in report.streams}
    for row in rows.group_by(["class", "outcome"]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault(row["class"], {})[row["outcome"]] = row["count_all"]
    for name, counts in sorted(found.items()) if report.streams else ():
        expected = report.streams.get(name, {})
        if counts != expected:
            raise AnalysisError(
                f"{records} is damaged: it has {sum(counts.values())} streams of {name} "
                f"({_format_counts(counts)}), and its logs had {sum(expected.values())} "
                f"({_format_counts(expected)})",
                GET_ANEW if published else DAMAGED_HINT,
            )


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _require_records(records: Path) -> None:
    report = read_parse_report(records / files.PARSE_REPORT)
    require_tables(records, report)
    _read_tables(records)
    if not (records / files.PEERS_TABLE).is_file():
        read_table(records / files.GOODPUT_TABLE, GOODPUT)
        require_streams(records, report, read_table(records / files.STREAMS_TABLE, STREAMS))


def _read_tables(records: Path) -> None:
    """Read the tables that exist, and the JSON files that belong to them."""
    for table, columns in TABLES.items():
        path = records / f"{table}.parquet"
        if path.is_file():
            read_table(path, columns)
    if (records / files.PEERS_TABLE).is_file():
        read_transfer_facts(records)
    if (records / files.CELLS_TABLE).is_file():
        read_trace_counts(records / files.TRACE_COUNTS)
        read_table(records / files.RELAY_TIME_TABLE, RELAY_TIME)
