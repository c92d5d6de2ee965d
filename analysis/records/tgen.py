"""Extraction of one client's rows of the record tables from its TGen logs.

Each log is read in one pass, and only one client is in memory at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import GOODPUT, PROGRESS, STREAMS, Outcome, arrow_schema
from analysis.formats.record_files import FileProblems, ParseReport
from analysis.formats.run_files import RunClock
from analysis.formats.tables import TableWriter
from analysis.records.logfile import MAX_MALFORMED, LogFile, require_own_log
from analysis.records.open_streams import Missing, find_missing
from analysis.records.outcomes import classify
from analysis.records.perf import MARK_BYTES, perf_table
from analysis.records.tgenlog import (
    DAY_S,
    PASSIVE_VERTEX,
    TARGET_BYTES,
    Complete,
    Progress,
    TgenLog,
)

LOG_NAME = re.compile(r"tgen(\.\d+)?\.stdout(\.gz|\.xz|\.zst)?\Z")

Row = dict[str, Any]


def _find_logs(run_directory: Path, host: str) -> list[Path]:
    directory = run_directory / files.HOSTS / host
    hint = "the run did not start this client, or its output was removed"
    if not directory.is_dir():
        raise AnalysisError(f"client {host} has no directory {directory}", hint)
    logs = sorted(path for path in directory.iterdir() if LOG_NAME.match(path.name))
    if not logs:
        raise AnalysisError(f"client {host} has no tgen log in {directory}", hint)
    names = Counter(path.name.split(".stdout")[0] for path in logs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise AnalysisError(
            f"client {host} has its log {twice[0]}.stdout more than once in {directory}",
            "remove the plain or the compressed copy",
        )
    return logs


def read_client(
    run_directory: Path,
    host: str,
    class_name: str,
    clock: RunClock,
    report: ParseReport,
    perf: TableWriter | None = None,
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return streams, goodput and progress of one client, and count lines in ``report``.

    Args:
        run_directory: directory of the run.
        host: name of the client.
        class_name: class of the client.
        clock: clock of the run.
        report: is updated with the counts.
        perf: for a perf client: receives the rows of perf.parquet.

    Raises:
        AnalysisError: a log is missing, duplicated, empty, not from TGen, or not understood.
    """
    epoch_us = clock.epoch_us
    streams: list[Row] = []
    goodput: list[pa.Table] = []
    arrivals: list[tuple[Row, list[tuple[int, int]]]] = []
    ended: list[tuple[Row, Complete, Progress | None]] = []
    run_s = DAY_S if clock.stop_s is None else clock.stop_s
    for path in _find_logs(run_directory, host):
        file = LogFile(path)
        mark_bytes = () if perf is None else MARK_BYTES
        log = TgenLog(run_s=run_s, mark_bytes=mark_bytes, epoch_us=epoch_us)
        for lines in file.batches():
            log.feed(lines)
            if log.malformed > MAX_MALFORMED and log.malformed > log.understood:
                raise _not_understood(host, path, log)
        problems = FileProblems(path.relative_to(run_directory).as_posix(), damage=file.damage)
        if file.tail:
            problems.cut_last_line = True
            log.feed_tail(file.tail)
        if log.lines == 0 and file.damage is None:
            raise AnalysisError(
                f"client {host} has an empty log {path}",
                "tgen did not start, or its output is lost",
            )
        if log.first_us is None:
            raise AnalysisError(
                f"client {host}: no line of {path} is from tgen",
                file.damage or (log.examples[0].text if log.examples else None),
            )
        require_own_log(run_directory, host, path, log.hosts)
        # The log of every client has heartbeats, unless they are disabled.
        if not log.understood and not log.heartbeats_disabled:
            raise _not_understood(host, path, log)
        problems.damage = problems.damage or log.early_end(clock) or log.missing_heartbeats(clock)
        try:
            rows = _stream_rows(log, epoch_us)
        except AnalysisError as error:
            raise AnalysisError(f"client {host}: {path}: {error.message}", error.hint) from None
        problems.lost_streams = sum(row["outcome"] == Outcome.UNKNOWN for row in rows)
        problems.malformed_lines = log.malformed
        problems.examples = log.examples
        streams += rows
        active = (one for one in log.completes if one.vertex != PASSIVE_VERTEX)
        ended += [
            (row, one, log.progress.get(one.stream_id))
            for row, one in zip(rows, active, strict=False)
        ]
        arrivals += [
            (row, log.progress[row["stream_id"]].samples)
            for row in rows
            if row["stream_id"] in log.progress
        ]
        goodput.append(_goodput_table(log, epoch_us, host, class_name))
        _count(report, log, file, problems)
    streams.sort(key=lambda row: (row["start_s"], row["stream_id"]))
    outcomes = report.streams[class_name]
    for index, row in enumerate(streams):
        row.update({"client": host, "class": class_name, "stream_index": index})
        outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
    if perf is not None:
        perf.add(perf_table(ended, epoch_us))
    if not streams:
        report.clients_without_streams.append(host)
    beats = pa.concat_tables(goodput).sort_by("time_s")
    if beats.num_rows == 0:
        report.clients_without_heartbeats.append(host)
    return (
        pa.Table.from_pylist(streams, schema=arrow_schema(STREAMS)),
        beats,
        _progress_table(arrivals, epoch_us, host, class_name),
    )


def _not_understood(host: str, path: Path, log: TgenLog) -> AnalysisError:
    why = f": line {log.examples[0].line}: {log.examples[0].reason}" if log.examples else ""
    return AnalysisError(
        f"client {host}: only {log.understood} of {log.lines} lines of {path} are understood{why}",
        "is it from another program or version? TGen 1.0 and newer are supported",
    )


def _count(report: ParseReport, log: TgenLog, file: LogFile, problems: FileProblems) -> None:
    report.bytes += file.bytes_read
    report.lines += log.lines
    report.heartbeat_lines += len(log.heartbeats)
    report.stream_lines += len(log.completes)
    report.status_lines += log.status_lines
    report.other_lines += log.other_lines
    report.passive_streams += sum(c.vertex == PASSIVE_VERTEX for c in log.completes)
    report.add(problems)


def _stream_rows(log: TgenLog, epoch_us: int) -> list[Row]:
    completes = [c for c in log.completes if c.vertex != PASSIVE_VERTEX]
    rows = [_complete_row(c, log.progress.get(c.stream_id), epoch_us) for c in completes]
    sizes = {c.requested_bytes for c in completes}
    requested = sizes.pop() if len(sizes) == 1 else None
    assert log.last_us is not None or not rows
    for missing in find_missing(log):
        assert log.last_us is not None
        rows.append(_missing_row(missing, requested or None, log.last_us, epoch_us))
    return rows


def _seconds(us: int | None) -> float | None:
    # In a damaged line, times may be out of order.
    return None if us is None or us < 0 else us / 1e6


def _complete_row(c: Complete, progress: Progress | None, epoch_us: int) -> Row:
    start_us = c.end_us - c.duration_us
    outcome, error = classify(c.success, c.error, c.transport_error)
    requested = c.requested_bytes or None
    # The last byte in an error line is the last one so far, so use it only if nothing was missing.
    whole = c.success or (requested is not None and c.payload_bytes >= requested)
    last_byte_us = c.last_byte_us if whole else None
    target_us = None
    reached_us = None if progress is None else progress.target_us
    if c.payload_bytes >= TARGET_BYTES:
        if requested == TARGET_BYTES:
            target_us = last_byte_us
        # A line that predates the start of the stream shows a clock error, not progress.
        elif reached_us is not None and reached_us >= start_us:
            target_us = reached_us - start_us
    from_command = None
    if c.first_byte_us is not None and c.command_us is not None:
        from_command = c.first_byte_us - c.command_us
    return {
        "stream_id": c.stream_id,
        "server": c.server or None,
        "start_s": (start_us - epoch_us) / 1e6,
        "start_resolution_s": 0.0,
        "time_to_proxy_reply_s": _seconds(c.proxy_response_us),
        "ttfb_from_start_s": _seconds(c.first_byte_us),
        "ttfb_from_command_s": _seconds(from_command),
        "ttfb_resolution_s": None if c.first_byte_us is None else 0.0,
        "time_to_320kib_s": _seconds(target_us),
        "time_to_last_byte_s": _seconds(last_byte_us),
        "bytes_requested": requested,
        "bytes_received": c.payload_bytes,
        "outcome": outcome.value,
        "error": error or None,
        "end_s": (c.end_us - epoch_us) / 1e6,
    }


def _missing_row(missing: Missing, requested: int | None, last_us: int, epoch_us: int) -> Row:
    start_us = (missing.start_early_us + missing.start_late_us) / 2
    ttfb = resolution = target = None
    if missing.first_byte_late_us is not None and missing.first_byte_early_us is not None:
        early = max(missing.first_byte_early_us, start_us)
        late = max(missing.first_byte_late_us, early)
        ttfb = ((early + late) / 2 - start_us) / 1e6
        resolution = (late - early) / 1e6
    if missing.target_us is not None:
        target = max(0.0, (missing.target_us - start_us) / 1e6)
    received = missing.received_bytes
    if received is not None and requested is not None:
        received = min(received, requested)
    return {
        "stream_id": missing.stream_id,
        "server": None,
        "start_s": (start_us - epoch_us) / 1e6,
        "start_resolution_s": (missing.start_late_us - missing.start_early_us) / 1e6,
        "time_to_proxy_reply_s": None,
        "ttfb_from_start_s": ttfb,
        "ttfb_from_command_s": None,
        "ttfb_resolution_s": resolution,
        "time_to_320kib_s": target,
        "time_to_last_byte_s": None,
        "bytes_requested": requested,
        "bytes_received": received,
        "outcome": (Outcome.UNKNOWN if missing.lost else Outcome.OPEN).value,
        "error": None,
        "end_s": (last_us - epoch_us) / 1e6,
    }


def _goodput_table(log: TgenLog, epoch_us: int, host: str, class_name: str) -> pa.Table:
    beats = log.heartbeats
    time_us = np.array(beats.time_us, dtype=np.int64)
    before_us = np.concatenate(([log.first_us or 0], time_us))[:-1]

    def per_interval(totals: list[int]) -> pa.Array:
        return pa.array(np.diff(np.array(totals, dtype=np.int64), prepend=0), pa.int32())

    schema = arrow_schema(GOODPUT)
    columns = {
        "client": pa.array([host] * len(beats), schema.field("client").type),
        "class": pa.array([class_name] * len(beats), schema.field("class").type),
        "time_s": pa.array((time_us - epoch_us) / 1e6, pa.float64()),
        "interval_s": pa.array((time_us - before_us) / 1e6, pa.float64()),
        "bytes_read": pa.array(beats.bytes_read, pa.int64()),
        "bytes_written": pa.array(beats.bytes_written, pa.int64()),
        "streams_created": per_interval(beats.total_created),
        "streams_succeeded": per_interval(beats.total_succeeded),
        "streams_failed": per_interval(beats.total_failed),
    }
    return pa.table(columns, schema=schema)


def _progress_table(
    arrivals: list[tuple[Row, list[tuple[int, int]]]], epoch_us: int, host: str, class_name: str
) -> pa.Table:
    arrivals.sort(key=lambda one: one[0]["stream_index"])
    index = [row["stream_index"] for row, samples in arrivals for _ in samples]
    time_us = np.array([time for _, samples in arrivals for time, _ in samples], dtype=np.int64)
    schema = arrow_schema(PROGRESS)
    columns = {
        "client": pa.array([host] * len(index), schema.field("client").type),
        "class": pa.array([class_name] * len(index), schema.field("class").type),
        "stream_index": pa.array(index, pa.int32()),
        "time_s": pa.array((time_us - epoch_us) / 1e6, pa.float64()),
        "bytes_received": pa.array([n for _, samples in arrivals for _, n in samples], pa.int64()),
    }
    return pa.table(columns, schema=schema)
