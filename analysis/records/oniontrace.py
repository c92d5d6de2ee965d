"""Extraction of circuits.parquet and relay_bytes.parquet from OnionTrace's logs.

Only one host is in memory at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import CIRCUITS, RELAY_BYTES, arrow_schema
from analysis.formats.record_files import FileProblems, ParseReport
from analysis.formats.run_files import RoleOfHost, RunClock
from analysis.formats.tables import TableWriter
from analysis.records.logfile import MAX_MALFORMED, LogFile, require_own_log
from analysis.records.oniontracelog import Circuit, OnionTraceLog

LOG_NAME = re.compile(r"oniontrace(\.\d+)?\.stdout(\.gz|\.xz|\.zst)?\Z")

MAX_LOG_GAP_S = 5.0
"""Maximum time between the end of a log and the end of the run; Tor reports bytes each second."""

RELAY_ROLES = ("authority", "exitguard", "guard", "exit", "middle")
"""Roles whose bytes count: tornettools names such hosts `relay` or `4uthority`."""


def extract(
    run_directory: Path,
    roles: Mapping[str, RoleOfHost],
    classes: Mapping[str, str],
    clock: RunClock,
    directory: Path,
    report: ParseReport,
) -> None:
    """Read the logs of all hosts with OnionTrace, and write both tables.

    Args:
        run_directory: directory of the run.
        roles: content of hosts.json.
        classes: content of clients.json.
        clock: clock of the run.
        directory: directory for the tables.
        report: is updated with the counts.

    Raises:
        AnalysisError: a host has no log or several, or one that is not from OnionTrace or not
            understood.
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
    logs = [path for path in folder.iterdir() if LOG_NAME.match(path.name)]
    if len(logs) != 1:
        found = "no log" if not logs else f"{len(logs)} logs"
        raise AnalysisError(
            f"host {host} has {found} of OnionTrace in {folder}",
            "the run did not start it, or its output was removed or duplicated",
        )
    path = logs[0]
    file, log = LogFile(path), OnionTraceLog(keeps_bytes, clock.epoch_us)
    for lines in file.batches():
        log.feed(lines)
        if log.malformed > max(MAX_MALFORMED, log.understood):
            break
    if not log.hosts or log.malformed > max(MAX_MALFORMED, log.understood):
        first = log.examples[0] if log.examples else None
        raise AnalysisError(
            f"host {host}: {path} is not a log of OnionTrace",
            file.damage or (f"line {first.line}: {first.reason}" if first else None),
        )
    require_own_log(run_directory, host, path, log.hosts)
    damage = file.damage or _early_end(log, clock)
    problems = FileProblems(path.relative_to(run_directory).as_posix(), damage=damage)
    # The part after the last newline may be incomplete, for example in the middle of a number.
    problems.cut_last_line = bool(file.tail)
    problems.malformed_lines = log.malformed
    problems.examples = log.examples
    report.bytes += file.bytes_read
    report.lines += log.lines + problems.cut_last_line
    report.heartbeat_lines += log.bytes_lines
    report.other_lines += log.other_lines + log.circuit_lines
    report.add(problems)
    return log


def _early_end(log: OnionTraceLog, clock: RunClock) -> str | None:
    """Return a message if a log ends before its run, or if Tor never bootstrapped."""
    if log.last_us is None:
        if clock.stop_s is None:
            return None
        return "it reports no second: Tor never bootstrapped, or did not answer"
    return clock.early_end(log.last_us, MAX_LOG_GAP_S)


def _circuits(
    log: OnionTraceLog, host: str, role: str, class_name: str | None, epoch_us: int
) -> pa.Table:
    def since(time_us: int | None) -> float | None:
        return None if time_us is None else (time_us - epoch_us) / 1e6

    def duration(one: Circuit) -> float | None:
        if one.end_us is None or one.created_us is None:
            return None
        return (one.end_us - one.created_us) / 1e6

    rows = [
        {
            "host": host,
            "role": role,
            "class": class_name,
            "circuit_id": one.number,
            "purpose": one.purpose or None,
            "hops": one.hops,
            "launched_s": since(one.launched_us),
            "created_s": since(one.created_us),
            "end_s": since(one.end_us),
            "duration_s": duration(one),
            "result": one.result,
            "reason": one.reason or None,
            "built_again": one.built_again,
            "failed_again": one.failed_again,
        }
        for _, one in sorted(log.circuits.items())
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(CIRCUITS))


def _relay_bytes(log: OnionTraceLog, host: str, role: str, epoch_us: int) -> pa.Table:
    schema = arrow_schema(RELAY_BYTES)
    time_us = np.array([one.time_us for one in log.seconds], dtype=np.int64)
    columns = {
        "host": pa.array([host] * len(log.seconds), schema.field("host").type),
        "role": pa.array([role] * len(log.seconds), schema.field("role").type),
        "time_s": pa.array((time_us - epoch_us) / 1e6, pa.float64()),
        "bytes_read": pa.array([one.read for one in log.seconds], pa.int64()),
        "bytes_written": pa.array([one.written for one in log.seconds], pa.int64()),
    }
    return pa.table(columns, schema=schema)
