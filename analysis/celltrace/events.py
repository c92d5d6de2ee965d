"""The events of a relay's trace as an array, read from Tor's binary file or from LTTng's text.

``cell_trace_file.h`` in the patch series cell-trace defines the binary format: a header of 64
bytes, then records of 24 bytes in the order in which Tor recorded the events.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analysis.errors import AnalysisError

MAGIC = b"TORCELLT"
VERSION = 1
BYTE_ORDER_MARK = 0x0102


class Event(IntEnum):
    """The type of a record.

    The first five are the tracepoints of D. Goulet's measurement of 2019 (see ``statistics.py``).
    CHANNEL announces a channel, with its peer's IPv4 address in ``seq``. END closes the file, with
    the number of all earlier records in ``seq``.
    """

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
class Trace:
    """The trace of one relay.

    Attributes:
        records: records of cells with dtype RECORD in native byte order, in the order of the file,
            shape (n,).
        peers: number of each channel -> IPv4 address of its peer, or None if it is not recorded.
        ended: whether Tor closed the trace; otherwise its last second may be missing.
        cut_bytes: size of the incomplete last record; 0 if all records are complete.
        malformed: number of invalid records, which are excluded from all other numbers.
        first_malformed: position of the first invalid record: a byte offset in a binary file, or a
            line number in a text file; None if all records are valid.
        missing: number of records that the closing record counts but the file lacks.
    """

    records: NDArray[np.void]
    peers: dict[int, str | None]
    ended: bool = False
    cut_bytes: int = 0
    malformed: int = 0
    first_malformed: int | None = None
    missing: int = 0

    def event_counts(self) -> dict[Event, int]:
        """Return the number of records of each type, without CHANNEL and END."""
        counts = np.bincount(self.records["event"], minlength=len(Event) + 1)
        return {event: int(counts[event]) for event in Event if event < Event.CHANNEL}


def read_trace(path: Path) -> Trace:
    """Read the file that Tor writes if its option ``CellTraceFile`` is set.

    All complete records of a truncated file are returned. Records with impossible values, such as
    an unknown event or direction, are excluded and counted.

    Raises:
        AnalysisError: the file is missing, unreadable, empty, truncated in the header, or of
            another format; it continues after its closing record; or more than half of its records
            are invalid.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise AnalysisError(
            f"{path} is missing", "the relay was not traced, or its output was removed"
        ) from None
    header, order = _read_header(content, path)
    count, cut_bytes = divmod(len(content) - HEADER.itemsize, RECORD.itemsize)
    records = np.frombuffer(
        content, RECORD.newbyteorder(order), count=count, offset=HEADER.itemsize
    ).astype(RECORD)
    is_valid = _are_valid(records)
    malformed = int(count - np.count_nonzero(is_valid))
    if 2 * malformed > count:
        raise AnalysisError(
            f"{path}: {malformed} of {count} records are invalid",
            "the file is damaged; run the experiment again",
        )
    valid = records[is_valid]
    ends = np.flatnonzero(valid["event"] == Event.END)
    if ends.size and ends[0] != valid.size - 1:
        raise AnalysisError(
            f"{path} goes on after its closing record", "two programs wrote to the same file"
        )
    return Trace(
        records=valid[valid["event"] < Event.CHANNEL],
        peers=_peers(valid, with_addresses=bool(header["with_addresses"])),
        ended=bool(ends.size),
        cut_bytes=cut_bytes,
        malformed=malformed,
        first_malformed=HEADER.itemsize + int(np.argmin(is_valid)) * RECORD.itemsize
        if malformed
        else None,
        missing=max(0, int(valid["seq"][-1]) - (count - 1)) if ends.size else 0,
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
    if (header["header_size"], header["record_size"]) != (HEADER.itemsize, RECORD.itemsize):
        raise AnalysisError(f"{path}: the sizes in its header are damaged")
    return header, order


def _are_valid(records: NDArray[np.void]) -> NDArray[np.bool_]:
    event = records["event"]
    valid = (event >= Event.INBUF) & (event <= Event.END)
    valid &= (records["direction"] <= OUTWARD) & (records["zero"] == 0)
    # The numbers of cells begin at 1. In CHANNEL and END records, ``seq`` means something else and
    # may be 0.
    result: NDArray[np.bool_] = valid & ((records["seq"] > 0) | (event >= Event.CHANNEL))
    return result


def _peers(records: NDArray[np.void], *, with_addresses: bool) -> dict[int, str | None]:
    channels = records[records["event"] == Event.CHANNEL]
    return {
        int(number): str(ipaddress.IPv4Address(int(address)))
        if with_addresses and address
        else None
        for number, address in zip(channels["channel"], channels["seq"], strict=True)
    }


# Text of babeltrace2, one event per line: [12:00:00.000000001] (+0.000000001) host tor_cell:inbuf:
# { cpu_id = 0 }, { time_ns = 1, ... }
_CELL_LINE = re.compile(
    r"tor_cell:(inbuf|recognized|queue|outbuf|flush|dropped): .*?"
    r"\{ time_ns = (\d+), seq = (\d+), channel = (\d+), "
    r"circ_id = (\d+), command = (\d+), direction = (\d+) \}\s*$"
)
_CHANNEL_LINE = re.compile(
    r"tor_cell:channel: .*?\{ time_ns = \d+, channel = (\d+), is_outgoing = \d+ \}\s*$"
)


def read_lttng_text(path: Path) -> Trace:
    """Read the output of ``babeltrace2 TRACE`` for a session with the events ``tor_cell:*``.

    Events of other providers are ignored. Events that LTTng discarded are missing in the output. A
    cell with a missing event usually has a fate that is not in ``cells.JOINED``.

    Raises:
        AnalysisError: the file is missing, or has no event of a cell.
    """
    peers: dict[int, str | None] = {}
    malformed: list[int] = []

    def read_records() -> Iterator[tuple[int, ...]]:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if "tor_cell:" not in line:
                    continue
                if found := _CELL_LINE.search(line):
                    time_ns, seq, channel, circ, command, direction = map(int, found.groups()[1:])
                    event = Event[found[1].upper()]
                    yield time_ns, seq, channel, circ, event, command, direction, 0
                elif found := _CHANNEL_LINE.search(line):
                    peers[int(found[1])] = None
                else:
                    malformed.append(number)

    try:
        records = np.fromiter(read_records(), RECORD)
    except FileNotFoundError:
        raise AnalysisError(
            f"{path} is missing", "write it with: babeltrace2 TRACE >FILE"
        ) from None
    if not records.size:
        raise AnalysisError(
            f"{path} has no event of a cell",
            "enable the events tor_cell:* and set CellTrace 1 in the relay's torrc",
        )
    return Trace(
        records, peers, malformed=len(malformed), first_malformed=next(iter(malformed), None)
    )
