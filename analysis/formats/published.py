"""The files of a run in a published pack, which has what figures and claims read.

    <run id>/records-v<N>/    parse.json and
        published.json                  what the tables below were made from
        published-streams.parquet       replaces streams.parquet
        published-goodput.parquet       replaces goodput.parquet: sums by class and second
        published-progress.parquet      replaces progress.parquet, if downloads are compared

The tables of peers, of perf clients and of cell traces are copied, and so are the rows of circuits
and of relays' bytes that metrics read. All values are those of the records, to the last bit. The
tables are not compressed, because the pack is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pydantic import Field, FiniteFloat

from analysis.formats import files
from analysis.formats.columns import STREAMS, Column, Outcome, arrow_schema
from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import read_as

PUBLISHED_FORMAT: Final = 1
"""Version of published.json and of the tables in its folder."""

GET_ANEW = "get the pack again"

TICKS_PER_S = 4_000_000
"""A tick is a quarter of a microsecond. TGen logs microseconds. A time that is known to an interval
is the middle of two of them, or of such a middle and one of them."""

_PUBLISHED_NAMES = (
    *("client", "class", "stream_index", "start_s", "ttfb_from_start_s", "time_to_320kib_s"),
    *("time_to_last_byte_s", "bytes_requested", "outcome", "end_s"),
)

PUBLISHED_COLUMNS = tuple(
    column for name in _PUBLISHED_NAMES for column in STREAMS if column.name == name
)
"""The columns of streams that metrics, figures and claims read, except one median."""

# Descriptions are stored in the tables: another one makes other bytes of the same records.

GAP = Column(
    "longest_gap_s",
    pa.float64(),
    "longest time without a byte, from the start to the last byte or the end; of downloads that "
    "their client made side by side",
    optional=True,
)

CODED_STREAMS: tuple[Column, ...] = (
    Column("client", pa.string(), "host name of the client; its streams stand together"),
    Column("class", pa.string(), "traffic class of the client"),
    Column("outcome", pa.string(), "as in streams", choices=tuple(Outcome)),
    Column("bytes_requested", pa.int64(), "as in streams", optional=True),
    Column(
        "pause_s",
        pa.int64(),
        "start_s less the end_s of the row before, or less 0 in a client's first row, in whole "
        "seconds",
        signed=True,
    ),
    Column("pause_ticks", pa.int64(), "the rest of that, which may be negative", signed=True),
    Column("ttfb_ticks", pa.int64(), "ttfb_from_start_s", optional=True),
    Column(
        "last_byte_ticks",
        pa.int64(),
        "time_to_last_byte_s, less ttfb_from_start_s where there is one",
        optional=True,
        signed=True,
    ),
    Column(
        "target_ticks",
        pa.int64(),
        "time_to_320kib_s, less time_to_last_byte_s where there is one",
        optional=True,
        signed=True,
    ),
    Column(
        "end_ticks",
        pa.int64(),
        "end_s less start_s, and less time_to_last_byte_s where there is one",
        signed=True,
    ),
    GAP,
)
"""Streams as whole ticks, each less what another column states. ``stream_index`` is the number of a
row among those of its client. If that does not give each value to the last bit, the table has
``PUBLISHED_COLUMNS`` instead."""

SUMS: tuple[Column, ...] = (
    Column("class", pa.string(), "traffic class; all: of all clients together"),
    Column(
        "time_s",
        pa.float64(),
        "each whole second while there are heartbeats, begin and end of these, and what of the "
        "measured span lies between: its begin and end, and each five seconds from its begin on",
    ),
    Column(
        "bytes_read",
        pa.float64(),
        "bytes read by then, if those of each heartbeat interval came evenly; null in rows of all",
        optional=True,
    ),
    Column(
        "rounding",
        pa.int64(),
        "in rows of all: bytes read by then less the sum of the classes', in units in the last "
        "place; null in others",
        optional=True,
        signed=True,
    ),
)

RECEIVED: tuple[Column, ...] = (
    Column("client", pa.string(), "host name of the client"),
    Column("stream_index", pa.int64(), "as in streams"),
    Column(
        "time_s",
        pa.float64(),
        "time at which metrics or figures ask: each second from a client's first start on, each "
        "window of its index of fairness, the first completion",
    ),
    Column("more_bytes", pa.int64(), "payload that came since the stream's row before"),
)

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
"""Files of the records that a published run has too. Figures and claims read all of them."""

DICTIONARIES = ("client", "class", "outcome")
"""Columns of few values."""


class HeartbeatSpan(FormatModel):
    """The heartbeats of one class."""

    begin_s: FiniteFloat = Field(description="when the first interval begins")
    end_s: FiniteFloat = Field(description="when the last one ends")
    interval_s: FiniteFloat = Field(description="median length of the intervals")


class PublishedRun(FormatModel):
    """published.json: what the tables of a published run were made from."""

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


def is_published(records: Path) -> bool:
    """Return whether a folder of records is from a published pack."""
    return (records / files.PUBLISHED).is_file()


def read_published(records: Path) -> PublishedRun:
    """Read the published.json of a folder of records.

    Raises:
        AnalysisError: The file is missing, not JSON, or of another format.
    """
    path = records / files.PUBLISHED
    return read_as(PublishedRun, path, "description of a published run", wrong=GET_ANEW)


def write_table(path: Path, columns: tuple[Column, ...], values: Mapping[str, pa.Array]) -> None:
    """Write a table in one row group. The same values give the same bytes.

    BYTE_STREAM_SPLIT puts the first bytes of all numbers next to each other, then the second ones.
    Those of similar numbers are similar, so the pack compresses them well.
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
