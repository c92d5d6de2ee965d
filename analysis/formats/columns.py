"""Columns of the record tables. Units stand in the names: ``_s`` seconds, ``_bytes`` bytes.

Times on the simulated clock (``start_s``, ``end_s``, ``time_s``) count from the simulation's start.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa  # type: ignore[import-untyped]

FORMAT = 1
"""Version of the record tables and of parse.json."""


class Outcome(StrEnum):
    """What became of a stream. ``error`` keeps tgen's own name for the finer kind."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    """The stream's absolute timeout passed, in the stream or already in the SOCKS handshake."""
    STALL = "stall"
    """No byte moved for the stallout time."""
    PROXY_ERROR = "proxy-error"
    """Connecting or the SOCKS handshake failed (Tor could not build or attach a circuit)."""
    CLOSED = "closed"
    """The other end closed the connection early."""
    CONNECTION_ERROR = "connection-error"
    """Reading or writing failed."""
    PROTOCOL_ERROR = "protocol-error"
    """tgen's own handshake, model, checksum or footer was wrong."""
    OTHER_ERROR = "other-error"
    OPEN = "open"
    """Still in progress when its log ended."""
    UNKNOWN = "unknown"
    """Created by tgen's counters, but its line is missing or malformed."""


FAILURES = (
    Outcome.TIMEOUT,
    Outcome.STALL,
    Outcome.PROXY_ERROR,
    Outcome.CLOSED,
    Outcome.CONNECTION_ERROR,
    Outcome.PROTOCOL_ERROR,
    Outcome.OTHER_ERROR,
)

_BY_STREAM_ERROR = {
    "TIMEOUT": Outcome.TIMEOUT,
    "STALLOUT": Outcome.STALL,
    "READEOF": Outcome.CLOSED,
    "WRITEEOF": Outcome.CLOSED,
    "READ": Outcome.CONNECTION_ERROR,
    "WRITE": Outcome.CONNECTION_ERROR,
    "MISC": Outcome.CONNECTION_ERROR,
    "AUTH": Outcome.PROTOCOL_ERROR,
    "MODEL": Outcome.PROTOCOL_ERROR,
    "CHECKSUM": Outcome.PROTOCOL_ERROR,
    "FOOTER": Outcome.PROTOCOL_ERROR,
}
_BY_TRANSPORT_ERROR = {"TIMEOUT": Outcome.TIMEOUT, "STALLOUT": Outcome.STALL}


def classify(success: bool, error: str, transport_error: str) -> tuple[Outcome, str]:
    """Outcome and error name of an ended stream.

    The names are those of ``_tgenstream_errorToString`` and, behind ``PROXY-``, those of
    ``_tgentransport_errorToString``. A timeout before the transport made any progress is logged as
    PROXY with the transport's error TIMEOUT: it is a timeout all the same.
    """
    if success:
        return Outcome.SUCCESS, ""
    if error == "PROXY":
        outcome = _BY_TRANSPORT_ERROR.get(transport_error, Outcome.PROXY_ERROR)
        return outcome, f"PROXY-{transport_error}"
    if error.startswith("HEADER"):
        return Outcome.PROTOCOL_ERROR, error
    return _BY_STREAM_ERROR.get(error, Outcome.OTHER_ERROR), error


@dataclass(frozen=True)
class Column:
    """One column: its type and what it means."""

    name: str
    type: pa.DataType
    description: str


_NAME = pa.dictionary(pa.int32(), pa.string())

STREAMS: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client"),
    Column("class", _NAME, "traffic class of the client (clients.json)"),
    Column("stream_index", pa.int32(), "number of the stream within its client, by start, from 0"),
    Column("stream_id", pa.int64(), "tgen's own number of the stream"),
    Column("server", _NAME, "name of the server; null if not known"),
    Column("start_s", pa.float64(), "creation of the stream; middle of the interval if not exact"),
    Column(
        "start_resolution_s", pa.float64(), "width of the interval that holds start_s; 0: exact"
    ),
    Column("time_to_proxy_reply_s", pa.float64(), "start to the SOCKS reply (circuit, connect)"),
    Column(
        "ttfb_from_start_s", pa.float64(), "start to first payload byte (OnionPerf's definition)"
    ),
    Column("ttfb_from_command_s", pa.float64(), "command sent to first payload byte (tgentools')"),
    Column("ttfb_resolution_s", pa.float64(), "width of the interval that holds ttfb_from_start_s"),
    Column("time_to_320kib_s", pa.float64(), "start to payload byte 327680"),
    Column("time_to_last_byte_s", pa.float64(), "start to the last requested payload byte"),
    Column("bytes_requested", pa.int64(), "payload asked for; null if open-ended or not known"),
    Column(
        "bytes_received", pa.int64(), "payload received (open: from heartbeats, with ~100 B extra)"
    ),
    Column("outcome", _NAME, "see analysis.schema.Outcome"),
    Column("error", _NAME, "tgen's name of the error; null if none"),
    Column("end_s", pa.float64(), "end of the observation: end of the stream, or of the log"),
)

GOODPUT: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client"),
    Column("class", _NAME, "traffic class of the client (clients.json)"),
    Column("time_s", pa.float64(), "time of the heartbeat"),
    Column("interval_s", pa.float64(), "time since the heartbeat before, or since the log's start"),
    Column("bytes_read", pa.int64(), "bytes read from sockets in the interval (docs/metrics.md)"),
    Column("bytes_written", pa.int64(), "bytes written to sockets in the interval"),
    Column("streams_created", pa.int32(), "streams created in the interval"),
    Column("streams_succeeded", pa.int32(), "streams that succeeded in the interval"),
    Column("streams_failed", pa.int32(), "streams that failed in the interval"),
)


PROGRESS: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client"),
    Column("class", _NAME, "traffic class of the client (clients.json)"),
    Column("stream_index", pa.int32(), "number of the stream within its client, as in streams"),
    Column("time_s", pa.float64(), "when payload came; see tgenlog.Progress for which times"),
    Column("bytes_received", pa.int64(), "payload that the stream had received by then"),
)
"""How the streams came along. There is no such table where logs have no stream-status lines."""


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The columns as an Arrow schema; descriptions go into the fields' metadata."""
    return pa.schema(
        [
            pa.field(column.name, column.type, metadata={"description": column.description})
            for column in columns
        ],
        metadata={"format": str(FORMAT)},
    )
