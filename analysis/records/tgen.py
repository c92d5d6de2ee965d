"""Extraction of one client's record tables from its TGen logs.

Each log is read in one pass, and only one client is in memory at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.byte_marks import PERF_MARKS
from analysis.formats.columns import GOODPUT, PERF, PROGRESS, STREAMS, Outcome, arrow_schema
from analysis.formats.record_files import ParseReport
from analysis.formats.run_files import RunClock
from analysis.formats.tables import TableWriter, build_table
from analysis.records.logfile import count_log, read_log
from analysis.records.stream_rows import Row, stream_rows
from analysis.records.tgenlog import DAY_S, Complete, Heartbeat, Progress, TgenLog

LOG_NAME = re.compile(r"tgen(\.\d+)?\.stdout(\.gz|\.xz|\.zst)?\Z")


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
    """Return one client's tables of streams, goodput and progress.

    The lines of the logs, the streams and the problems are counted in ``report``. ``perf`` is the
    writer of perf.parquet for a perf client (a measuring client of a tornettools network).

    Raises:
        AnalysisError: a log is missing, duplicated, empty, not from TGen, not understood, or the
            log of another host.
    """
    client = {"client": host, "class": class_name}
    streams: list[Row] = []
    goodput: list[pa.Table] = []
    arrivals: list[tuple[Row, list[tuple[int, int]]]] = []
    ended: list[tuple[Row, Complete, Progress | None]] = []
    for path in _find_logs(run_directory, host):
        log, rows = _read(run_directory, host, path, clock, report)
        streams += rows
        ended += [
            (row, one, log.progress.get(one.stream_id))
            for row, one in zip(rows, log.active_streams, strict=False)
        ]
        arrivals += [
            (row, log.progress[row["stream_id"]].samples)
            for row in rows
            if row["stream_id"] in log.progress
        ]
        goodput.append(_goodput_table(log, client))
    streams.sort(key=lambda row: (row["start_s"], row["stream_id"]))
    for index, row in enumerate(streams):
        row.update(client, stream_index=index)
    beats = pa.concat_tables(goodput).sort_by("time_s")
    report.add_client(host, class_name, [row["outcome"] for row in streams], beats.num_rows)
    if perf is not None:
        perf.add(perf_table(ended, clock.epoch_us))
    return (
        pa.Table.from_pylist(streams, schema=arrow_schema(STREAMS)),
        beats,
        _progress_table(arrivals, clock.epoch_us, client),
    )


def _read(
    run_directory: Path, host: str, path: Path, clock: RunClock, report: ParseReport
) -> tuple[TgenLog, list[Row]]:
    """Return a log and the rows of its streams. Raises AnalysisError like ``read_client``."""
    log = TgenLog(clock.epoch_us, run_s=DAY_S if clock.stop_s is None else clock.stop_s)
    file, problems = read_log(run_directory, path, log)
    if log.lines == 0 and file.damage is None:
        raise AnalysisError(
            f"client {host} has an empty log {path}", "tgen did not start, or its output is lost"
        )
    if log.first_us is None and not log.is_foreign:
        raise AnalysisError(
            f"client {host}: no line of {path} is from tgen",
            file.damage or (log.examples[0].text if log.examples else None),
        )
    # Unless heartbeats are disabled, every client logs heartbeats, so a log without any line with
    # data is from another program or version.
    if log.is_foreign or not (log.understood or log.heartbeats_disabled):
        why = f": {log.first_problem}" if log.first_problem else ""
        raise AnalysisError(
            f"client {host}: only {log.understood} of {log.lines} lines of {path} are understood"
            f"{why}",
            "is it from another program or version? TGen 1.0 and newer are supported",
        )
    try:
        rows = stream_rows(log)
    except AnalysisError as error:
        raise AnalysisError(f"client {host}: {path}: {error.message}", error.hint) from None
    problems.lost_streams = sum(row["outcome"] == Outcome.UNKNOWN for row in rows)
    report.heartbeat_lines += len(log.heartbeats)
    report.stream_lines += len(log.completes)
    report.status_lines += log.status_lines
    report.other_lines += log.other_lines
    report.passive_streams += len(log.completes) - len(log.active_streams)
    count_log(report, file, log, problems, clock)
    return log, rows


def _goodput_table(log: TgenLog, client: dict[str, str]) -> pa.Table:
    beats = np.array(log.heartbeats, dtype=np.int64).reshape(-1, len(Heartbeat._fields))
    time_us, read, written = beats[:, :3].T
    created, succeeded, failed = np.diff(beats[:, 3:], axis=0, prepend=0).T
    before_us = np.concatenate(([log.first_us or 0], time_us))[:-1]
    return build_table(
        GOODPUT,
        {
            **client,
            "time_s": (time_us - log.epoch_us) / 1e6,
            "interval_s": (time_us - before_us) / 1e6,
            "bytes_read": read,
            "bytes_written": written,
            "streams_created": created,
            "streams_succeeded": succeeded,
            "streams_failed": failed,
        },
    )


def _progress_table(
    arrivals: list[tuple[Row, list[tuple[int, int]]]], epoch_us: int, client: dict[str, str]
) -> pa.Table:
    arrivals.sort(key=lambda one: one[0]["stream_index"])
    samples = [(row["stream_index"], *one) for row, found in arrivals for one in found]
    index, time_us, received = np.array(samples, dtype=np.int64).reshape(-1, 3).T
    return build_table(
        PROGRESS,
        {
            **client,
            "stream_index": index,
            "time_s": (time_us - epoch_us) / 1e6,
            "bytes_received": received,
        },
    )


def perf_table(ended: Iterable[tuple[Row, Complete, Progress | None]], epoch_us: int) -> pa.Table:
    """Return the rows of perf.parquet for one client.

    The definitions follow tgentools' analysis.py (TGen 1.1.2); docs/reference/metrics.md describes
    them.

    ended: for each stream that ended, the row of streams.parquet, the line in the log, and the
    progress from status lines.
    """
    rows = [_perf_row(row, complete, progress, epoch_us) for row, complete, progress in ended]
    rows.sort(key=lambda row: int(row["stream_index"]))
    return pa.Table.from_pylist(rows, schema=arrow_schema(PERF))


def _perf_row(stream: Row, complete: Complete, progress: Progress | None, epoch_us: int) -> Row:
    start_us = complete.end_us - complete.duration_us
    marks_us = {} if progress is None else progress.marks_us | progress.end_marks_us
    return {
        "client": stream["client"],
        "class": stream["class"],
        "stream_index": stream["stream_index"],
        "end_s": (complete.end_us - epoch_us) / 1e6,
        "success": complete.success,
        "error": None if complete.success else _error_name(complete),
        "payload_bytes": complete.payload_bytes,
        "response_s": _since_command(complete, complete.response_us),
        "first_byte_s": _since_command(complete, complete.first_byte_us),
        "last_byte_s": _since_command(complete, complete.last_byte_us),
        # A damaged log may have lines from before the start of the stream. Ignore these lines.
        **{
            name: (marks_us[amount] - start_us) / 1e6
            for name, amount in PERF_MARKS.items()
            if marks_us.get(amount, -1) >= start_us
        },
    }


def _since_command(complete: Complete, time_us: int | None) -> float | None:
    if time_us is None or complete.command_us is None or time_us < complete.command_us:
        return None
    return (time_us - complete.command_us) / 1e6


def _error_name(complete: Complete) -> str:
    """Return tgentools' name of the error of a failed stream."""
    if complete.error != "PROXY":
        return complete.error
    transport = complete.transport_error
    timed_out = "STALLOUT" in transport or "TIMEOUT" in transport
    return f"PROXY-{transport}" + (f"-{complete.transport_state}" if timed_out else "")
