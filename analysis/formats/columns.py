"""Columns of the Parquet tables that onionlab writes, from columns.csv.

The name of a column that has a unit ends with the unit, such as ``_s`` for seconds.

Times on the simulated clock (``start_s``, ``end_s``, ``time_s``) are relative to the start of the
simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.formats.byte_marks import COLUMN_ROWS
from analysis.formats.files import RECORDS_FORMAT
from analysis.formats.format_model import LARGEST_NUMBER, LARGEST_VALUE


class Outcome(StrEnum):
    """The outcome of a stream. The column ``error`` has TGen's more precise name of the error."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    """The stream's total timeout passed, during the transfer or already in the SOCKS handshake."""
    STALL = "stall"
    """No byte was transferred for the stallout time."""
    PROXY_ERROR = "proxy-error"
    """The connection or SOCKS handshake failed, for example because Tor could build no circuit."""
    CLOSED = "closed"
    """The other end closed the connection early."""
    CONNECTION_ERROR = "connection-error"
    """Reading or writing failed."""
    PROTOCOL_ERROR = "protocol-error"
    """TGen's own handshake, model, checksum or footer was wrong."""
    OTHER_ERROR = "other-error"
    OPEN = "open"
    """The stream was still in progress when its log ended."""
    UNKNOWN = "unknown"
    """TGen's counters include the stream, but its line is missing or malformed."""


FAILURES = tuple(
    one for one in Outcome if one not in (Outcome.SUCCESS, Outcome.OPEN, Outcome.UNKNOWN)
)

MAX_BYTES = 2**53
"""Maximum number of bytes. Doubles represent every integer up to this one exactly."""


@dataclass(frozen=True)
class Column:
    """One column: its type, its meaning, and its possible values.

    Attributes:
        description: text that is stored in the Parquet file. It never changes, even if it names a
            module that is renamed, so that the same values always give the same bytes.
        meaning: replaces the description in the reference documentation; empty unless the
            description would mislead.
        optional: whether a row may lack the value: a stream may, for example, have no first byte.
        signed: whether values may be negative.
        not_before: name of another column; in each row, this column's value is at least the value
            of the other column. Empty if there is no such column.
        choices: the possible values of a string; empty if any string is possible.
        is_key: whether the column is part of the table's key. No two rows have the same key.
    """

    name: str
    type: pa.DataType
    description: str
    meaning: str = ""
    optional: bool = False
    signed: bool = False
    not_before: str = ""
    choices: tuple[str, ...] = ()
    is_key: bool = False

    @property
    def is_number(self) -> bool:
        """True if its values are integers or floats."""
        return bool(pa.types.is_integer(self.type) or pa.types.is_floating(self.type))

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest possible value of a numeric column.

        Both are integers for a column of integers.
        """
        most: float = 2**63 - 1
        if pa.types.is_floating(self.type):
            most = LARGEST_NUMBER if self.name.endswith("_s") else LARGEST_VALUE
        if "bytes" in self.name:
            most = MAX_BYTES
        return (-most if self.signed else 0), most


_TYPES = {
    "name": pa.dictionary(pa.int32(), pa.string()),
    "list<int64>": pa.list_(pa.int64()),
    "list<float64>": pa.list_(pa.float64()),
}
"""Type in columns.csv -> Arrow's type, for the types that have no alias in PyArrow."""


def _read_column(row: Mapping[str, str]) -> Column:
    """Return a column from its row in columns.csv."""
    flags = row["flags"].split()
    return Column(
        row["name"],
        _TYPES.get(row["type"]) or pa.type_for_alias(row["type"]),
        row["description"],
        row["meaning"],
        optional="optional" in flags,
        signed="signed" in flags,
        not_before=row["not_before"],
        choices=tuple(Outcome) if "outcome" in flags else (),
        is_key="key" in flags,
    )


def read_tables(rows: Iterable[Mapping[str, str]]) -> dict[str, tuple[Column, ...]]:
    """Return name of a table -> its columns. The rows of a table need not be adjacent."""
    tables: dict[str, tuple[Column, ...]] = {}
    for row in rows:
        tables[row["table"]] = (*tables.get(row["table"], ()), _read_column(row))
    return tables


TABLES = read_tables(COLUMN_ROWS)
"""Name of a table -> its columns. The table NAME of a run's records is in the file NAME.parquet."""

STREAMS = TABLES["streams"]
GOODPUT = TABLES["goodput"]
PROGRESS = TABLES["progress"]
"""Progress of streams. The table is missing if the logs have no stream-status lines."""
PEERS = TABLES["peers"]
CELLS = TABLES["cells"]
"""Cells inside traced relays.

A damaged trace may have times before the start of the run, so times may be negative.
"""
ARRIVALS = TABLES["cell_arrivals"]
"""Cells that one traced relay sent and another one read."""
RELAY_TIME = TABLES["relay_time"]
PERF = TABLES["perf"]
"""Ended streams of perf clients, with the times that tgentools extracts from the log."""
CIRCUITS = TABLES["circuits"]
"""Circuits observed by OnionTrace. Both Tor's and OnionTrace's times are on the simulated clock."""
RELAY_BYTES = TABLES["relay_bytes"]
"""Bytes per second of relays and authorities, from the BW lines of OnionTrace's logs."""

HISTORY = TABLES["history"]
HISTORY_FORMAT = 1
"""Version of the history of nightly runs."""

CODED_STREAMS = TABLES["coded_streams"]
"""Streams of a published run. Times are multiples of 0.25 us, relative to another column.

The table has no ``stream_index``: a row's position among its client's rows has the same value.
If this encoding cannot restore every value exactly, the table has
``published_streams.PUBLISHED_COLUMNS`` instead.
"""
GAP = next(one for one in CODED_STREAMS if one.name == "longest_gap_s")
SUMS = TABLES["sums"]
"""Bytes read over time by each class of a published run, and by all classes together."""
RECEIVED = TABLES["received"]
"""Progress of parallel downloads of a published run."""


def arrow_schema(columns: tuple[Column, ...], version: int = RECORDS_FORMAT) -> pa.Schema:
    """Return the columns as an Arrow schema, with descriptions in the fields' metadata."""
    return pa.schema(
        [
            pa.field(column.name, column.type, metadata={"description": column.description})
            for column in columns
        ],
        metadata={"format": str(version)},
    )
