"""Write invented records for tests whose runs have no logs from which to extract records."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.formats import files
from analysis.formats.columns import GOODPUT, STREAMS, Outcome, arrow_schema
from analysis.formats.record_files import ParseReport, write_parse_report
from analysis.formats.tables import TableWriter

STREAM = {
    **dict.fromkeys((column.name for column in STREAMS if not column.optional), 0),
    **{"client": "web1", "class": "web", "outcome": Outcome.SUCCESS.value, "end_s": 1.0},
}


def write_records(records: Path, server: str) -> None:
    """Write records of one stream from a server."""
    records.mkdir(parents=True, exist_ok=True)
    with TableWriter(records / files.STREAMS_TABLE, STREAMS) as table:
        rows = [{**STREAM, "server": server}]
        table.add(pa.Table.from_pylist(rows, schema=arrow_schema(STREAMS)))
    with TableWriter(records / files.GOODPUT_TABLE, GOODPUT):
        pass
    write_parse_report(records, ParseReport())
