"""Conversion of a run's records to the content of a published pack."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import CIRCUITS, RELAY_BYTES, STREAMS, Column
from analysis.formats.published import (
    AS_THEY_ARE,
    CODED_STREAMS,
    GAP,
    KEPT,
    RECEIVED,
    SUMS,
    Heard,
    PublishedRun,
    is_published,
    write_published,
    write_table,
)
from analysis.formats.published_streams import coded
from analysis.formats.record_files import table_hashes
from analysis.formats.study import Level
from analysis.formats.tables import read_table
from analysis.measures.contention import window_edges
from analysis.measures.data import ALL, BytesRead, ClassData
from analysis.measures.downloads import Download, asked_times
from analysis.measures.published import Curve, rounding_of
from analysis.measures.run_data import groups_side_by_side, load_run

LONGEST_S = 1e6
"""Maximum length of a published run: eleven days."""

Key = tuple[str, int]
"""Client and number of a stream."""

_ReadRows = Callable[[pa.Table, Sequence[Level]], pa.Array]
"""Selects the rows of a table that metrics use at any of the levels."""


def publish(records: Path, levels: Sequence[Level], out: Path) -> None:
    """Write the part of a run's records that a published pack contains.

    Args:
        records: the records of the run.
        levels: the levels at which studies use the run, at least one; their measured spans are
            published.
        out: the directory to create.

    Raises:
        AnalysisError: the records are missing or damaged, come from a published pack themselves, or
            cover more seconds than can be published.
    """
    if is_published(records):
        raise AnalysisError(f"{records} is from a published pack", "pack the original runs")
    # Heartbeats do not depend on the level.
    data = load_run(records, levels[0])
    out.mkdir(parents=True)
    for name in AS_THEY_ARE:
        if (records / name).is_file():
            shutil.copyfile(records / name, out / name)
    for name, (columns, read_rows) in _ROWS_THAT_COUNT.items():
        if (records / name).is_file():
            table = read_table(records / name, columns)
            _write_rows(out / name, table.filter(read_rows(table, levels)))
    heard: dict[str, Heard] = {}
    if not (records / files.PEERS_TABLE).is_file():
        heard = _write_sums(out / files.PUBLISHED_GOODPUT, data, _asked(levels))
        gaps = _write_received(out / files.PUBLISHED_PROGRESS, records, levels)
        streams = read_table(records / files.STREAMS_TABLE, STREAMS)
        if not gaps:
            streams = _without_load(streams, levels)
        _write_streams(out / files.PUBLISHED_STREAMS, streams, gaps)
    run = PublishedRun(records=table_hashes(records), tables=table_hashes(out), classes=heard)
    write_published(out / files.PUBLISHED, run)


def _circuits_that_count(table: pa.Table, levels: Sequence[Level]) -> pa.Array:
    """Select circuits of clients that were built or failed in a measured span."""
    ended = pc.is_in(table["result"].cast(pa.string()), value_set=pa.array(["built", "failed"]))
    end_s = table["end_s"].cast(pa.float64()).to_numpy()
    return pc.and_(pc.and_(pc.is_valid(table["class"]), ended), _in_spans(end_s, levels))


def _relay_bytes_that_count(table: pa.Table, levels: Sequence[Level]) -> pa.Array:
    """Select seconds in a measured span, and the last row of each host: the end of its log."""
    time_s = table["time_s"].to_numpy()
    host = np.asarray(table["host"].cast(pa.string()).to_pylist(), dtype=np.str_)
    order = np.lexsort((time_s, host))
    last = np.zeros(time_s.shape, dtype=np.bool_)
    is_last = np.ones(order.shape, dtype=np.bool_)
    is_last[:-1] = host[order][1:] != host[order][:-1]
    last[order[is_last]] = True
    return pc.or_(pa.array(last), _in_spans(np.floor(time_s), levels))


def _in_spans(time_s: Floats, levels: Sequence[Level]) -> pa.Array:
    inside = np.zeros(time_s.shape, dtype=np.bool_)
    for level in levels:
        inside |= (time_s >= level.measured_start_s) & (time_s < level.measured_end_s)
    return pa.array(inside)


_ROWS_THAT_COUNT: Mapping[str, tuple[tuple[Column, ...], _ReadRows]] = {
    files.CIRCUITS_TABLE: (CIRCUITS, _circuits_that_count),
    files.RELAY_BYTES_TABLE: (RELAY_BYTES, _relay_bytes_that_count),
}
"""Tables of which metrics use only some rows."""


def _write_rows(path: Path, table: pa.Table) -> None:
    """Write rows of a record table, uncompressed because the pack is compressed."""
    pq.write_table(
        table,
        path,
        compression="none",
        row_group_size=max(1, table.num_rows),
        write_statistics=False,
    )


def _asked(levels: Sequence[Level]) -> Floats:
    """Return the times, other than whole seconds, at which the bytes read are needed."""
    spans = [(level.measured_start_s, level.measured_end_s) for level in levels]
    return np.concatenate([np.append(window_edges(*span), span) for span in spans])


def _write_sums(path: Path, data: Mapping[str, ClassData], asked_s: Floats) -> dict[str, Heard]:
    """Write the bytes read by each class over time, and return the facts of its heartbeats."""
    reads = {name: read for name, one in data.items() if (read := one.bytes_read) is not None}
    curves = {name: _curve(read, asked_s) for name, read in reads.items()}
    of_class = {name: curve for name, curve in curves.items() if name != ALL}
    names, times, amounts, roundings = [], [], [], []
    for name in sorted(curves):
        time_s, amount = curves[name]
        names += [name] * time_s.size
        times.append(time_s)
        if name == ALL:
            amounts.append(pa.nulls(time_s.size, pa.float64()))
            roundings.append(pa.array(rounding_of(of_class, time_s, amount)))
        else:
            amounts.append(pa.array(amount))
            roundings.append(pa.nulls(time_s.size, pa.int64()))
    columns = {
        "class": pa.array(names, pa.string()),
        "time_s": pa.array(np.concatenate([np.empty(0), *times])),
        "bytes_read": pa.concat_arrays([pa.array([], pa.float64()), *amounts]),
        "rounding": pa.concat_arrays([pa.array([], pa.int64()), *roundings]),
    }
    write_table(path, SUMS, columns)
    return {name: Heard(**_facts(read)) for name, read in reads.items()}


def _facts(read: BytesRead) -> dict[str, float]:
    return {"begin_s": read.begin_s, "end_s": read.end_s, "interval_s": read.beat_s}


def _curve(read: BytesRead, asked_s: Floats) -> Curve:
    """Return the bytes read at whole seconds, at both ends of the heartbeats, and as requested."""
    low, high = read.begin_s, read.end_s
    if not (0 <= high - low <= LONGEST_S):
        raise AnalysisError(
            f"its heartbeats reach from {low:g} s to {high:g} s, which is too long to publish",
            f"publish runs of at most {LONGEST_S:g} s",
        )
    inside = asked_s[(asked_s > low) & (asked_s < high)]
    seconds = np.arange(np.ceil(low), np.floor(high) + 1)
    time_s = np.unique(np.concatenate(([low, high], seconds, inside)))
    return time_s, read.by(time_s)


def _write_received(path: Path, records: Path, levels: Sequence[Level]) -> dict[Key, float]:
    """Write the progress of parallel downloads, and return the longest gap of each.

    No file is written if there are no such downloads.
    """
    asked: dict[str, list[Floats]] = {}
    downloads: dict[Key, Download] = {}
    for level in levels:
        for client, group in groups_side_by_side(records, level):
            asked.setdefault(client, []).append(asked_times(list(group.values())))
            downloads.update({(client, index): one for index, one in group.items()})
    if not downloads:
        return {}
    names, index, times, increments = [], [], [], []
    for (client, number), one in sorted(downloads.items()):
        time_s = np.unique(np.concatenate(asked[client]))
        names += [client] * time_s.size
        index.append(np.full(time_s.size, number, dtype=np.int64))
        times.append(time_s)
        increments.append(np.diff(one.received_at(time_s).astype(np.int64), prepend=0))
    columns = {
        "client": pa.array(names, pa.string()),
        "stream_index": pa.array(np.concatenate(index)),
        "time_s": pa.array(np.concatenate(times)),
        "more_bytes": pa.array(np.concatenate(increments)),
    }
    write_table(path, RECEIVED, columns)
    return {key: one.longest_gap_s for key, one in downloads.items()}


def _without_load(streams: pa.Table, levels: Sequence[Level]) -> pa.Table:
    """Return the streams, except for classes that are background load at all levels.

    These are needed only if the progress of parallel downloads is known.
    """
    load_classes = [{name for name, one in level.classes.items() if one.load} for level in levels]
    load = pa.array(sorted(set.intersection(*load_classes)), pa.string())
    return streams.filter(pc.invert(pc.is_in(streams["class"].cast(pa.string()), value_set=load)))


def _write_streams(path: Path, streams: pa.Table, gaps: Mapping[Key, float]) -> None:
    keys = zip(streams["client"].to_pylist(), streams["stream_index"].to_pylist(), strict=True)
    of_gaps = {GAP.name: pa.array([gaps.get(key) for key in keys], pa.float64())}
    encoded = coded(streams)
    if encoded is not None:
        write_table(path, CODED_STREAMS, {**encoded, **of_gaps})
        return
    plain = {column.name: streams[column.name] for column in KEPT}
    write_table(path, (*KEPT, GAP), {**plain, **of_gaps})
