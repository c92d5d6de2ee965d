"""Writing and reading of the streams of a published run (see ``published``).

Times are stored as whole ticks relative to other columns, unless this would change a value. A tick
is 1 / ``TICKS_PER_S`` seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from analysis.arrays import Bools, Floats, Ints
from analysis.formats import files
from analysis.formats.byte_marks import BYTE_MARKS, CODED_MARKS
from analysis.formats.columns import CODED_STREAMS, GAP, STREAMS
from analysis.formats.published import GET_ANEW, TICKS_PER_S, write_table
from analysis.formats.tables import read_table, require_values, texts

MAX_TICKS = 2**53
"""Maximum number of ticks. Doubles represent every integer up to this one exactly."""

_PUBLISHED_NAMES = (
    *("client", "class", "stream_index", "start_s", "ttfb_from_start_s", *BYTE_MARKS),
    *("time_to_last_byte_s", "bytes_requested", "outcome", "end_s"),
)

PUBLISHED_COLUMNS = tuple(
    column for name in _PUBLISHED_NAMES for column in STREAMS if column.name == name
)
"""The columns of streams that metrics, figures and claims read.

Only ``ttfb_from_command_p50_s`` needs another column, so published runs do not have this metric.
"""

_TIMES = ("start_s", "end_s", "ttfb_from_start_s", "time_to_last_byte_s", *BYTE_MARKS)
_CODED_MARKS = {name: CODED_MARKS[size] for name, size in BYTE_MARKS.items()}


def write_streams(path: Path, streams: pa.Table, gaps: Mapping[tuple[str, int], float]) -> None:
    """Write the streams of a run.

    gaps: (client, stream_index) of a download -> the longest time without a byte, in seconds.
    """
    keys = zip(streams["client"].to_pylist(), streams["stream_index"].to_pylist(), strict=True)
    gap = {GAP.name: pa.array([gaps.get(key) for key in keys], pa.float64())}
    coded = encode(streams)
    if coded is not None:
        write_table(path, CODED_STREAMS, coded | gap)
    else:
        plain = {column.name: streams[column.name] for column in PUBLISHED_COLUMNS}
        write_table(path, (*PUBLISHED_COLUMNS, GAP), plain | gap)


def read_streams(records: Path) -> pa.Table:
    """Return the streams of a published run: ``PUBLISHED_COLUMNS`` and ``GAP``.

    Raises:
        AnalysisError: The table is missing or damaged, or has neither layout of `write_streams`.
    """
    path = records / files.PUBLISHED_STREAMS
    plain = (*PUBLISHED_COLUMNS, GAP)
    table = read_table(path, plain, CODED_STREAMS, missing=GET_ANEW, wrong=GET_ANEW)
    if "pause_ticks" in table.column_names:
        table = decode(table).append_column(GAP.name, table[GAP.name])
    require_values(path, table, PUBLISHED_COLUMNS, GET_ANEW)
    return table


def encode(streams: pa.Table) -> dict[str, pa.Array] | None:
    """Return the columns of ``CODED_STREAMS`` except ``GAP``, by name.

    The result is None if `decode` would not restore each value exactly.

    streams: A table with ``PUBLISHED_COLUMNS``.
    """
    client = texts(streams, "client")
    first = _is_first(client)
    seconds = {name: _values(streams, name) for name in _TIMES}
    if (
        np.unique(client[first]).size < int(first.sum())
        or not np.array_equal(streams["stream_index"].to_numpy(), _number(first))
        or not all(_are_ticks(values) for values, _ in seconds.values())
    ):
        return None
    ticks = {name: _ticks(values) for name, (values, _) in seconds.items()}
    start, end, first_byte, last_byte = (ticks[name] for name in _TIMES[:4])
    has_first_byte, has_last_byte = (seconds[name][1] for name in _TIMES[2:4])
    pause = start - np.where(first, 0, np.concatenate(([0], end[:-1])))
    whole_s = np.round(pause / TICKS_PER_S).astype(np.int64)
    return {
        **{name: streams[name].cast(pa.string()) for name in ("client", "class", "outcome")},
        "bytes_requested": streams["bytes_requested"],
        "pause_s": pa.array(whole_s),
        "pause_ticks": pa.array(pause - TICKS_PER_S * whole_s),
        "ttfb_ticks": pa.array(first_byte, mask=~has_first_byte),
        "last_byte_ticks": pa.array(last_byte - first_byte, mask=~has_last_byte),
        **{
            coded: pa.array(ticks[name] - last_byte, mask=~seconds[name][1])
            for name, coded in _CODED_MARKS.items()
        },
        "end_ticks": pa.array(end - start - last_byte),
    }


def decode(table: pa.Table) -> pa.Table:
    """Return ``PUBLISHED_COLUMNS`` from ``CODED_STREAMS``, bit-identical to the encoded columns."""
    first = _is_first(texts(table, "client"))
    first_byte, has_first_byte = _values(table, "ttfb_ticks")
    last_byte, has_last_byte = _values(table, "last_byte_ticks")
    last_byte = np.where(has_last_byte, last_byte + first_byte, 0)
    marks = {name: _values(table, coded) for name, coded in _CODED_MARKS.items()}
    duration = _values(table, "end_ticks")[0] + last_byte
    pause = TICKS_PER_S * _values(table, "pause_s")[0] + _values(table, "pause_ticks")[0]
    # The pause of a stream is the time from the end of the client's previous stream (from 0 for the
    # first stream) to the stream's start. So a stream's end is the sum of the client's pauses and
    # durations up to and including those of this stream.
    total = np.cumsum(pause + duration)
    before_client = np.maximum.accumulate(np.where(first, np.arange(first.size), 0))
    end = total - np.concatenate(([0], total))[before_client].astype(np.int64)
    columns = {
        **{name: table[name] for name in ("client", "class", "outcome", "bytes_requested")},
        "stream_index": pa.array(_number(first).astype(np.int32)),
        "start_s": pa.array((end - duration) / TICKS_PER_S),
        "end_s": pa.array(end / TICKS_PER_S),
        "ttfb_from_start_s": pa.array(first_byte / TICKS_PER_S, mask=~has_first_byte),
        "time_to_last_byte_s": pa.array(last_byte / TICKS_PER_S, mask=~has_last_byte),
        **{
            name: pa.array((ticks + last_byte) / TICKS_PER_S, mask=~valid)
            for name, (ticks, valid) in marks.items()
        },
    }
    return pa.table({column.name: columns[column.name] for column in PUBLISHED_COLUMNS})


def _are_ticks(seconds: Floats) -> bool:
    """Return whether all times are exactly whole numbers of ticks."""
    if not np.all(np.abs(seconds) < MAX_TICKS / TICKS_PER_S):
        return False
    # Compare bits, because the numbers 0 and -0 count as equal.
    return np.array_equal((_ticks(seconds) / TICKS_PER_S).view("i8"), seconds.view("i8"))


def _ticks(seconds: Floats) -> Ints:
    return np.rint(seconds * TICKS_PER_S).astype(np.int64)


def _values(table: pa.Table, name: str) -> tuple[NDArray[Any], Bools]:
    """Return a column of numbers with 0 for null, and a mask of the rows with a value."""
    column = table[name].combine_chunks()
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    return column.fill_null(0).to_numpy(zero_copy_only=False), valid


def _is_first(client: NDArray[np.str_]) -> Bools:
    """Return a mask of the first row of each client. A client's rows are adjacent."""
    return np.concatenate((np.ones(min(1, client.size), dtype=np.bool_), client[1:] != client[:-1]))


def _number(first: Bools) -> Ints:
    """Return each row's number among the rows of its client, starting at 0."""
    rows = np.arange(first.size)
    return rows - np.maximum.accumulate(np.where(first, rows, 0))
