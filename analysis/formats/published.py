"""Files of a run in a published pack, which contains only what figures and claims need.

    <run id>/records-v<N>/    parse.json and
        published.json                  hashes of the tables, and spans of heartbeats
        published-streams.parquet       replaces streams.parquet
        published-goodput.parquet       replaces goodput.parquet: sums by class and second
        published-progress.parquet      replaces progress.parquet, only for parallel downloads

The tables of peers, of perf clients and of cell traces are copied, and so are the rows of circuits
and of relays' bytes that metrics read. All values equal those of the records exactly. The tables
are not compressed, because the pack is compressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pydantic import Field, FiniteFloat

from analysis.formats import files
from analysis.formats.columns import Column, arrow_schema
from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import reader

PUBLISHED_FORMAT: Final = 1
"""Version of published.json and of the tables in its folder."""

GET_ANEW = "get the pack again"

TICKS_PER_S = 4_000_000
"""Ticks per second; a tick is 0.25 us.

TGen logs whole microseconds. If only an interval that contains a time is known, the middle of this
interval replaces the time. The bounds of the interval may also be middles of intervals. So all
times are multiples of a quarter of a microsecond.
"""

COPIED_FILES = (
    files.PARSE_REPORT,
    files.PEERS_TABLE,
    files.TRANSFER_FACTS,
    files.CELLS_TABLE,
    files.RELAY_TIME_TABLE,
    files.ARRIVALS_TABLE,
    files.TRACE_COUNTS,
    files.PERF_TABLE,
)
"""Files of the records that are copied unchanged to a published run, because figures and claims
need their whole content."""

DICTIONARIES = ("client", "class", "outcome")
"""Columns with few distinct values, for which Parquet stores a dictionary."""


class HeartbeatSpan(FormatModel):
    """The times of one class's heartbeats (lines that TGen logs regularly)."""

    begin_s: FiniteFloat = Field(description="when the first interval begins")
    end_s: FiniteFloat = Field(description="when the last one ends")
    interval_s: FiniteFloat = Field(description="median length of the intervals")


class PublishedRun(FormatModel):
    """published.json: the hashes of a published run's tables and of their sources."""

    format: Literal[1] = Field(default=PUBLISHED_FORMAT, description="version")
    records: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = Field(
        description="name of a record table -> its SHA-256; all tables of the run's records"
    )
    tables: dict[str, str] = Field(
        default={}, description="name of each table here -> its SHA-256. Older packs lack it"
    )
    classes: dict[str, HeartbeatSpan] = Field(
        default={}, description="class, or all -> its heartbeats, if it has any"
    )


class PackIndex(FormatModel):
    """index.json: the first member of a pack of runs, which lists all other members."""

    format: Literal[1, 2] = Field(
        default=1,
        description="version; 2: of a published pack, whose runs have what figures and claims read "
        "and no more",
    )
    files: dict[str, str] = Field(
        description="name of a member -> its SHA-256; <run id>/<path>, or studies/<experiment>.json"
    )


def is_published(records: Path) -> bool:
    """Return whether a folder of records is from a published pack."""
    return (records / files.PUBLISHED).is_file()


read_published = reader(
    PublishedRun, "description of a published run", files.PUBLISHED, wrong=GET_ANEW
)


def write_table(path: Path, columns: tuple[Column, ...], values: Mapping[str, pa.Array]) -> None:
    """Write a table in one row group. The same values give the same bytes.

    BYTE_STREAM_SPLIT stores the first bytes of all numbers, then all second bytes, and so on. If
    numbers are similar, so are their first bytes, and the pack compresses them well.
    """
    schema = arrow_schema(columns, PUBLISHED_FORMAT)
    table = pa.table([values[column.name] for column in columns], schema=schema)
    numbers = [name for name in table.column_names if name not in DICTIONARIES]
    pq.write_table(
        table,
        path,
        row_group_size=max(1, table.num_rows),
        compression="none",
        version="2.6",
        use_dictionary=[name for name in table.column_names if name in DICTIONARIES],
        column_encoding=dict.fromkeys(numbers, "BYTE_STREAM_SPLIT"),
        write_statistics=False,
    )
