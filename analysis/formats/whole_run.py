"""Check that a run's directory has everything that an analysis reads of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.manifest import read_manifest
from analysis.formats.published import GET_ANEW, is_published, read_published
from analysis.formats.record_files import (
    ParseReport,
    read_parse_report,
    read_records_format,
    table_hashes,
)
from analysis.formats.tables import DAMAGED_HINT


def require_whole(run: Path) -> None:
    """Check that a finished run has its records, the logs that they are read from, or both.

    Records of another format are accepted: another version of this program reads them.

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
            raise AnalysisError(f"{run.name} is of a published pack, and not whole")
        if read_records_format(records) == files.RECORDS_FORMAT:
            require_tables(records, read_parse_report(records / files.PARSE_REPORT))


def require_tables(records: Path, report: ParseReport) -> None:
    """Check that the tables in a folder of records are those that were written there.

    Records and packs of older versions do not state which.

    Raises:
        AnalysisError: A table is missing, or its bytes differ.
    """
    published = is_published(records)
    expected = read_published(records).tables if published else report.tables
    found = table_hashes(records) if expected else {}
    for name in sorted(set(expected) | set(found)):
        if expected.get(name) != found.get(name):
            by = files.PUBLISHED if published else files.PARSE_REPORT
            wrong = f"is damaged: {by} does not have its SHA-256"
            what = "is missing" if name not in found else wrong
            raise AnalysisError(f"{records / name} {what}", GET_ANEW if published else DAMAGED_HINT)


def require_streams(records: Path, report: ParseReport, streams: pa.Table) -> None:
    """Check the streams of each class, by outcome, against the counts of parse.json.

    streams: Rows of a table of streams, or of that of a published pack, which has no classes that
        are only load.

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
