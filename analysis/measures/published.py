"""Loading of the heartbeats and download progress of a run from a published pack."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.arrays import Floats, Ints
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.published import (
    GET_ANEW,
    RECEIVED,
    SUMS,
    Heard,
    read_published,
)
from analysis.formats.tables import read_table
from analysis.measures.data import ALL, BytesRead

Curve = tuple[Floats, Floats]
"""Ascending times, and the cumulative bytes at each of them."""


def load_sums(records: Path) -> dict[str, BytesRead]:
    """Return the bytes read over time by each class with heartbeats and by ``ALL``.

    Raises:
        AnalysisError: a file is missing or damaged, or the files do not match.
    """
    facts = read_published(records)
    path = records / files.PUBLISHED_GOODPUT
    table = read_table(path, SUMS, missing=GET_ANEW, wrong=GET_ANEW)
    names = np.asarray(table["class"].to_pylist(), dtype=np.str_)
    columns = {
        name: table[name].to_numpy(zero_copy_only=False) for name in ("time_s", "bytes_read")
    }
    rows = {str(name): np.flatnonzero(names == name) for name in np.unique(names)}
    if set(rows) != set(facts.classes):
        raise AnalysisError(f"{path} and {files.PUBLISHED} have different classes", GET_ANEW)
    of_class = {
        name: _curve(path, columns["time_s"][own], columns["bytes_read"][own])
        for name, own in rows.items()
        if name != ALL
    }
    curves = dict(of_class)
    if ALL in rows:
        own = rows[ALL]
        if table["rounding"].take(own).null_count:
            raise AnalysisError(f"{path} has rows of {ALL} without rounding", GET_ANEW)
        rounding = table["rounding"].fill_null(0).to_numpy()[own]
        time_s = columns["time_s"][own]
        curves[ALL] = _curve(path, time_s, summed(of_class, time_s, rounding))
    return {name: _read(facts.classes[name], curve) for name, curve in curves.items()}


def bytes_by(curve: Curve, grid_s: Floats) -> Floats:
    """Return the bytes at each time of a grid, interpolated between the times of the curve."""
    time_s, amount = curve
    return np.interp(grid_s, time_s, amount, left=0.0)


def summed(curves: Mapping[str, Curve], time_s: Floats, rounding: Ints) -> Floats:
    """Return the bytes of all classes together: their sum, corrected by units in the last place."""
    total = np.zeros(time_s.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for name in sorted(curves):
            total = total + bytes_by(curves[name], time_s)
    return (total.view(np.int64) + rounding).view(np.float64)


def rounding_of(curves: Mapping[str, Curve], time_s: Floats, amount: Floats) -> Ints:
    """Return the correction with which ``summed`` returns exactly ``amount``."""
    total = summed(curves, time_s, np.zeros(time_s.shape, dtype=np.int64))
    return np.asarray(amount.view(np.int64) - total.view(np.int64))


def _curve(path: Path, time_s: Floats, amount: Floats) -> Curve:
    finite = np.all(np.isfinite(time_s)) and np.all(np.isfinite(amount))
    if not (finite and np.all(np.diff(time_s) > 0)):
        raise AnalysisError(f"{path} has times that do not ascend, or rows without bytes", GET_ANEW)
    return time_s, amount


def _read(heard: Heard, curve: Curve) -> BytesRead:
    return BytesRead(heard.begin_s, heard.end_s, heard.interval_s, partial(bytes_by, curve))


def load_received(records: Path) -> dict[tuple[str, int], Curve]:
    """Return (client, stream number) -> bytes received by the times of ``asked_times``.

    Raises:
        AnalysisError: the table is damaged.
    """
    path = records / files.PUBLISHED_PROGRESS
    if not path.is_file():
        return {}
    table = read_table(path, RECEIVED, wrong=GET_ANEW)
    time_s, more = table["time_s"].to_numpy(), table["more_bytes"].to_numpy()
    received = {}
    for key, rows in stream_rows(table).items():
        by = np.cumsum(more[rows]).astype(np.float64)
        if not (np.all(np.diff(time_s[rows]) > 0) and np.all(np.diff(by, prepend=0.0) >= 0)):
            raise AnalysisError(f"{path} has times or bytes that do not ascend", GET_ANEW)
        received[key] = (time_s[rows], by)
    return received


def stream_rows(table: pa.Table) -> dict[tuple[str, int], slice]:
    """Return (client, stream number) -> its rows, which are contiguous."""
    names, index = table["client"].to_pylist(), table["stream_index"].to_pylist()
    ends = [
        row
        for row in range(1, len(names) + 1)
        if row == len(names) or (names[row], index[row]) != (names[row - 1], index[row - 1])
    ]
    return {(names[begin], index[begin]): slice(begin, end) for begin, end in pairwise([0, *ends])}
