"""Parser for the log of a libtorrent peer; libtorrent-patches/README.md describes its lines.

The first line contains the format; every other line is a time, a kind and the fields of this kind,
separated by single spaces. Any other line is counted and reported, but never interpreted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from analysis.formats.record_files import Example
from analysis.records.logfile import MAX_LINE_BYTES, is_in_run

FORMAT = 1
HEADER = re.compile(rb"onionlab-peer (\d{1,9})((?: [a-z_]+=\S+)+)\Z")
MAX_EXAMPLES = 5


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

_TIME = rb"(\d{1,18}) "
_NUMBER = rb"(\d{1,15})"
_EVENTS = b"|".join(event.value.encode() for event in UtpEvent)
_PATTERNS: dict[bytes, tuple[Kind, re.Pattern[bytes], tuple[str, ...]]] = {
    b"utp": (
        Kind.UTP,
        re.compile(
            _TIME + rb"utp (\d{1,9}) (" + _EVENTS + rb") N N N N N ([01])\Z".replace(b"N", _NUMBER)
        ),
        (
            *("socket", "event", "window_bytes", "in_flight_bytes", "advertised_bytes"),
            *("waiting_bytes", "delay_us", "slow_start"),
        ),
    ),
    b"requests": (
        Kind.REQUESTS,
        re.compile(_TIME + rb"requests (\d{1,9}) (\d{1,9}) (\d{1,15}) ([01])\Z"),
        ("target_requests", "outstanding_requests", "rate_bytes_per_s", "slow_start"),
    ),
    b"received": (
        Kind.RECEIVED,
        re.compile(_TIME + rb"received (\d{1,15})\Z"),
        ("received_bytes",),
    ),
    b"beat": (Kind.BEAT, re.compile(_TIME + rb"beat (\d{1,15})\Z"), ("received_bytes",)),
    b"connected": (Kind.CONNECTED, re.compile(_TIME + rb"connected (\S+)\Z"), ("text",)),
    b"disconnected": (
        Kind.DISCONNECTED,
        re.compile(_TIME + rb"disconnected (\S+ .*)\Z"),
        ("text",),
    ),
    b"download": (
        Kind.DOWNLOAD,
        re.compile(
            _TIME + rb"download (\d{1,9} (?:start \S+|first|done \d{1,15}|timeout \d{1,15}))\Z"
        ),
        ("text",),
    ),
}
_TEXTS = frozenset({"event", "text"})

Entry = dict[str, Any]


@dataclass
class PeerLog:
    """The content of one log.

    Attributes:
        epoch_us: start of the run, as Unix time in microseconds.
        header: names and values of the first line; empty until it is read.
        entries: one for each other line, in order: ``time_us`` (Unix time), ``kind`` and the fields
            of the kind.
        lines: number of lines, including the first.
        malformed: number of lines that were not understood.
        examples: the first few malformed lines.
    """

    epoch_us: int = 0
    header: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    lines: int = 0
    malformed: int = 0
    examples: list[Example] = field(default_factory=list)

    def feed(self, lines: Iterable[bytes]) -> None:
        """Parse complete lines without their newlines."""
        for line in lines:
            self.lines += 1
            if len(line) > MAX_LINE_BYTES:
                reason = f"the line is longer than {MAX_LINE_BYTES} bytes"
            else:
                reason = self._parse_header(line) if self.lines == 1 else self._parse_entry(line)
            if reason:
                self._reject(line, reason)

    def feed_tail(self, tail: bytes) -> None:
        """Count the bytes after the last newline as malformed, since they may be incomplete."""
        self.lines += 1
        self._reject(tail, "the line is cut")

    def _parse_header(self, line: bytes) -> str:
        match = HEADER.match(line)
        if match is None:
            return "not the first line of a peer's log"
        if int(match[1]) != FORMAT:
            return f"format {int(match[1])}, this program reads {FORMAT}"
        words = match[2].decode("ascii", "replace").split(" ")[1:]
        self.header = dict(word.split("=", 1) for word in words)
        return ""

    def _parse_entry(self, line: bytes) -> str:
        words = line.split(b" ", 2)
        if len(words) < 2 or words[1] not in _PATTERNS:
            return "unknown kind of line"
        kind, pattern, names = _PATTERNS[words[1]]
        match = pattern.match(line)
        if match is None:
            return f"not a line of kind {kind.value}"
        time_us = int(match[1])
        if self.entries and time_us < self.entries[-1]["time_us"]:
            return "the time goes back"
        if not is_in_run(time_us, self.epoch_us):
            return "the time is outside of the run"
        entry: Entry = {"time_us": time_us, "kind": kind.value}
        for name, value in zip(names, match.groups()[1:], strict=True):
            entry[name] = value.decode("utf-8", "replace") if name in _TEXTS else int(value)
        self.entries.append(entry)
        return ""

    def _reject(self, line: bytes, reason: str) -> None:
        self.malformed += 1
        if len(self.examples) < MAX_EXAMPLES:
            text = line[:200].decode("utf-8", "replace")
            self.examples.append(Example(self.lines, reason, text))
