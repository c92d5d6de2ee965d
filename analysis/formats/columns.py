"""Columns of the record tables. Names end with units: ``_s`` seconds, ``_bytes`` bytes.

Times on the simulated clock (``start_s``, ``end_s``, ``time_s``) are relative to the start of the
simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.formats.files import RECORDS_FORMAT
from analysis.formats.format_model import LARGEST_NUMBER, LARGEST_VALUE


class Outcome(StrEnum):
    """The outcome of a stream. ``error`` contains TGen's own name for more detail."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    """The stream's absolute timeout passed, in the stream or already in the SOCKS handshake."""
    STALL = "stall"
    """No byte was transferred for the stallout time."""
    PROXY_ERROR = "proxy-error"
    """Connecting or the SOCKS handshake failed (Tor could not build or attach a circuit)."""
    CLOSED = "closed"
    """The other end closed the connection early."""
    CONNECTION_ERROR = "connection-error"
    """Reading or writing failed."""
    PROTOCOL_ERROR = "protocol-error"
    """TGen's own handshake, model, checksum or footer was wrong."""
    OTHER_ERROR = "other-error"
    OPEN = "open"
    """Still in progress when its log ended."""
    UNKNOWN = "unknown"
    """TGen's counters include the stream, but its line is missing or malformed."""


FAILURES = (
    Outcome.TIMEOUT,
    Outcome.STALL,
    Outcome.PROXY_ERROR,
    Outcome.CLOSED,
    Outcome.CONNECTION_ERROR,
    Outcome.PROTOCOL_ERROR,
    Outcome.OTHER_ERROR,
)


MAX_BYTES = 2**53
"""Doubles represent every number of bytes up to here exactly."""


@dataclass(frozen=True)
class Column:
    """One column: its type, its meaning, and its possible values.

    Attributes:
        name: with its unit.
        type: Arrow's type.
        description: is part of the file and its bytes. It never changes, even if a module that it
            names moves.
        meaning: used by the reference documentation if the description would mislead.
        optional: whether a row may lack a value, such as a stream without a first byte.
        signed: whether values may be negative.
        not_before: a column whose value is never larger in the same row.
        choices: the only possible values of a text; empty: any text.
        is_key: whether it is part of the key, which is unique in a table.
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
        """Lowest and highest value of a numeric column; integers for integers."""
        most: float = 2**63 - 1
        if pa.types.is_floating(self.type):
            most = LARGEST_NUMBER if self.name.endswith("_s") else LARGEST_VALUE
        if "bytes" in self.name:
            most = MAX_BYTES
        return (-most if self.signed else 0), most


_NAME = pa.dictionary(pa.int32(), pa.string())

STREAMS: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client", is_key=True),
    Column("class", _NAME, "traffic class of the client (clients.json)"),
    Column(
        "stream_index",
        pa.int32(),
        "number of the stream within its client, by start, from 0",
        is_key=True,
    ),
    Column("stream_id", pa.int64(), "tgen's own number of the stream"),
    Column("server", _NAME, "name of the server; null if not known", optional=True),
    Column("start_s", pa.float64(), "creation of the stream; middle of the interval if not exact"),
    Column(
        "start_resolution_s", pa.float64(), "width of the interval that holds start_s; 0: exact"
    ),
    Column(
        "time_to_proxy_reply_s",
        pa.float64(),
        "start to the SOCKS reply (circuit, connect)",
        optional=True,
    ),
    Column(
        "ttfb_from_start_s",
        pa.float64(),
        "start to first payload byte (OnionPerf's definition)",
        optional=True,
    ),
    Column(
        "ttfb_from_command_s",
        pa.float64(),
        "command sent to first payload byte (tgentools')",
        optional=True,
    ),
    Column(
        "ttfb_resolution_s",
        pa.float64(),
        "width of the interval that holds ttfb_from_start_s",
        optional=True,
    ),
    Column("time_to_320kib_s", pa.float64(), "start to payload byte 327680", optional=True),
    Column(
        "time_to_last_byte_s",
        pa.float64(),
        "start to the last requested payload byte",
        optional=True,
    ),
    Column(
        "bytes_requested",
        pa.int64(),
        "payload asked for; null if open-ended or not known",
        optional=True,
    ),
    Column(
        "bytes_received",
        pa.int64(),
        "payload received (open: from heartbeats, with ~100 B extra)",
        optional=True,
    ),
    Column(
        "outcome",
        _NAME,
        "see analysis.schema.Outcome",
        f"one of: {', '.join(Outcome)}",
        choices=tuple(Outcome),
    ),
    Column("error", _NAME, "tgen's name of the error; null if none", optional=True),
    Column(
        "end_s",
        pa.float64(),
        "end of the observation: end of the stream, or of the log",
        not_before="start_s",
    ),
)

GOODPUT: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client"),
    Column("class", _NAME, "traffic class of the client (clients.json)"),
    Column("time_s", pa.float64(), "time of the heartbeat"),
    Column("interval_s", pa.float64(), "time since the heartbeat before, or since the log's start"),
    Column(
        "bytes_read",
        pa.int64(),
        "bytes read from sockets in the interval (docs/metrics.md)",
        "bytes read from sockets in the interval",
    ),
    Column("bytes_written", pa.int64(), "bytes written to sockets in the interval"),
    Column("streams_created", pa.int32(), "streams created in the interval"),
    Column("streams_succeeded", pa.int32(), "streams that succeeded in the interval"),
    Column("streams_failed", pa.int32(), "streams that failed in the interval"),
)


PROGRESS: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client"),
    Column("class", _NAME, "traffic class of the client (clients.json)"),
    Column("stream_index", pa.int32(), "number of the stream within its client, as in streams"),
    Column(
        "time_s",
        pa.float64(),
        "when payload came; see tgenlog.Progress for which times",
        "time of arrival: one per tenth of a second, and both ends of each longer gap",
    ),
    Column("bytes_received", pa.int64(), "payload that the stream had received by then"),
)
"""Progress of streams. The table is missing if the logs have no stream-status lines."""


PEERS: tuple[Column, ...] = (
    Column("host", _NAME, "host name of the peer"),
    Column("role", _NAME, "seed or downloader"),
    Column("time_s", pa.float64(), "time of the line"),
    Column(
        "kind",
        _NAME,
        "see analysis.peerlog.Kind; says which columns are not null",
        "kind of the line, which determines the non-null columns (analysis.records.peerlog.Kind)",
    ),
    Column("socket", pa.int32(), "number of the uTP socket within its log, from 1", optional=True),
    Column(
        "event",
        _NAME,
        "see analysis.peerlog.UtpEvent",
        "reason for the line (analysis.records.peerlog.UtpEvent)",
        optional=True,
    ),
    Column("window_bytes", pa.int64(), "congestion window", optional=True),
    Column(
        "in_flight_bytes", pa.int64(), "most payload in flight since the line before", optional=True
    ),
    Column("advertised_bytes", pa.int64(), "window that the other end advertises", optional=True),
    Column("waiting_bytes", pa.int64(), "payload that waits to be sent", optional=True),
    Column("delay_s", pa.float64(), "newest one-way delay above its base", optional=True),
    Column("slow_start", pa.bool_(), "of the socket, or of the requests", optional=True),
    Column("target_requests", pa.int32(), "how many blocks are to be requested", optional=True),
    Column("outstanding_requests", pa.int32(), "how many blocks are requested", optional=True),
    Column(
        "rate_bytes_per_s", pa.int64(), "download rate as the request rule knows it", optional=True
    ),
    Column(
        "received_bytes", pa.int64(), "payload received so far, over all downloads", optional=True
    ),
    Column("text", pa.string(), "of lines about connections and downloads", optional=True),
)


CELLS: tuple[Column, ...] = (
    Column("relay", _NAME, "host name of the relay"),
    Column("role", _NAME, "its role: exitguard, guard, exit or middle"),
    Column("seq", pa.int64(), "the cell's number at this relay"),
    Column("command", pa.uint8(), "the cell's command (3: RELAY)"),
    Column("direction", pa.uint8(), "1: to the client, 2: from it, 0: not known"),
    Column(
        "fate",
        pa.uint8(),
        "see analysis.celltrace.cells.Fate",
        "fate of the cell: number of analysis.celltrace.cells.Fate",
    ),
    Column(
        "circuit_channel",
        pa.int64(),
        "channel of its circuit's side towards the client",
        optional=True,
    ),
    Column("circuit_id", pa.int64(), "circuit ID on that channel", optional=True),
    # A damaged trace may contain times before the start.
    Column(
        "inbuf_ns",
        pa.int64(),
        "simulated time of the event; null without one",
        optional=True,
        signed=True,
    ),
    Column(
        "recognized_ns",
        pa.int64(),
        "simulated time of the event; null without one",
        optional=True,
        signed=True,
    ),
    Column(
        "queue_ns",
        pa.int64(),
        "simulated time of the event; null without one",
        optional=True,
        signed=True,
    ),
    Column(
        "outbuf_ns",
        pa.int64(),
        "simulated time of the event; null without one",
        optional=True,
        signed=True,
    ),
    Column(
        "flush_ns",
        pa.int64(),
        "simulated time of the event; null without one",
        optional=True,
        signed=True,
    ),
)

ARRIVALS: tuple[Column, ...] = (
    Column("relay", _NAME, "host name of the relay that sent the cell"),
    Column("seq", pa.int64(), "the cell's number at this relay, as in cells.parquet"),
    Column("channel", pa.int64(), "channel of this relay on which the cell went"),
    Column("arrived_ns", pa.int64(), "simulated time at which the next relay read it", signed=True),
)
"""Cells that one traced relay sent and another one read."""

RELAY_TIME: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client"),
    Column("class", _NAME, "its traffic class"),
    Column("stream_index", pa.int32(), "as in streams.parquet"),
    Column("start_s", pa.float64(), "as in streams.parquet"),
    Column("ttfb_s", pa.float64(), "ttfb_from_start_s of streams.parquet"),
    Column(
        "leg",
        _NAME,
        "BEGIN, CONNECTED, request or first answer; null if not followed",
        optional=True,
    ),
    Column(
        "position", pa.int8(), "0: guard, 1: middle, 2: exit; null if not followed", optional=True
    ),
    Column("relay", _NAME, "where the cell was; null if not followed", optional=True),
    Column("role", _NAME, "that relay's role", optional=True),
    Column(
        "inbuf_queue_s",
        pa.float64(),
        "time there from inbuf to queue, or until recognized",
        optional=True,
    ),
    Column("queue_outbuf_s", pa.float64(), "time there from queue to outbuf", optional=True),
    Column("outbuf_flush_s", pa.float64(), "time there from outbuf to flush", optional=True),
    Column("problem", _NAME, "why the chain was not followed; null if it was", optional=True),
)


PERF: tuple[Column, ...] = (
    Column("client", _NAME, "host name of the client", is_key=True),
    Column("class", _NAME, "its traffic class"),
    Column("stream_index", pa.int32(), "as in streams.parquet", is_key=True),
    Column("end_s", pa.float64(), "time of the line that tells of its end"),
    Column("success", pa.bool_(), "whether TGen calls it a success"),
    Column("error", _NAME, "tgentools' name of the error; null if none", optional=True),
    Column("payload_bytes", pa.int64(), "payload received"),
    Column("response_s", pa.float64(), "command sent to the server's response", optional=True),
    Column("first_byte_s", pa.float64(), "command sent to first payload byte", optional=True),
    Column(
        "last_byte_s", pa.float64(), "command sent to the last payload byte so far", optional=True
    ),
    Column("at_500kib_s", pa.float64(), "start to payload byte 512000", optional=True),
    Column("at_1mib_s", pa.float64(), "start to payload byte 1048576", optional=True),
    Column(
        "at_4mib_s",
        pa.float64(),
        "start to 80.00% of 5 MiB, as TGen rounds it: payload byte 4194042",
        optional=True,
    ),
    Column("at_5mib_s", pa.float64(), "start to payload byte 5242880", optional=True),
)
"""Streams of perf clients that ended, with the times that tgentools extracts from the log."""


CIRCUITS: tuple[Column, ...] = (
    Column("host", _NAME, "host name of the Tor that made it", is_key=True),
    Column("role", _NAME, "the host's role (hosts.json)"),
    Column(
        "class", _NAME, "traffic class of a client (clients.json); null elsewhere", optional=True
    ),
    Column("circuit_id", pa.int64(), "Tor's number of the circuit", is_key=True),
    Column("purpose", _NAME, "its PURPOSE when it was built or failed", optional=True),
    Column("hops", pa.int16(), "relays of its path then"),
    Column("launched_s", pa.float64(), "time of the line LAUNCHED; null without", optional=True),
    Column("created_s", pa.float64(), "its TIME_CREATED then", optional=True),
    Column(
        "end_s",
        pa.float64(),
        "time of the line that tells the result; null: open",
        optional=True,
        not_before="created_s",
    ),
    Column("duration_s", pa.float64(), "created_s to end_s", optional=True),
    Column("result", _NAME, "built, failed, closed before either, or open when the log ends"),
    Column("reason", _NAME, "Tor's REASON why it failed or was closed", optional=True),
    Column("built_again", pa.int32(), "further lines BUILT: cannibalized for another purpose"),
    Column("failed_again", pa.int32(), "lines FAILED after the result"),
)
"""Circuits observed by OnionTrace. The clocks of Tor and OnionTrace are the simulated one."""


RELAY_BYTES: tuple[Column, ...] = (
    Column("host", _NAME, "host name of the relay"),
    Column("role", _NAME, "its role (hosts.json)"),
    Column("time_s", pa.float64(), "time of the line; it counts for the second before"),
    Column("bytes_read", pa.int64(), "bytes that Tor read in the second"),
    Column("bytes_written", pa.int64(), "bytes that Tor wrote in the second"),
)
"""OnionTrace's BW lines for relays and authorities."""


HISTORY_FORMAT = 1
"""Version of the history of nightly runs."""

HISTORY: tuple[Column, ...] = (
    Column("night", pa.string(), "when it began, UTC"),
    Column("experiment", pa.string(), "name of the experiment"),
    Column("level", pa.string(), "name of the level"),
    Column("variant", pa.string(), "name of the variant"),
    Column("class", pa.string(), "traffic class"),
    Column("metric", pa.string(), "name of the metric, with its unit"),
    Column("key", pa.string(), "hash of engine, network and definitions: a series has one"),
    Column("project", pa.string(), "version and commit of this project"),
    Column("tor", pa.string(), "versions of Tor"),
    Column("seeds", pa.list_(pa.int64()), "the night's seeds"),
    Column("values", pa.list_(pa.float64()), "the metric's value for each seed; null: none"),
    Column(
        "estimate",
        pa.float64(),
        "mean of the values; null where any is missing",
        optional=True,
        signed=True,
    ),
    Column("records", pa.string(), "hashes of the records of all runs of the level and variant"),
    Column(
        "verdict", pa.string(), "grade against the baseline, or worse or better; empty without one"
    ),
)


def arrow_schema(columns: tuple[Column, ...], version: int = RECORDS_FORMAT) -> pa.Schema:
    """Return the columns as an Arrow schema, with descriptions in the fields' metadata."""
    return pa.schema(
        [
            pa.field(column.name, column.type, metadata={"description": column.description})
            for column in columns
        ],
        metadata={"format": str(version)},
    )
