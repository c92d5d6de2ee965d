"""Extraction of circuits.parquet and relay_bytes.parquet from OnionTrace's logs.

Every line of OnionTrace 1.0 is written by ``_oniontracelogger_log`` (oniontrace-logger.c)::

    2000-01-01 00:05:37 946685137.865305 [default] [FUNCTION] TEXT

Two values of TEXT carry data. Each is one line of Tor's control port (control-spec, 4.1)::

    Logger: 650 BW BYTES-READ BYTES-WRITTEN
    Logger: 650 CIRC NUMBER STATUS [PATH] KEY=VALUE ...

OnionTrace subscribes to these events once Tor has bootstrapped. Earlier events are not in the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import CIRCUITS, RELAY_BYTES, arrow_schema
from analysis.formats.record_files import ParseReport
from analysis.formats.run_files import RoleOfHost, RunClock
from analysis.formats.tables import TableWriter, build_table
from analysis.records.logfile import Log, MalformedError, count_log, read_log, require_bytes

LOG_NAME = re.compile(r"oniontrace(\.\d+)?\.stdout(\.gz|\.xz|\.zst)?\Z")

MAX_LOG_GAP_S = 5.0
"""Maximum time between the end of a log and the end of the run; Tor reports bytes each second."""

RELAY_ROLES = ("authority", "exitguard", "guard", "exit", "middle")
"""Roles of hosts whose bytes are stored: relays and authorities.

In a network of tornettools, the names of these hosts begin with `relay` or `4uthority`.
"""


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
    """One circuit; times are wall-clock microseconds.

    ``result`` comes from the first line with BUILT, FAILED or CLOSED; without such a line, the
    circuit is open. A second BUILT means that the circuit was reused for another purpose
    (cannibalized). It is only counted in ``built_again``, because its TIME_CREATED is not the time
    of the reuse:
    https://gitlab.torproject.org/tpo/core/tor/-/issues/40570
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
class OnionTraceLog(Log):
    """The content of one log: its circuits and, if ``keeps_bytes``, the bytes in each second."""

    keeps_bytes: bool = True
    circuits: dict[int, Circuit] = field(default_factory=dict)
    seconds: list[Bytes] = field(default_factory=list)
    last_us: int | None = None
    """Time of the last line with bytes. OnionTrace writes such a line each second."""
    bytes_lines: int = 0
    circuit_lines: int = 0
    other_lines: int = 0

    @property
    def understood(self) -> int:
        return self.bytes_lines + self.circuit_lines

    def damage(self, clock: RunClock) -> str | None:
        """Return a message if the log ends before its run, or if Tor never bootstrapped.

        Return None in all other cases, and if the end of the run is unknown.
        """
        if self.last_us is not None:
            return clock.early_end(self.last_us, MAX_LOG_GAP_S)
        if clock.stop_s is None:
            return None
        return "it reports no second: Tor never bootstrapped, or did not answer"

    def parse(self, line: bytes) -> None:
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
        self.require_in_run(time_us)
        return time_us

    def _parse_circuit(self, time_us: int, number: int, status: bytes, rest: bytes) -> None:
        if status not in STATUSES:
            raise MalformedError(f"not a status of circuits: {status[:40]!r}")
        words = rest.split(b" ")
        pairs = dict(word.split(b"=", 1) for word in words if b"=" in word and word[:1] != b"$")
        created_us = _created_us(pairs)
        self.require_in_run(created_us)
        if created_us > time_us:
            raise MalformedError("TIME_CREATED is later than the line")
        circuit = self.circuits.setdefault(number, Circuit(number))
        if status == b"LAUNCHED" and circuit.launched_us is None:
            circuit.launched_us = time_us
        has_result = circuit.result in (BUILT, FAILED)
        if status == b"BUILT" and has_result:
            circuit.built_again += 1
        elif status == b"FAILED" and has_result:
            circuit.failed_again += 1
        elif circuit.result == OPEN:
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
        raise MalformedError("TIME_CREATED is not a time") from None
    return int(whole.timestamp()) * 1_000_000 + int(match[2])


def _text(pairs: dict[bytes, bytes], key: bytes) -> str:
    return pairs.get(key, b"").decode("ascii", "backslashreplace")


def extract(
    run_directory: Path,
    roles: Mapping[str, RoleOfHost],
    classes: Mapping[str, str],
    clock: RunClock,
    directory: Path,
    report: ParseReport,
) -> None:
    """Read the logs of all hosts with OnionTrace; write circuits.parquet and relay_bytes.parquet.

    Without such hosts, nothing is written. The lines of the logs and their problems are counted in
    ``report``.

    Raises:
        AnalysisError: a host has no log or several, or its log is not from OnionTrace, not
            understood, or the log of another host.
    """
    hosts = sorted(name for name, host in roles.items() if host.oniontrace)
    if not hosts:
        return
    with (
        TableWriter(directory / files.CIRCUITS_TABLE, CIRCUITS) as circuits,
        TableWriter(directory / files.RELAY_BYTES_TABLE, RELAY_BYTES) as relay_bytes,
    ):
        for host in hosts:
            role = roles[host].role
            is_relay = role in RELAY_ROLES
            log = _read(run_directory, host, is_relay, clock, report)
            circuits.add(_circuits(log, host, role, classes.get(host), clock.epoch_us))
            if is_relay:
                relay_bytes.add(_relay_bytes(log, host, role, clock.epoch_us))


def _read(
    run_directory: Path, host: str, keeps_bytes: bool, clock: RunClock, report: ParseReport
) -> OnionTraceLog:
    folder = run_directory / files.HOSTS / host
    logs = [path for path in folder.glob("*") if LOG_NAME.match(path.name)]
    if len(logs) != 1:
        found = "no log" if not logs else f"{len(logs)} logs"
        raise AnalysisError(
            f"host {host} has {found} of OnionTrace in {folder}",
            "the run did not start it, or its output was removed or duplicated",
        )
    path = logs[0]
    log = OnionTraceLog(clock.epoch_us, keeps_bytes=keeps_bytes)
    file, problems = read_log(run_directory, path, log)
    if not log.hosts or log.is_foreign:
        raise AnalysisError(
            f"host {host}: {path} is not a log of OnionTrace", file.damage or log.first_problem
        )
    report.heartbeat_lines += log.bytes_lines
    report.other_lines += log.other_lines + log.circuit_lines
    count_log(report, file, log, problems, clock)
    return log


def _circuits(
    log: OnionTraceLog, host: str, role: str, class_name: str | None, epoch_us: int
) -> pa.Table:
    def seconds(time_us: int | None, since_us: int | None = epoch_us) -> float | None:
        return None if time_us is None or since_us is None else (time_us - since_us) / 1e6

    rows = [
        {
            **vars(one),
            "host": host,
            "role": role,
            "class": class_name,
            "circuit_id": one.number,
            "purpose": one.purpose or None,
            "launched_s": seconds(one.launched_us),
            "created_s": seconds(one.created_us),
            "end_s": seconds(one.end_us),
            "duration_s": seconds(one.end_us, one.created_us),
            "reason": one.reason or None,
        }
        for _, one in sorted(log.circuits.items())
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(CIRCUITS))


def _relay_bytes(log: OnionTraceLog, host: str, role: str, epoch_us: int) -> pa.Table:
    seconds = np.array(log.seconds, dtype=np.int64).reshape(-1, len(Bytes._fields))
    time_us, read, written = seconds.T
    values: dict[str, Any] = {"host": host, "role": role, "time_s": (time_us - epoch_us) / 1e6}
    return build_table(RELAY_BYTES, {**values, "bytes_read": read, "bytes_written": written})
