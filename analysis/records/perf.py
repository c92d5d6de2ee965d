"""Streams of tornettools' perf clients, with the times that tgentools extracts from their lines.

The definitions follow tgentools' analysis.py (TGen 1.1.2); docs/reference/metrics.md
describes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.formats.columns import PERF, arrow_schema
from analysis.records.tgenlog import Complete, Progress

FOUR_MIB_BYTES = 4_194_042
"""The smallest payload that TGen prints as 80.00% of 5 MiB.

tgentools records no time for 4 MiB, so tornettools uses this percentage.
"""

MARKS = {
    "at_500kib_s": 512_000,
    "at_1mib_s": 2**20,
    "at_4mib_s": FOUR_MIB_BYTES,
    "at_5mib_s": 5 * 2**20,
}
"""Column -> payload that a stream has to have received."""
MARK_BYTES = tuple(MARKS.values())


def perf_table(
    ended: Iterable[tuple[dict[str, Any], Complete, Progress | None]], epoch_us: int
) -> pa.Table:
    """Return the rows of perf.parquet for one client.

    Args:
        ended: for each stream that ended, its row of streams.parquet, its line, and the progress
            from status lines.
        epoch_us: start of simulated time, as Unix time in microseconds.
    """
    rows = [_row(row, complete, progress, epoch_us) for row, complete, progress in ended]
    rows.sort(key=lambda row: int(row["stream_index"]))
    return pa.Table.from_pylist(rows, schema=arrow_schema(PERF))


def _row(
    stream: dict[str, Any], complete: Complete, progress: Progress | None, epoch_us: int
) -> dict[str, Any]:
    start_us = complete.end_us - complete.duration_us
    marks_us = {} if progress is None else progress.marks_us
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
        **{
            # In a damaged log, a line may predate the start of the stream.
            name: (marks_us[amount] - start_us) / 1e6
            if marks_us.get(amount, -1) >= start_us
            else None
            for name, amount in MARKS.items()
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
    if "STALLOUT" in transport or "TIMEOUT" in transport:
        return f"PROXY-{transport}-{complete.transport_state}"
    return f"PROXY-{transport}"
