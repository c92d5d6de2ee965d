"""The grammar of OnionTrace's log lines, and the circuits and bytes in one log.

Every line of OnionTrace 1.0 is written by ``_oniontracelogger_log`` (oniontrace-logger.c)::

    2000-01-01 00:05:37 946685137.865305 [default] [FUNCTION] TEXT

Two texts carry data, each one line of Tor's control port (control-spec, 4.1)::

    Logger: 650 BW BYTES-READ BYTES-WRITTEN
    Logger: 650 CIRC NUMBER STATUS [PATH] KEY=VALUE ...

OnionTrace subscribes to them once Tor has bootstrapped, so earlier events are not in the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from analysis.formats.record_files import Example
from analysis.records.logfile import MAX_LINE_BYTES
from analysis.records.tgenlog import (
    MAX_EXAMPLES,
    MalformedError,
    require_bytes,
    require_in_run,
)

_PREFIX = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (\d{1,12})\.(\d{6}) \[[a-z]+\] \[[^\[\]]*\] "
_ANY_LINE = re.compile(_PREFIX)
_STARTED = re.compile(rb"Starting OnionTrace .* on host ([A-Za-z0-9_.-]{1,128}) process id ")
_EVENT = b"Logger: 650 "
_BYTES = re.compile(_PREFIX + _EVENT + rb"BW (\d{1,18}) (\d{1,18})(?: |\Z)")
_CIRCUIT = re.compile(_PREFIX + _EVENT + rb"CIRC (\d{1,18}) ([A-Z_]+)(?: (.*))?\Z")
_CREATED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})\Z")

STATUSES = (b"LAUNCHED", b"GUARD_WAIT", b"EXTENDED", b"BUILT", b"FAILED", b"CLOSED")
"""Statuses of circuits that Tor writes (control-spec, CIRC)."""

OPEN, BUILT, FAILED, CLOSED = "open", "built", "failed", "closed"


class Bytes(NamedTuple):
    """Bytes read and written by Tor in one second, and the time of the log line."""

    time_us: int
    read: int
    written: int


@dataclass
class Circuit:
    """One circuit; times in wall-clock microseconds. The result is its first BUILT or FAILED.

    A later BUILT means that the same circuit was reused for another purpose (cannibalized), and its
    TIME_CREATED does not refer to that: https://gitlab.torproject.org/tpo/core/tor/-/issues/40570
    """

    number: int
    result: str = OPEN
    purpose: str = ""
    hops: int = 0
    launched_us: int | None = None
    created_us: int | None = None
    end_us: int | None = None
    reason: str = ""
    built_again: int = 0
    failed_again: int = 0


@dataclass
class OnionTraceLog:
    """The content of one log; call ``feed`` with its lines in order.

    Only circuits and bytes are stored, so memory grows with these and not with the log.
    """

    keeps_bytes: bool = True
    epoch_us: int = 0
    """Start of the run, as Unix time."""
    circuits: dict[int, Circuit] = field(default_factory=dict)
    seconds: list[Bytes] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    """The host names by which the log identifies itself: one, in its first line."""
    last_us: int | None = None
    """Time of the last line of bytes, which is written each second."""
    lines: int = 0
    bytes_lines: int = 0
    circuit_lines: int = 0
    other_lines: int = 0
    malformed: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def understood(self) -> int:
        """Number of lines with data."""
        return self.bytes_lines + self.circuit_lines

    def feed(self, lines: Iterable[bytes]) -> None:
        """Parse complete lines without their newlines."""
        for line in lines:
            self.lines += 1
            try:
                self._feed(line)
            except MalformedError as error:
                self.malformed += 1
                if len(self.examples) < MAX_EXAMPLES:
                    text = line[:200].decode("ascii", "backslashreplace")
                    self.examples.append(Example(self.lines, str(error), text))

    def _feed(self, line: bytes) -> None:
        if len(line) > MAX_LINE_BYTES:
            raise MalformedError(f"the line is longer than {MAX_LINE_BYTES} bytes")
        if match := _BYTES.match(line):
            second = Bytes(self._time_us(match), int(match[3]), int(match[4]))
            require_bytes(second.read, second.written)
            self.bytes_lines += 1
            self.last_us = second.time_us
            if self.keeps_bytes:
                self.seconds.append(second)
        elif match := _CIRCUIT.match(line):
            self._parse_circuit(self._time_us(match), int(match[3]), match[4], match[5] or b"")
            self.circuit_lines += 1
        elif match := _ANY_LINE.match(line):
            if line.startswith((_EVENT + b"BW", _EVENT + b"CIRC "), match.end()):
                raise MalformedError("an event that does not follow the grammar")
            self.other_lines += 1
            if started := _STARTED.match(line, match.end()):
                self.hosts.add(started[1].decode("ascii", "backslashreplace"))
        else:
            raise MalformedError("not a line of OnionTrace's log")

    def _time_us(self, match: re.Match[bytes]) -> int:
        time_us = int(match[1] + match[2])
        require_in_run(time_us, self.epoch_us)
        return time_us

    def _parse_circuit(self, time_us: int, number: int, status: bytes, rest: bytes) -> None:
        if status not in STATUSES:
            raise MalformedError(f"no status of circuits: {status[:40]!r}")
        words = rest.split(b" ")
        pairs = dict(word.split(b"=", 1) for word in words if b"=" in word and word[:1] != b"$")
        created_us = _created_us(pairs)
        require_in_run(created_us, self.epoch_us)
        if created_us > time_us:
            raise MalformedError("TIME_CREATED is later than the line")
        circuit = self.circuits.get(number)
        if circuit is None:
            circuit = self.circuits[number] = Circuit(number)
        if status == b"LAUNCHED" and circuit.launched_us is None:
            circuit.launched_us = time_us
        has_result = circuit.result in (BUILT, FAILED)
        if status == b"BUILT" and has_result:
            circuit.built_again += 1
        elif status == b"FAILED" and has_result:
            circuit.failed_again += 1
        elif not has_result and circuit.result == OPEN:
            circuit.created_us = created_us
            circuit.purpose = _text(pairs, b"PURPOSE")
            circuit.hops = words[0].count(b",") + 1 if words[0].startswith(b"$") else 0
            if status in (b"BUILT", b"FAILED", b"CLOSED"):
                circuit.result = status.decode().lower()
                circuit.end_us = time_us
                circuit.reason = _text(pairs, b"REASON")


def _created_us(pairs: dict[bytes, bytes]) -> int:
    match = _CREATED.match(pairs.get(b"TIME_CREATED", b""))
    if match is None:
        raise MalformedError("no TIME_CREATED")
    try:
        whole = datetime.fromisoformat(match[1].decode()).replace(tzinfo=UTC)
    except ValueError:
        raise MalformedError("TIME_CREATED is no time") from None
    return int(whole.timestamp()) * 1_000_000 + int(match[2])


def _text(pairs: dict[bytes, bytes], key: bytes) -> str:
    return pairs.get(key, b"").decode("ascii", "backslashreplace")
