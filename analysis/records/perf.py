"""Streams of tornettools' perf clients, with the times that tgentools extracts from their lines.

The definitions follow tgentools' analysis.py (TGen 1.1.2); docs/reference/metrics.md
describes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.formats.byte_marks import PERF_MARKS
from analysis.formats.columns import PERF, arrow_schema
from analysis.records.tgenlog import Complete, Progress


def perf_table(
    ended: Iterable[tuple[dict[str, Any], Complete, Progress | None]], epoch_us: int
) -> pa.Table:
    """Return the rows of perf.parquet for one client.

    Args:
        ended: for each stream that ended, the row of streams.parquet, the line in the log, and the
            progress from status lines.
        epoch_us: start of simulated time, as Unix time in microseconds.
    """
    rows = [_row(row, complete, progress, epoch_us) for row, complete, progress in ended]
    rows.sort(key=lambda row: int(row["stream_index"]))
    return pa.Table.from_pylist(rows, schema=arrow_schema(PERF))


def _row(
    stream: dict[str, Any], complete: Complete, progress: Progress | None, epoch_us: int
) -> dict[str, Any]:
    start_us = complete.end_us - complete.duration_us
    marks_us = {} if progress is None else progress.marks_us | progress.end_marks_us
    return {
        "client": stream["client"],
        "class": stream["class"],
        "stream_index": stream["stream_index"],
        "end_s": (complete.end_us - epoch_us) / 1e6,
        "success": complete.success,
        "error": None if complete.success else error_name(complete),
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


def error_name(complete: Complete) -> str:
    """Return tgentools' name of the error of a failed stream."""
    if complete.error != "PROXY":
        return complete.error
    transport = complete.transport_error
    timed_out = "STALLOUT" in transport or "TIMEOUT" in transport
    return f"PROXY-{transport}" + (f"-{complete.transport_state}" if timed_out else "")
