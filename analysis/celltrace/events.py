"""The events of a relay's trace as an array, from Tor's binary file or from LTTng's text.

The format is that of ``cell_trace_file.h`` in the patch series: a header of 64 bytes, then records
of 24 bytes in the order in which Tor recorded the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analysis.errors import AnalysisError

MAGIC = b"TORCELLT"
VERSION = 1
BYTE_ORDER_MARK = 0x0102


class Event(IntEnum):
    """The type of a record; the first five are the tracepoints of the text of 2019."""

    INBUF = 1
    RECOGNIZED = 2
    QUEUE = 3
    OUTBUF = 4
    FLUSH = 5
    DROPPED = 6
    CHANNEL = 7
    END = 8


RELAY = 3
"""The cell command RELAY (tor-spec, "Cell Packet format")."""
RELAY_EARLY = 9

INWARD = 1
"""Direction: towards the client."""
OUTWARD = 2
"""Direction: away from the client."""

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("byte_order", "u2"),
        ("version", "u2"),
        ("header_size", "u2"),
        ("record_size", "u2"),
        ("start_ns", "u8"),
        ("with_addresses", "u4"),
        ("tor_version", "S36"),
    ]
)
RECORD = np.dtype(
    [
        ("time_ns", "u8"),
        ("seq", "u4"),
        ("channel", "u4"),
        ("circ_id", "u4"),
        ("event", "u1"),
        ("command", "u1"),
        ("direction", "u1"),
        ("zero", "u1"),
    ]
)


@dataclass(frozen=True)
class Channel:
    """One connection of the traced Tor. address: the peer's IPv4 address; None: not recorded."""

    number: int
    address: str | None
    port: int | None
    outgoing: bool


@dataclass(frozen=True)
class Trace:
    """The trace of one relay.

    Attributes:
        records: of cells, dtype RECORD in native byte order, in the order of the file, shape (n,).
        channels: by number.
        tor_version: version of the Tor that wrote it.
        start_ns: start of tracing, nanoseconds since 1970.
        ended: whether Tor closed the trace; otherwise its last second may be missing.
        cut_bytes: bytes of an incomplete last record.
        malformed: number of invalid records, which are excluded from all other numbers.
        first_malformed: offset of the first of them in bytes; None without any.
        missing: number of records that the closing record counts but the file lacks.
    """

    records: NDArray[np.void]
    channels: dict[int, Channel]
    tor_version: str
    start_ns: int
    ended: bool = False
    cut_bytes: int = 0
    malformed: int = 0
    first_malformed: int | None = None
    missing: int = 0


def read_trace(path: Path) -> Trace:
    """Read a file written by a Tor with ``CellTraceFile``.

    A truncated file gives all of its complete records. A record with an impossible event or
    direction is excluded and counted.

    Raises:
        AnalysisError: the file is missing, empty, truncated in the header, of another format, or so
            damaged that more than half of its records are invalid.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise AnalysisError(
            f"{path} is missing", "the relay was not traced, or its output was removed"
        ) from None
    except OSError as error:
        raise AnalysisError(f"{path} cannot be read: {error.strerror}") from None
    header, order = _read_header(content, path)
    body = content[HEADER.itemsize :]
    whole, cut_bytes = divmod(len(body), RECORD.itemsize)
    records = np.frombuffer(body, RECORD.newbyteorder(order), count=whole).astype(RECORD)
    good = _plausible(records)
    malformed = int(whole - np.count_nonzero(good))
    if 2 * malformed > whole:
        raise AnalysisError(
            f"{path}: {malformed} of {whole} records are invalid",
            "the file is damaged; run the experiment again",
        )
    first = int(np.argmin(good)) if malformed else None
    valid = records[good] if malformed else records
    ends = valid[valid["event"] == Event.END]
    if len(ends) > 1 or (len(ends) == 1 and valid["event"][-1] != Event.END):
        raise AnalysisError(
            f"{path} goes on after its closing record", "two programs wrote to the same file"
        )
    return Trace(
        records=valid[valid["event"] < Event.CHANNEL],
        channels=_channels(valid, with_addresses=bool(header["with_addresses"])),
        tor_version=bytes(header["tor_version"]).decode("ascii", "replace"),
        start_ns=int(header["start_ns"]),
        ended=len(ends) == 1,
        cut_bytes=cut_bytes,
        malformed=malformed,
        first_malformed=None if first is None else HEADER.itemsize + first * RECORD.itemsize,
        missing=max(0, int(ends["seq"][0]) - (whole - 1)) if len(ends) == 1 else 0,
    )


def _read_header(content: bytes, path: Path) -> tuple[np.void, Literal["<", ">"]]:
    if not content:
        raise AnalysisError(f"{path} is empty", "Tor was killed before it wrote its trace's header")
    if not content.startswith(MAGIC[: len(content)]):
        raise AnalysisError(f"{path} is not a cell trace: it does not begin with {MAGIC.decode()}")
    if len(content) < HEADER.itemsize:
        raise AnalysisError(f"{path} is truncated in its header, after {len(content)} bytes")
    orders: tuple[Literal["<", ">"], ...] = ("<", ">")
    for order in orders:
        header: np.void = np.frombuffer(content, HEADER.newbyteorder(order), count=1)[0]
        if header["byte_order"] == BYTE_ORDER_MARK:
            break
    else:
        raise AnalysisError(f"{path}: its byte order mark is damaged")
    if header["version"] != VERSION:
        raise AnalysisError(
            f"{path} has format {header['version']}, but this program reads {VERSION}",
            "use the program that belongs to the Tor that wrote it",
        )
    sizes = (int(header["header_size"]), int(header["record_size"]))
    if sizes != (HEADER.itemsize, RECORD.itemsize):
        raise AnalysisError(f"{path}: its header is damaged: sizes {sizes[0]} and {sizes[1]}")
    return header, order


def _plausible(records: NDArray[np.void]) -> NDArray[np.bool_]:
    event, direction = records["event"], records["direction"]
    good = (event >= Event.INBUF) & (event <= Event.END)
    good &= (direction <= OUTWARD) & (records["zero"] == 0)
    # Only CHANNEL and END records may have the cell number 0.
    good &= (records["seq"] > 0) | (event >= Event.CHANNEL)
    result: NDArray[np.bool_] = good
    return result


def _channels(records: NDArray[np.void], *, with_addresses: bool) -> dict[int, Channel]:
    found = {}
    for record in records[records["event"] == Event.CHANNEL]:
        address = int(record["seq"])
        text = ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))
        number = int(record["channel"])
        found[number] = Channel(
            number,
            text if with_addresses and address else None,
            int(record["circ_id"]) if with_addresses and address else None,
            record["direction"] == OUTWARD,
        )
    return found


def write_trace(path: Path, trace: Trace) -> None:
    """Write a trace as Tor would, for tests and imports."""
    header = np.zeros(1, HEADER)
    header["magic"] = MAGIC
    header["byte_order"] = BYTE_ORDER_MARK
    header["version"] = VERSION
    header["header_size"] = HEADER.itemsize
    header["record_size"] = RECORD.itemsize
    header["start_ns"] = trace.start_ns
    with_addresses = any(channel.address for channel in trace.channels.values())
    header["with_addresses"] = with_addresses
    header["tor_version"] = trace.tor_version.encode("ascii", "replace")
    channels = np.zeros(len(trace.channels), RECORD)
    for row, channel in zip(channels, trace.channels.values(), strict=True):
        row["event"] = Event.CHANNEL
        row["time_ns"] = trace.start_ns
        row["channel"] = channel.number
        row["direction"] = OUTWARD if channel.outgoing else INWARD
        if channel.address is not None:
            row["seq"] = int.from_bytes(bytes(map(int, channel.address.split("."))), "big")
            row["circ_id"] = channel.port or 0
    parts = [header.tobytes(), channels.tobytes(), trace.records.astype(RECORD).tobytes()]
    if trace.ended:
        end = np.zeros(1, RECORD)
        end["event"] = Event.END
        end["seq"] = len(channels) + len(trace.records)
        parts.append(end.tobytes())
    path.write_bytes(b"".join(parts))


# Text of babeltrace2, one event per line: [12:00:00.000000001] (+0.000000001) host tor_cell:inbuf:
# { cpu_id = 0 }, { time_ns = 1, ... }
_LINE = re.compile(
    r"tor_cell:(?P<event>[a-z]+): .*?"
    r"\{ time_ns = (?P<time>\d+), seq = (?P<seq>\d+), channel = (?P<channel>\d+), "
    r"circ_id = (?P<circ>\d+), command = (?P<command>\d+), direction = (?P<direction>\d+) \}\s*$"
)
_CHANNEL_LINE = re.compile(
    r"tor_cell:channel: .*?"
    r"\{ time_ns = (?P<time>\d+), channel = (?P<channel>\d+), "
    r"is_outgoing = (?P<outgoing>\d+) \}\s*$"
)
_LTTNG_EVENTS = {
    event.name.lower(): event for event in Event if event not in (Event.CHANNEL, Event.END)
}
_BATCH_LINES = 1 << 16


def read_lttng_text(path: Path) -> Trace:
    """Read the output of ``babeltrace2 TRACE`` for a session with the events ``tor_cell:*``.

    Events of other providers are ignored. LTTng reports discarded events on its standard error; the
    affected cells are counted as incomplete.

    Raises:
        AnalysisError: the file is missing, or has no event of a cell.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return _parse_lttng(lines, path)
    except FileNotFoundError:
        raise AnalysisError(
            f"{path} is missing", "write it with: babeltrace2 TRACE >FILE"
        ) from None


def _parse_lttng(lines: Iterable[str], path: Path) -> Trace:
    parts: list[NDArray[np.void]] = []
    channels: dict[int, Channel] = {}
    malformed, first_malformed = 0, None
    stream = iter(lines)
    number = 0
    for batch in iter(lambda: list(islice(stream, _BATCH_LINES)), []):
        rows: list[tuple[int, ...]] = []
        for line in batch:
            number += 1
            if "tor_cell:" not in line:
                continue
            found = _LINE.search(line)
            event = _LTTNG_EVENTS.get(found["event"]) if found else None
            if found and event is not None:
                rows.append((int(found["time"]), int(found["seq"]), int(found["channel"]),
                             int(found["circ"]), event, int(found["command"]),
                             int(found["direction"]), 0))  # fmt: skip
            elif channel := _CHANNEL_LINE.search(line):
                key = int(channel["channel"])
                channels[key] = Channel(key, None, None, channel["outgoing"] != "0")
            else:
                malformed += 1
                first_malformed = first_malformed or number
        parts.append(np.array(rows, RECORD))
    records = np.concatenate(parts) if parts else np.zeros(0, RECORD)
    if not len(records):
        raise AnalysisError(
            f"{path} has no event of a cell",
            "enable the events tor_cell:* and set CellTrace 1 in the relay's torrc",
        )
    return Trace(
        records=records,
        channels=channels,
        tor_version="",
        start_ns=int(records["time_ns"].min()),
        malformed=malformed,
        first_malformed=first_malformed,
    )


def count_events(traces: Iterable[Trace]) -> Iterator[tuple[Event, int]]:
    """Yield how often each event of a cell occurs in some traces."""
    totals = np.zeros(Event.END + 1, np.int64)
    for trace in traces:
        totals += np.bincount(trace.records["event"], minlength=Event.END + 1)
    for event in Event:
        if event < Event.CHANNEL:
            yield event, int(totals[event])
