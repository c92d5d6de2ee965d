"""Read a run's bytes over time, and the progress of its streams, from a published pack.

A published pack contains only those data of the runs' records that figures and claims need.
"""

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
from analysis.formats.columns import RECEIVED, SUMS
from analysis.formats.published import GET_ANEW, read_published
from analysis.formats.tables import read_table, texts
from analysis.measures.data import ALL, BytesRead

Curve = tuple[Floats, Floats]
"""Ascending times, and the cumulative bytes at each of them."""


def load_sums(records: Path) -> dict[str, BytesRead]:
    """Return class of clients -> the bytes that it read over time. ``ALL`` is all classes together.

    Classes whose clients logged no heartbeats (regular lines of TGen) are omitted.

    Raises:
        AnalysisError: A file is missing or damaged, or the files do not match each other.
    """
    spans = read_published(records).classes
    path = records / files.PUBLISHED_GOODPUT
    table = read_table(path, SUMS, missing=GET_ANEW, wrong=GET_ANEW)
    names = texts(table, "class")
    if set(names.tolist()) != set(spans):
        raise AnalysisError(f"{path} and {files.PUBLISHED} have other classes", GET_ANEW)
    time_s, amount = (
        table[name].to_numpy(zero_copy_only=False) for name in ("time_s", "bytes_read")
    )
    curves = {name: (time_s[names == name], amount[names == name]) for name in spans}
    if ALL in curves:
        rounding = table["rounding"].filter(pa.array(names == ALL))
        if rounding.null_count:
            raise AnalysisError(f"{path} has rows of {ALL} without rounding", GET_ANEW)
        of_all, _ = curves.pop(ALL)
        curves[ALL] = of_all, _sum(curves, of_all, rounding.to_numpy())
    for times, values in curves.values():
        finite = np.all(np.isfinite(times)) and np.all(np.isfinite(values))
        # If the column "rounding" is damaged, the sum for ``ALL`` is negative or descends. Sums of
        # interpolated counts are not exact, so one byte of descent is accepted.
        ascending = np.all(np.diff(times) > 0) and np.all(np.diff(values) >= -1)
        if not (finite and ascending and np.all(values >= 0)):
            raise AnalysisError(
                f"{path} has times or bytes that do not ascend, or rows without bytes", GET_ANEW
            )
    return {
        name: BytesRead(span.begin_s, span.end_s, span.interval_s, partial(bytes_by, curves[name]))
        for name, span in spans.items()
    }


def bytes_by(curve: Curve, grid_s: Floats) -> Floats:
    """Return the bytes until each time of a grid, interpolated between the points of a curve."""
    time_s, amount = curve
    return np.interp(grid_s, time_s, amount, left=0.0)


def rounding_errors(curves: Mapping[str, Curve], time_s: Floats, amount: Floats) -> Ints:
    """Return ``amount`` minus the sum of the classes' curves, in units in the last place.

    With these numbers, `load_sums` restores ``amount`` exactly from the curves.

    amount: the bytes of all classes together at ``time_s``, computed from all heartbeats at once.
    """
    total = _sum(curves, time_s, np.zeros(time_s.shape, dtype=np.int64))
    return np.asarray(amount.view(np.int64) - total.view(np.int64))


def _sum(curves: Mapping[str, Curve], time_s: Floats, rounding: Ints) -> Floats:
    """Return the sum of the classes' curves, corrected by ``rounding`` units in the last place."""
    total = np.zeros(time_s.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for name in sorted(curves):
            total = total + bytes_by(curves[name], time_s)
    return (total.view(np.int64) + rounding).view(np.float64)


def load_received(records: Path) -> dict[tuple[str, int], Curve]:
    """Return (client, number of the stream) -> times, and the bytes received by each time.

    The result is empty if the pack does not contain the progress of streams.

    Raises:
        AnalysisError: The table is damaged.
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
    """Return the adjacent rows of each stream in a table: (client, stream number) -> slice."""
    keys = list(zip(table["client"].to_pylist(), table["stream_index"].to_pylist(), strict=True))
    begins = [row for row, key in enumerate(keys) if row == 0 or key != keys[row - 1]]
    return {keys[begin]: slice(begin, end) for begin, end in pairwise([*begins, len(keys)])}
