"""Parser for the log of a libtorrent peer; libtorrent-patches/README.md describes its lines.

The first line contains the format. Each further line consists of a time, a kind and the fields of
this kind, separated by single spaces. A line without this form is counted and reported, but never
interpreted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from analysis.formats.run_files import RunClock
from analysis.records.logfile import Log, MalformedError

FORMAT = 1
HEADER = re.compile(rb"onionlab-peer (\d{1,9})((?: [a-z_]+=\S+)+)\Z")

MAX_SILENCE_S = 2.0
"""Maximum time from the last line of a log to the end of its run. A peer logs every second."""


class Kind(StrEnum):
    """The kind of a line."""

    UTP = "utp"
    REQUESTS = "requests"
    RECEIVED = "received"
    BEAT = "beat"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    DOWNLOAD = "download"


class UtpEvent(StrEnum):
    """The reason for logging the state of a socket."""

    PROGRESS = "progress"
    END_BY_DELAY = "end-by-delay"
    END_BY_LOSS = "end-by-loss"
    END_BY_THRESHOLD = "end-by-threshold"
    BEGIN_BY_TIMEOUT = "begin-by-timeout"


ENDS = (UtpEvent.END_BY_DELAY, UtpEvent.END_BY_LOSS, UtpEvent.END_BY_THRESHOLD)
"""The events that end slow start."""

_EVENTS = b"|".join(event.value.encode() for event in UtpEvent)
_FIELDS: dict[Kind, tuple[bytes, tuple[str, ...]]] = {
    Kind.UTP: (
        rb"(\d{1,9}) (" + _EVENTS + rb") N N N N N ([01])",
        (
            *("socket", "event", "window_bytes", "in_flight_bytes", "advertised_bytes"),
            *("waiting_bytes", "delay_us", "slow_start"),
        ),
    ),
    Kind.REQUESTS: (
        rb"(\d{1,9}) (\d{1,9}) N ([01])",
        ("target_requests", "outstanding_requests", "rate_bytes_per_s", "slow_start"),
    ),
    Kind.RECEIVED: (rb"N", ("received_bytes",)),
    Kind.BEAT: (rb"N", ("received_bytes",)),
    Kind.CONNECTED: (rb"(\S+)", ("text",)),
    Kind.DISCONNECTED: (rb"(\S+ .*)", ("text",)),
    Kind.DOWNLOAD: (rb"(\d{1,9} (?:start \S+|first|done \d{1,15}|timeout \d{1,15}))", ("text",)),
}
"""Kind -> the pattern of the kind's fields (N means a number), and the names of these fields."""
_PATTERNS = {
    kind.encode(): (
        re.compile(rb"(\d{1,18}) %b %b\Z" % (kind.encode(), fields.replace(b"N", rb"(\d{1,15})"))),
        names,
    )
    for kind, (fields, names) in _FIELDS.items()
}
_TEXTS = frozenset({"event", "text"})

Entry = dict[str, Any]


@dataclass
class PeerLog(Log):
    """The content of one log.

    Attributes:
        header: names and values of the first line; empty until this line is read.
        entries: one for each further line, in order, with ``time_us`` (Unix time), ``kind`` and the
            fields of the kind.
    """

    header: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    encoding: ClassVar[tuple[str, str]] = ("utf-8", "replace")

    @property
    def understood(self) -> int:
        return len(self.entries)

    def damage(self, clock: RunClock) -> str | None:
        """Return a message if the log ends before its run, else None."""
        return clock.early_end(self.entries[-1]["time_us"], MAX_SILENCE_S) if self.entries else None

    def feed_tail(self, tail: bytes) -> None:
        """Count the bytes after the last newline as a malformed line, as they may be incomplete."""
        super().feed_tail(tail)
        self.reject(tail, "the line is cut")

    def parse(self, line: bytes) -> None:
        """Parse one line. The first line is the header."""
        if self.lines > 1:
            self._parse_entry(line)
            return
        match = HEADER.match(line)
        if match is None:
            raise MalformedError("not the first line of a peer's log")
        if int(match[1]) != FORMAT:
            raise MalformedError(f"format {int(match[1])}, this program reads {FORMAT}")
        words = match[2].decode("ascii", "replace").split(" ")[1:]
        self.header = dict(word.split("=", 1) for word in words)

    def _parse_entry(self, line: bytes) -> None:
        words = line.split(b" ", 2)
        if len(words) < 2 or words[1] not in _PATTERNS:
            raise MalformedError("unknown kind of line")
        pattern, names = _PATTERNS[words[1]]
        kind = words[1].decode()
        match = pattern.match(line)
        if match is None:
            raise MalformedError(f"not a line of kind {kind}")
        time_us = int(match[1])
        if self.entries and time_us < self.entries[-1]["time_us"]:
            raise MalformedError("the time goes back")
        self.require_in_run(time_us)
        entry: Entry = {"time_us": time_us, "kind": kind}
        for name, value in zip(names, match.groups()[1:], strict=True):
            entry[name] = value.decode("utf-8", "replace") if name in _TEXTS else int(value)
        self.entries.append(entry)
