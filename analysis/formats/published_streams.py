"""Streams in whole ticks, each less what another column says, and back to the same bits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from analysis.arrays import Bools, Floats, Ints
from analysis.formats.published import KEPT, TICKS_PER_S

MOST_TICKS = 2**53
"""Beyond that not every number of ticks has a double of its own."""

Texts = NDArray[np.str_]


def coded(streams: pa.Table) -> dict[str, pa.Array] | None:
    """The columns of ``CODED_STREAMS`` but the gaps; None where these would not give all back.

    Args:
        streams: with the columns of ``KEPT``, client and class as text.
    """
    client = _texts(streams, "client")
    first = _firsts(client)
    ticks = {
        name: _ticks(streams, name)
        for name in (
            "start_s",
            "end_s",
            "ttfb_from_start_s",
            "time_to_last_byte_s",
            "time_to_320kib_s",
        )
    }
    apart = np.unique(client[first]).size < int(first.sum())
    counted = np.array_equal(streams["stream_index"].to_numpy(), _places(first))
    if apart or not counted or any(found is None for found in ticks.values()):
        return None
    known = {name: found for name, found in ticks.items() if found is not None}
    (start, _), (end, _) = known["start_s"], known["end_s"]
    first_byte, has_first = known["ttfb_from_start_s"]
    last_byte, has_last = known["time_to_last_byte_s"]
    target, has_target = known["time_to_320kib_s"]
    pause = start - np.where(first, 0, np.concatenate(([0], end[:-1])))
    whole_s = np.round(pause / TICKS_PER_S).astype(np.int64)
    return {
        **{name: streams[name].cast(pa.string()) for name in ("client", "class", "outcome")},
        "bytes_requested": streams["bytes_requested"],
        "pause_s": pa.array(whole_s),
        "pause_ticks": pa.array(pause - TICKS_PER_S * whole_s),
        "ttfb_ticks": pa.array(first_byte, mask=~has_first),
        "last_byte_ticks": pa.array(last_byte - first_byte, mask=~has_last),
        "target_ticks": pa.array(target - last_byte, mask=~has_target),
        "end_ticks": pa.array(end - start - last_byte),
    }


def restored(table: pa.Table) -> pa.Table:
    """The columns of ``KEPT`` from a table of ``CODED_STREAMS``, the same bits."""
    first = _firsts(_texts(table, "client"))
    first_byte, has_first = _integers(table, "ttfb_ticks")
    last_byte, has_last = _integers(table, "last_byte_ticks")
    last_byte = np.where(has_last, last_byte + first_byte, 0)
    target, has_target = _integers(table, "target_ticks")
    rest, _ = _integers(table, "end_ticks")
    whole_s, _ = _integers(table, "pause_s")
    pause_ticks, _ = _integers(table, "pause_ticks")
    duration = rest + last_byte
    # Each row ends by its pause and duration after the row before, a client's first after 0.
    total = np.cumsum(TICKS_PER_S * whole_s + pause_ticks + duration)
    before = np.concatenate(([0], total[:-1])).astype(np.int64)
    place = _places(first)
    end = total - (before[np.arange(place.size) - place] if place.size else 0)
    columns: Mapping[str, pa.Array] = {
        **{name: table[name] for name in ("client", "class", "outcome", "bytes_requested")},
        "stream_index": pa.array(place.astype(np.int32)),
        "start_s": pa.array((end - duration) / TICKS_PER_S),
        "end_s": pa.array(end / TICKS_PER_S),
        "ttfb_from_start_s": pa.array(first_byte / TICKS_PER_S, mask=~has_first),
        "time_to_last_byte_s": pa.array(last_byte / TICKS_PER_S, mask=~has_last),
        "time_to_320kib_s": pa.array((target + last_byte) / TICKS_PER_S, mask=~has_target),
    }
    return pa.table({column.name: columns[column.name] for column in KEPT})


def _ticks(table: pa.Table, name: str) -> tuple[Ints, Bools] | None:
    """A column of seconds in ticks, 0 for null, and where it has values; None if that is not it."""
    column = table[name].combine_chunks()
    there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    seconds = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), dtype=np.float64)
    if not np.all(np.abs(seconds) < MOST_TICKS / TICKS_PER_S):
        return None
    ticks = np.rint(seconds * TICKS_PER_S).astype(np.int64)
    again: Floats = ticks / TICKS_PER_S
    # As bits: 0 and -0 are equal, and NaN is not equal to itself.
    return (ticks, there) if np.array_equal(again.view("i8"), seconds.view("i8")) else None


def _integers(table: pa.Table, name: str) -> tuple[Ints, Bools]:
    """A column of integers, 0 for null, and where it has values."""
    column = table[name].combine_chunks()
    there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64), there


def _texts(table: pa.Table, name: str) -> Texts:
    return np.asarray(table[name].cast(pa.string()).to_pylist(), dtype=np.str_)


def _firsts(client: Texts) -> Bools:
    """Whether a row is the first one of its client, whose rows stand together."""
    return np.concatenate((np.ones(min(1, client.size), dtype=np.bool_), client[1:] != client[:-1]))


def _places(first: Bools) -> Ints:
    """Number of each row within its client, from 0."""
    rows = np.arange(first.size)
    return rows - np.maximum.accumulate(np.where(first, rows, 0)) if first.size else rows
