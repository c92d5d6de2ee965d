"""Write the files of one run in a published pack: only the data that figures and claims need."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import CIRCUITS, RECEIVED, RELAY_BYTES, STREAMS, SUMS
from analysis.formats.json_files import json_text
from analysis.formats.published import (
    COPIED_FILES,
    HeartbeatSpan,
    PublishedRun,
    is_published,
    write_table,
)
from analysis.formats.published_streams import write_streams
from analysis.formats.record_files import table_hashes
from analysis.formats.study import Level
from analysis.formats.tables import read_table, texts
from analysis.measures.contention import window_edges
from analysis.measures.data import ALL, BytesRead, ClassData
from analysis.measures.downloads import Download, asked_times
from analysis.measures.published import Curve, rounding_errors
from analysis.measures.run_data import groups_side_by_side, load_run

MAX_SPAN_S = 1e6
"""Maximum length of a run that is published second by second: eleven days."""

UNREAD_OF_CIRCUITS = ("purpose", "launched_s", "created_s", "reason")
"""Columns of circuits that no figure or claim reads; they are null in a published pack."""

SUMS_SCHEMA = pa.schema([(column.name, column.type) for column in SUMS])

Key = tuple[str, int]
"""Client and number of a stream."""


def publish(records: Path, levels: Sequence[Level], out: Path) -> None:
    """Write the files of one run in a published pack.

    ``levels`` has the run's level (setting of the network) in each study that includes the run. The
    files cover the measured spans of all these levels. The folder ``out`` is created.

    Raises:
        AnalysisError: The records are missing or damaged, are from a published pack themselves, or
            have heartbeats over more than ``MAX_SPAN_S``.
    """
    if is_published(records):
        raise AnalysisError(f"{records} is from a published pack", "pack the runs themselves")
    # Only the heartbeats of ``data`` are used. They do not depend on the level, so use any level.
    data = load_run(records, levels[0])
    out.mkdir(parents=True)
    for name in COPIED_FILES:
        if (records / name).is_file():
            shutil.copyfile(records / name, out / name)
    if (records / files.CIRCUITS_TABLE).is_file():
        circuits = read_table(records / files.CIRCUITS_TABLE, CIRCUITS)
        columns = [
            pa.nulls(circuits.num_rows, one.type) if one.name in UNREAD_OF_CIRCUITS else values
            for one, values in zip(circuits.schema, circuits.columns, strict=True)
        ]
        rows = _measured_circuits(circuits, levels)
        read = pa.table(columns, schema=circuits.schema)
        _write_rows(out / files.CIRCUITS_TABLE, read, rows)
    if (records / files.RELAY_BYTES_TABLE).is_file():
        relay_bytes = read_table(records / files.RELAY_BYTES_TABLE, RELAY_BYTES)
        rows = _measured_relay_bytes(relay_bytes, levels)
        _write_rows(out / files.RELAY_BYTES_TABLE, relay_bytes, rows)
    spans: dict[str, HeartbeatSpan] = {}
    if not (records / files.PEERS_TABLE).is_file():
        spans = _write_sums(out / files.PUBLISHED_GOODPUT, data, levels)
        gaps = _write_received(out / files.PUBLISHED_PROGRESS, records, levels)
        streams = read_table(records / files.STREAMS_TABLE, STREAMS)
        if not gaps:
            streams = _without_load(streams, levels)
        write_streams(out / files.PUBLISHED_STREAMS, streams, gaps)
    run = PublishedRun(records=table_hashes(records), tables=table_hashes(out), classes=spans)
    (out / files.PUBLISHED).write_text(json_text(run.content()), encoding="utf-8")


def _measured_circuits(table: pa.Table, levels: Sequence[Level]) -> pa.Array:
    """Return a mask of clients' circuits that were built or failed in a measured span."""
    ended = pc.is_in(table["result"].cast(pa.string()), value_set=pa.array(["built", "failed"]))
    end_s = table["end_s"].cast(pa.float64()).to_numpy()
    return pc.and_(pc.and_(pc.is_valid(table["class"]), ended), _in_spans(end_s, levels))


def _measured_relay_bytes(table: pa.Table, levels: Sequence[Level]) -> pa.Array:
    """Return a mask that is true for rows in a measured span and for each host's last row.

    The last row shows where the log ends.
    """
    time_s = table["time_s"].to_numpy()
    host = texts(table, "host")
    order = np.lexsort((time_s, host))
    last = np.zeros(time_s.shape, dtype=np.bool_)
    last[order] = np.append(host[order][1:] != host[order][:-1], True)[: order.size]
    return pc.or_(pa.array(last), _in_spans(np.floor(time_s), levels))


def _in_spans(time_s: Floats, levels: Sequence[Level]) -> pa.Array:
    inside = np.zeros(time_s.shape, dtype=np.bool_)
    for level in levels:
        inside |= (time_s >= level.measured_start_s) & (time_s < level.measured_end_s)
    return pa.array(inside)


def _write_rows(path: Path, table: pa.Table, rows: pa.Array) -> None:
    """Write the rows of a record table that the mask ``rows`` selects, without compression."""
    table = table.filter(rows)
    size = max(1, table.num_rows)
    pq.write_table(table, path, compression="none", row_group_size=size, write_statistics=False)


def _write_sums(
    path: Path, data: Mapping[str, ClassData], levels: Sequence[Level]
) -> dict[str, HeartbeatSpan]:
    """Write the bytes that each class had read by each second.

    Return class -> the span of its heartbeats.
    """
    reads = {name: read for name, one in data.items() if (read := one.bytes_read) is not None}
    spans = [(level.measured_start_s, level.measured_end_s) for level in levels]
    needed_s = np.concatenate([np.append(window_edges(*span), span) for span in spans])
    curves = {name: _curve(read, needed_s) for name, read in reads.items()}
    classes = {name: curve for name, curve in curves.items() if name != ALL}
    parts = [SUMS_SCHEMA.empty_table()]
    for name, (time_s, amount) in sorted(curves.items()):
        nothing = pa.nulls(time_s.size)
        of_all = name == ALL
        columns = [
            pa.array([name] * time_s.size, pa.string()),
            pa.array(time_s),
            nothing if of_all else pa.array(amount),
            pa.array(rounding_errors(classes, time_s, amount)) if of_all else nothing,
        ]
        parts.append(pa.table(columns, [c.name for c in SUMS]).cast(SUMS_SCHEMA))
    table = pa.concat_tables(parts).combine_chunks()
    write_table(path, SUMS, {name: table[name] for name in table.column_names})
    return {
        name: HeartbeatSpan(begin_s=read.begin_s, end_s=read.end_s, interval_s=read.beat_s)
        for name, read in reads.items()
    }


def _curve(read: BytesRead, needed_s: Floats) -> Curve:
    """Return the bytes read until each whole second, and until some other times.

    The other times are the start of the first heartbeat interval, the end of the last one, and the
    times in ``needed_s`` between these two.
    """
    low, high = read.begin_s, read.end_s
    if not (0 <= high - low <= MAX_SPAN_S):
        raise AnalysisError(
            f"its heartbeats reach from {low:g} s to {high:g} s, which is not published",
            f"runs of up to {MAX_SPAN_S:g} s are",
        )
    inside = needed_s[(needed_s > low) & (needed_s < high)]
    seconds = np.arange(np.ceil(low), np.floor(high) + 1)
    time_s = np.unique(np.concatenate(([low, high], seconds, inside)))
    return time_s, read.by(time_s)


def _write_received(path: Path, records: Path, levels: Sequence[Level]) -> dict[Key, float]:
    """Write the bytes that parallel downloads had received over time.

    Return (client, number of the stream) -> the longest time in which this download received no
    byte. If there are no parallel downloads, no file is written.
    """
    needed: dict[str, Floats] = {}
    downloads: dict[Key, Download] = {}
    for level in levels:
        for client, group in groups_side_by_side(records, level):
            needed[client] = np.union1d(needed.get(client, []), asked_times(list(group.values())))
            downloads.update({(client, index): one for index, one in group.items()})
    if not downloads:
        return {}
    rows = []
    for (client, number), one in sorted(downloads.items()):
        more_bytes = np.diff(one.received_at(needed[client]).astype(np.int64), prepend=0)
        rows += [
            (client, number, *point)
            for point in zip(needed[client].tolist(), more_bytes.tolist(), strict=True)
        ]
    columns = zip(*rows, strict=True)
    write_table(
        path,
        RECEIVED,
        {
            one.name: pa.array(values, one.type)
            for one, values in zip(RECEIVED, columns, strict=True)
        },
    )
    return {key: one.longest_gap_s for key, one in downloads.items()}


def _without_load(streams: pa.Table, levels: Sequence[Level]) -> pa.Table:
    """Return the streams, except streams of classes that are background load at all levels.

    Metrics need the streams of background load only if there are parallel downloads.
    """
    loads = [{name for name, one in level.classes.items() if one.load} for level in levels]
    load = pa.array(sorted(set.intersection(*loads)), pa.string())
    return streams.filter(pc.invert(pc.is_in(streams["class"].cast(pa.string()), value_set=load)))
