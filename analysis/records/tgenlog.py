"""The grammar of TGen's log lines, and the content of one log.

Every line of TGen 1.x is written by ``tgenlog_printMessage`` (tgen-log.c)::

    2000-01-01 00:05:01 946685101.000000 [message] [FILE:LINE] [FUNCTION] TEXT

Five kinds of TEXT carry data. ``[...]`` is a list of ``key=value`` pairs in any order::

    [driver-heartbeat] [...]
    [stream-success] transport [...] stream [...] bytes [...] times [...]
    [stream-error] transport [...] stream [...] bytes [...] times [...]
    [stream-status] transport [...] stream [...] bytes [...]
    Created new stream [...] on transport [...]

These texts come from _tgendriver_onHeartbeat (tgen-driver.c), _tgenstream_log and tgenstream_new
(tgen-stream.c). TGen writes the last two only at log level info.

The times in pairs are microseconds of the process's monotonic clock. The time of the line is from
the wall clock. In a simulator, both clocks show simulated time.
"""

from __future__ import annotations

import contextlib
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from analysis.formats.byte_marks import MARK_BYTES, PERF_MARKS
from analysis.formats.run_files import RunClock
from analysis.records.logfile import MAX_LINE_BYTES, Log, MalformedError, require_bytes

SAMPLE_US = 100_000
"""Minimum interval between stored samples of a stream's progress."""

STREAMS_PER_S = 1000
"""Upper bound on streams per second of one TGen process.

A line is malformed if its stream number exceeds this bound times the length of the run in seconds.
"""

DAY_S = 86_400.0
"""The assumed length of a run of unknown length."""

MAX_OPEN_STREAMS = 1 << 16
"""Maximum number of open streams: each stream uses a port of the host."""

MAX_SILENCE = 2
"""Maximum time from the end of a log to the end of its run, in median heartbeat intervals."""

MAX_GAP = 1.5
"""Maximum time between two heartbeats, as a multiple of the log's usual heartbeat interval."""

_PREFIX = (
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (\d{1,12})\.(\d{6}) \[[a-z]+\] \[[^\[\]]*\] \[[^\[\]]*\] "
)
_ANY_LINE = re.compile(_PREFIX)
# The quantifiers are possessive (``++``): backtracking would cost time, and is never necessary.
_HEARTBEAT = re.compile(
    rb"[\d-]{10}+ [\d:]{8}+ (\d{1,12}+)\.(\d{6}+) \[[a-z]++\] \[[^\[\]]*+\] \[[^\[\]]*+\] "
    rb"\[driver-heartbeat\] \[bytes-read=(\d{1,18}+),bytes-written=(\d{1,18}+)"
    rb"(?:,(?:streams|flows|traffics)-[a-z]++=\d++)*+"
    rb"(?:,total-streams-created=(\d{1,18}+))?+"
    rb"(?:,total-streams-succeeded=(\d{1,18}+))?+"
    rb"(?:,total-streams-failed=(\d{1,18}+))?+"
    rb"(?:,total-(?:streams-pending|flows-[a-z]++|traffics-[a-z]++)=\d++)*+\]\Z"
)
_HEARTBEAT_ANY_ORDER = re.compile(_PREFIX + rb"\[driver-heartbeat\] \[([^\[\]]*)\]\Z")
_STATUS = re.compile(
    _PREFIX
    + rb"\[stream-status\] transport \[[^\[\]]*\] stream \[([^\[\]]*)\] bytes \[([^\[\]]*)\]\Z"
)
_STATUS_USUAL = re.compile(
    _PREFIX + rb"\[stream-status\] transport \[[^\[\]]*\] stream \[id=(\d{1,18}),[^\[\]]*\] bytes "
    rb"\[total-bytes-recv=\d+,total-bytes-send=\d+,payload-bytes-recv=(\d{1,18}),[^\[\]]*\]\Z"
)
_COMPLETE = re.compile(
    _PREFIX + rb"\[stream-(success|error)\] transport \[([^\[\]]*)\] stream \[([^\[\]]*)\]"
    rb" bytes \[([^\[\]]*)\] times \[([^\[\]]*)\]\Z"
)
_CREATED = re.compile(_PREFIX + rb"Created new stream \[([^\[\]]*)\] on transport \[[^\[\]]*\]\Z")
_INTEGER = re.compile(rb"-?\d{1,18}\Z")

_COUNTERS = (
    *(b"bytes-read", b"bytes-written"),
    *(b"total-streams-created", b"total-streams-succeeded", b"total-streams-failed"),
)
_EXIT = (b"returning 0 from main", b"Freeing TGen driver state")
_STARTED = re.compile(rb"Initializing TGen .* on host ([A-Za-z0-9_.-]{1,128}) with process id ")
_NO_HEARTBEATS = b"The heartbeat message was disabled"
_RESPONSE = b"usecs-to-response"

PASSIVE_VERTEX = "passive-stream"
"""The vertex name that a TGen process gives to streams that its server accepts (tgen-driver.c)."""


class Heartbeat(NamedTuple):
    """Bytes since the previous heartbeat, and numbers of streams since the process started."""

    time_us: int
    bytes_read: int
    bytes_written: int
    total_created: int
    total_succeeded: int
    total_failed: int


class Complete(NamedTuple):
    """One ended stream. Times are in microseconds.

    ``end_us`` is a wall-clock time. The other times count from the stream's start, and are None if
    the event did not happen.
    """

    end_us: int
    stream_id: int
    success: bool
    error: str
    transport_error: str
    vertex: str
    server: str
    requested_bytes: int
    total_bytes: int
    payload_bytes: int
    duration_us: int
    proxy_response_us: int | None
    command_us: int | None
    first_byte_us: int | None
    last_byte_us: int | None
    heartbeats_before: int
    """Number of heartbeats before this line in the log."""
    response_us: int | None = None
    transport_state: str = ""


@dataclass
class Progress:
    """Progress of one stream from status lines. Times are wall-clock microseconds.

    ``samples`` contains at most about two times of arrival per tenth of a second, and both ends of
    every longer gap. Bytes over time are therefore accurate to a tenth of a second, and gaps are
    exact.
    """

    payload_bytes: int = 0
    marks_us: dict[int, int] = field(default_factory=dict)
    """Reached amount in ``MARK_BYTES`` -> time of the first status line with at least as much."""
    end_marks_us: dict[int, int] = field(default_factory=dict)
    """Each amount in ``PERF_MARKS`` that was reached, but not by any status line -> time of the
    stream-success or stream-error line."""
    _samples: list[tuple[int, int]] = field(default_factory=list)
    _newest: tuple[int, int] | None = None

    def add(self, time_us: int, payload_bytes: int) -> None:
        """Add a sample: the total payload received until ``time_us``."""
        self.payload_bytes = payload_bytes
        if self._samples and time_us - self._samples[-1][0] < SAMPLE_US:
            self._newest = (time_us, payload_bytes)
            return
        if self._newest is not None:
            self._samples.append(self._newest)
            self._newest = None
        self._samples.append((time_us, payload_bytes))

    @property
    def samples(self) -> list[tuple[int, int]]:
        """Times and cumulative payload, both ascending."""
        return [*self._samples, self._newest] if self._newest is not None else self._samples


@dataclass
class TgenLog(Log):
    """The content of one log. ``run_s`` is the length of the run in seconds.

    Keys of ``progress`` and ``created_us`` are numbers of streams.
    """

    run_s: float = DAY_S
    heartbeats: list[Heartbeat] = field(default_factory=list)
    completes: list[Complete] = field(default_factory=list)
    progress: dict[int, Progress] = field(default_factory=lambda: defaultdict(Progress))
    created_us: dict[int, int] = field(default_factory=dict)
    first_us: int | None = None
    last_us: int | None = None
    other_lines: int = 0
    status_lines: int = 0
    exited: bool = False
    """True if the process exited by itself before the end of the run."""
    heartbeats_disabled: bool = False
    """True if the process logged that heartbeats are disabled."""
    _ended: set[tuple[bool, int]] = field(default_factory=set)
    """For each ended stream: whether the process's own server accepted it, and its number."""

    @property
    def understood(self) -> int:
        return len(self.heartbeats) + len(self.completes) + self.status_lines + len(self.created_us)

    @property
    def active_streams(self) -> list[Complete]:
        """The ended streams that this process started, without streams that its server accepted."""
        return [one for one in self.completes if one.vertex != PASSIVE_VERTEX]

    @property
    def _beat_times_us(self) -> list[int]:
        """The beginning of the first heartbeat interval, and the end of each interval."""
        return [self.first_us or 0, *(beat.time_us for beat in self.heartbeats)]

    def early_end(self, clock: RunClock) -> str | None:
        """Return a message if the log ends before its run, or None if this is not known.

        A process with heartbeats writes them until the run ends, unless it exits by itself.
        """
        if self.exited or not self.heartbeats or self.last_us is None:
            return None
        interval_us = statistics.median(np.diff(self._beat_times_us).tolist())
        return clock.early_end(self.last_us, MAX_SILENCE * interval_us / 1e6)

    def damage(self, clock: RunClock) -> str | None:
        """Return a message if the log ends before its run or lacks heartbeats, else None.

        A heartbeat counts only the bytes since TGen's previous heartbeat, so the bytes of a lost
        heartbeat are unknown. TGen's first line contains the name of the host, so a log without a
        name has lost its beginning. The first heartbeat comes one interval after the first line.
        """
        if early_end := self.early_end(clock):
            return early_end
        if not self.heartbeats:
            return None
        if not self.hosts:
            return "its beginning is missing"
        times_us = self._beat_times_us
        intervals_us = np.diff(times_us).tolist()
        # Even if every third heartbeat is missing, half of the intervals are normal, so the lower
        # quartile is the usual interval.
        usual_us = sorted(intervals_us)[len(intervals_us) // 4]
        longest_us = max(intervals_us)
        if longest_us <= MAX_GAP * usual_us:
            return None
        begin_s = (times_us[intervals_us.index(longest_us)] - clock.epoch_us) / 1e6
        return f"it has no heartbeat from {begin_s:g} to {begin_s + longest_us / 1e6:g} s"

    def parse(self, line: bytes) -> None:
        """Parse one line.

        At log level message, most lines are heartbeats; at level info, most are status lines in
        TGen's own order of keys. Both have a fast path.
        """
        if match := _HEARTBEAT.match(line):
            seconds, micros, *counters = match.groups(b"0")
            self._add_heartbeat(Heartbeat(int(seconds + micros), *map(int, counters)))
        elif match := _STATUS_USUAL.match(line):
            seconds, micros, stream_id, payload = match.groups()
            self._add_status(int(seconds + micros), int(stream_id), int(payload))
        else:
            self._parse_other(line)

    def feed_tail(self, tail: bytes) -> None:
        """Parse the bytes after the last newline if they are a complete line."""
        self.lines += 1
        with contextlib.suppress(MalformedError):
            if tail.endswith(b"]") and len(tail) <= MAX_LINE_BYTES:
                self._parse_other(tail)

    def _parse_other(self, line: bytes) -> None:
        if b"[stream-status]" in line:
            self._add_status(*_status_any_order(line))
        elif b"[stream-" in line:
            self._add_complete(line)
        elif b"[driver-heartbeat]" in line:
            self._add_heartbeat(_heartbeat_any_order(line))
        elif b"] Created new stream [" in line:
            self._add_created(line)
        else:
            match = _ANY_LINE.match(line)
            if match is None:
                raise MalformedError("not a line of tgen's log")
            self._note_time(_line_us(match))
            # A line of TGen of 2015 has only two brackets before the text. _ANY_LINE also matches
            # such a line, because the text begins with a bracket.
            if b"[transfer-" in line:
                raise MalformedError("a transfer of TGen before 1.0, whose logs are not read")
            self.exited = line.startswith(_EXIT, match.end())
            if started := _STARTED.match(line, match.end()):
                self.hosts.add(started[1].decode("ascii", "backslashreplace"))
            self.heartbeats_disabled |= line.startswith(_NO_HEARTBEATS, match.end())
            self.other_lines += 1

    def _note_time(self, time_us: int) -> None:
        self.require_in_run(time_us)
        if self.first_us is None:
            self.first_us = time_us
        self.last_us = max(self.last_us or time_us, time_us)

    def _add_heartbeat(self, beat: Heartbeat) -> None:
        if self.heartbeats:
            last = self.heartbeats[-1]
            if beat.time_us <= last.time_us:
                raise MalformedError("heartbeat is not later than the one before")
            if any(now < before for now, before in zip(beat[3:], last[3:], strict=True)):
                raise MalformedError("heartbeat's totals went down")
        elif self.first_us is not None and beat.time_us < self.first_us:
            raise MalformedError("heartbeat is earlier than the log's first line")
        open_streams = beat.total_created - beat.total_succeeded - beat.total_failed
        if open_streams < 0:
            raise MalformedError("heartbeat has more streams ended than created")
        if open_streams > MAX_OPEN_STREAMS:
            raise MalformedError("heartbeat has more streams open than a host has ports")
        self._require_possible(beat.total_created)
        require_bytes(beat.bytes_read, beat.bytes_written)
        self._note_time(beat.time_us)
        self.heartbeats.append(beat)

    def _require_possible(self, streams: int) -> None:
        if streams > STREAMS_PER_S * self.run_s:
            raise MalformedError(f"{streams} streams are more than a run of {self.run_s:g} s has")

    def _add_status(self, time_us: int, stream_id: int, payload: int) -> None:
        self._require_possible(stream_id)
        require_bytes(payload)
        self._note_time(time_us)
        self.status_lines += 1
        progress = self.progress[stream_id]
        for amount in MARK_BYTES[len(progress.marks_us) :]:
            if payload < amount:
                break
            progress.marks_us[amount] = time_us
        if payload > progress.payload_bytes:
            progress.add(time_us, payload)

    def _add_created(self, line: bytes) -> None:
        match = _CREATED.match(line)
        if match is None:
            raise MalformedError("stream creation line does not follow the grammar")
        time_us = _line_us(match)
        stream_id = _integer(_fields(match[3]), b"id", minimum=0)
        self._require_possible(stream_id)
        self._note_time(time_us)
        self.created_us[stream_id] = time_us
        self.other_lines += 1

    def _add_complete(self, line: bytes) -> None:
        match = _COMPLETE.match(line)
        if match is None:
            raise MalformedError("stream line does not follow the grammar")
        transport = _fields(match[4])
        stream = _fields(match[5])
        sizes = _fields(match[6])
        times = _fields(match[7])
        end_us = _line_us(match)
        duration_us = _integer(times, b"now-ts") - _integer(times, b"created-ts")
        if duration_us < 0:
            raise MalformedError("stream ended before its start")
        self.require_in_run(end_us - duration_us)
        success = match[3] == b"success"
        error = _text(stream, b"error")
        if success and error != "NONE":
            raise MalformedError("stream-success line with an error")
        complete = Complete(
            end_us=end_us,
            stream_id=_integer(stream, b"id", minimum=0),
            success=success,
            error=error,
            transport_error=_text(transport, b"error"),
            vertex=_text(stream, b"vertexid"),
            server=_server(_text(transport, b"remote"), _text(stream, b"peername")),
            requested_bytes=_integer(stream, b"recvsize", minimum=0),
            total_bytes=_integer(sizes, b"total-bytes-recv", minimum=0),
            payload_bytes=_integer(sizes, b"payload-bytes-recv", minimum=0),
            duration_us=duration_us,
            proxy_response_us=_optional(times, b"usecs-to-proxy-response"),
            command_us=_optional(times, b"usecs-to-command"),
            first_byte_us=_optional(times, b"usecs-to-first-byte-recv"),
            last_byte_us=_optional(times, b"usecs-to-last-byte-recv"),
            heartbeats_before=len(self.heartbeats),
            # Only metrics of perf clients need these two fields, so a line without them is valid.
            response_us=_optional(times, _RESPONSE) if _RESPONSE in times else None,
            transport_state=_text(transport, b"state") if b"state" in transport else "",
        )
        self._require_possible(complete.stream_id)
        require_bytes(complete.requested_bytes, complete.total_bytes, complete.payload_bytes)
        # TGen never reuses the number of a stream, so a second line with the same number is from a
        # duplicated log. Count each stream once.
        number = (complete.vertex == PASSIVE_VERTEX, complete.stream_id)
        if number in self._ended:
            raise MalformedError(f"stream {complete.stream_id} has ended before")
        self._ended.add(number)
        self._note_time(end_us)
        self.completes.append(complete)
        if complete.stream_id in self.progress:
            # tgentools treats a stream's last line as another status line. So amounts that no
            # status line has reached get the time of the last line.
            progress = self.progress[complete.stream_id]
            for amount in PERF_MARKS.values():
                if complete.payload_bytes >= amount and amount not in progress.marks_us:
                    progress.end_marks_us.setdefault(amount, end_us)


def _line_us(match: re.Match[bytes]) -> int:
    return int(match[1] + match[2])


def _fields(body: bytes) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for pair in body.split(b","):
        key, equals, value = pair.partition(b"=")
        if not equals or not key or key in fields:
            raise MalformedError(f"bad field {pair[:40]!r}")
        fields[key] = value
    return fields


def _field(fields: dict[bytes, bytes], key: bytes) -> bytes:
    if key not in fields:
        raise MalformedError(f"no field {key.decode()}")
    return fields[key]


def _text(fields: dict[bytes, bytes], key: bytes) -> str:
    return _field(fields, key).decode("ascii", "backslashreplace")


def _integer(fields: dict[bytes, bytes], key: bytes, minimum: int | None = None) -> int:
    value = _field(fields, key)
    if _INTEGER.match(value) is None:
        raise MalformedError(f"field {key.decode()} is not a number")
    number = int(value)
    if minimum is not None and number < minimum:
        raise MalformedError(f"field {key.decode()} is negative")
    return number


def _optional(fields: dict[bytes, bytes], key: bytes) -> int | None:
    number = _integer(fields, key)
    return number if number >= 0 else None


def _heartbeat_any_order(line: bytes) -> Heartbeat:
    match = _HEARTBEAT_ANY_ORDER.match(line)
    if match is None:
        if b"[driver-heartbeat] bytes-read=" in line:
            raise MalformedError("a heartbeat of TGen before 1.0, whose logs are not read")
        raise MalformedError("heartbeat line does not follow the grammar")
    # A counter of streams that is zero is omitted from the line.
    zero = dict.fromkeys(_COUNTERS[2:], b"0")
    fields = zero | _fields(match[3])
    return Heartbeat(_line_us(match), *(_integer(fields, key, minimum=0) for key in _COUNTERS))


def _status_any_order(line: bytes) -> tuple[int, int, int]:
    match = _STATUS.match(line)
    if match is None:
        raise MalformedError("stream-status line does not follow the grammar")
    stream_id = _integer(_fields(match[3]), b"id", minimum=0)
    payload = _integer(_fields(match[4]), b"payload-bytes-recv", minimum=0)
    return _line_us(match), stream_id, payload


def _server(remote: str, peername: str) -> str:
    """Return the server's name, or its address and port if no name is known.

    ``remote`` is NAME:ADDRESS:PORT, or NULL:ADDRESS:PORT without a name (tgen-peer.c).
    """
    name, _, address = remote.partition(":")
    if name not in ("", "NULL"):
        return name
    return peername if peername not in ("", "(null)") else address
