"""Loading of a run's records as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from analysis.arrays import Floats
from analysis.celltrace.arrivals import Arrivals
from analysis.celltrace.cell_tables import load_arrivals, load_cells
from analysis.celltrace.cells import Cells
from analysis.celltrace.queueing import served, waits
from analysis.celltrace.statistics import relayed
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import GOODPUT, PEERS, PROGRESS, STREAMS, Column, Outcome
from analysis.formats.published import GAP, GET_ANEW, is_published
from analysis.formats.published_streams import read_streams
from analysis.formats.record_files import ParseReport, read_parse_report, read_transfer_facts
from analysis.formats.study import Level
from analysis.formats.tables import read_table
from analysis.formats.whole_run import require_streams, require_tables
from analysis.measures.data import ALL, Beats, ClassData, Streams
from analysis.measures.downloads import Download, download
from analysis.measures.peer_transfer import PeerTransfer
from analysis.measures.perf_data import with_tornet
from analysis.measures.published import load_received, load_sums, stream_rows
from analysis.records.peerlog import Kind


def load_run(records: Path, level: Level) -> dict[str, ClassData]:
    """Load the records of a run as arrays: the classes of the level, any others, and ``ALL``.

    Roles of traced relays are classes as well.

    Raises:
        AnalysisError: a table is missing, cannot be read, or does not match parse.json.
    """
    report = read_parse_report(records / files.PARSE_REPORT)
    require_tables(records, report)
    if (records / files.PEERS_TABLE).is_file():
        nothing = _without_streams(level)
        transfer = load_transfer(records)
        return {name: replace(nothing, transfer=transfer) for name in level.classes}
    if is_published(records):
        return _published(records, level, report)
    streams = _read(records / files.STREAMS_TABLE, STREAMS)
    require_streams(records, report, streams)
    beats = _read(records / files.GOODPUT_TABLE, GOODPUT)
    progress = _progress(records)
    tables = (streams, beats)
    clients = sorted({name for t in tables for name in pc.unique(t["client"]).to_pylist()})
    streams, beats = (_with_codes(table, clients) for table in tables)
    names = sorted(
        set(level.classes)
        | set(pc.unique(streams["class"]).to_pylist())
        | set(pc.unique(beats["class"]).to_pylist())
    )
    classes = {}
    for name in names:
        own = streams.filter(pc.equal(streams["class"], name))
        classes[name] = _class_data(
            own,
            _beats(beats.filter(pc.equal(beats["class"], name))),
            level,
            level.horizon_s(name),
            clients,
            dict(_groups(own, clients, progress, level)),
        )
    all_classes = _class_data(_without_load(streams, level), _beats(beats), level, None, clients)
    classes = _mark_load(classes, level)
    data = {**classes, **_by_role(records, level), ALL: all_classes}
    return with_tornet(records, _with_unknown_reasons(data, report), report)


def _with_unknown_reasons(data: dict[str, ClassData], report: ParseReport) -> dict[str, ClassData]:
    """Add the reasons why the throughput of classes is unknown."""
    return {
        name: replace(
            one, unknown_bytes_reason=report.unknown_bytes_reason(None if name == ALL else name)
        )
        for name, one in data.items()
    }


def _published(records: Path, level: Level, report: ParseReport) -> dict[str, ClassData]:
    """Return what a published pack has of a run's records as arrays. Raises as ``load_run``."""
    streams = read_streams(records)
    require_streams(records, report, streams)
    sums, progress = load_sums(records), load_received(records)
    clients = sorted(pc.unique(streams["client"].cast(pa.string())).to_pylist())
    streams = _with_codes(_with_texts(streams), clients)
    names = sorted(
        set(level.classes) | set(pc.unique(streams["class"]).to_pylist()) | (set(sums) - {ALL})
    )
    classes = {}
    for name in names:
        own = streams.filter(pc.equal(streams["class"], name))
        side_by_side = dict(_groups(own, clients, progress, level))
        downloads = (one for group in side_by_side.values() for one in group.values())
        if any(one.known_gap_s is None for one in downloads):
            raise AnalysisError(f"{records} was published for a different measured span", GET_ANEW)
        classes[name] = replace(
            _class_data(own, None, level, level.horizon_s(name), clients, side_by_side),
            published_read=sums.get(name),
        )
    all_classes = _class_data(_without_load(streams, level), None, level, None, clients)
    classes = _mark_load(classes, level)
    all_classes = replace(all_classes, published_read=sums.get(ALL))
    data = {**classes, **_by_role(records, level), ALL: all_classes}
    return with_tornet(records, _with_unknown_reasons(data, report), report)


def _without_load(streams: pa.Table, level: Level) -> pa.Table:
    """Return the streams of classes that are not background load."""
    load = [name for name, one in level.classes.items() if one.load]
    if not load:
        return streams
    return streams.filter(pc.invert(pc.is_in(streams["class"], pa.array(load, pa.string()))))


def _mark_load(classes: dict[str, ClassData], level: Level) -> dict[str, ClassData]:
    """Return the classes, with background load marked and its streams removed.

    No metric needs more than the number of these streams, and a published pack omits them.
    """
    loads = {name for name, one in level.classes.items() if one.load}
    return {
        name: replace(
            data,
            load=True,
            streams=data.streams.started_in(0.0, 0.0),
            open_streams=(data.streams.open_at(data.begin_s), data.streams.open_at(data.end_s))
            if data.beats is not None
            else None,
        )
        if name in loads
        else data
        for name, data in classes.items()
    }


def _by_role(records: Path, level: Level) -> dict[str, ClassData]:
    """Return the cells of traced relays, with a class for each role of relays."""
    if not (records / files.CELLS_TABLE).is_file():
        return {}
    by_role: dict[str, list[tuple[Cells, Arrivals | None]]] = {}
    relays = load_cells(records)
    for (_, role, cells), arrived in zip(relays, load_arrivals(records, relays), strict=True):
        by_role.setdefault(role, []).append((cells, arrived))
    span_s = (level.measured_start_s, level.measured_end_s)
    return {
        role: replace(
            _without_streams(level),
            relayed=relayed([cells for cells, _ in own], *span_s),
            served=served([cells for cells, _ in own], *span_s),
            waits=waits(own, *span_s),
        )
        for role, own in sorted(by_role.items())
    }


def _without_streams(level: Level) -> ClassData:
    nothing = np.empty(0)
    codes = np.empty(0, dtype=np.int64)
    return ClassData(
        streams=Streams(
            codes, nothing, nothing, np.empty(0, dtype=np.str_), *(nothing for _ in range(4))
        ),
        beats=Beats(codes, nothing, nothing, nothing),
        begin_s=level.measured_start_s,
        end_s=level.measured_end_s,
        horizon_s=None,
    )


def load_transfer(records: Path) -> PeerTransfer:
    """Load a transfer between two peers from a run's records.

    Raises:
        AnalysisError: the table or the file with the facts of the path is missing or cannot be
            read.
    """
    table = read_table(
        records / files.PEERS_TABLE, PEERS, missing="extract the run's records first"
    )
    facts = read_transfer_facts(records)
    kind, role = (_texts(table, name) for name in ("kind", "role"))
    time_s = _floats(table, "time_s")
    connected_s = time_s[(kind == Kind.CONNECTED) & (role == "seed")]
    if connected_s.size == 0:
        raise AnalysisError(f"{records}: the seed was never connected")
    since_s = time_s - connected_s[0]
    utp = (kind == Kind.UTP) & (role == "seed")
    if utp.any():
        # Only one socket of the seed carries the transfer; the others only perform handshakes.
        socket, in_flight = _floats(table, "socket"), _floats(table, "in_flight_bytes")
        utp &= socket == socket[utp][np.argmax(in_flight[utp])]
    requests = (kind == Kind.REQUESTS) & (role == "downloader")
    received = (kind == Kind.RECEIVED) & (role == "downloader")

    def column(name: str, rows: NDArray[np.bool_]) -> Floats:
        return _floats(table, name)[rows]

    return PeerTransfer(
        rtt_s=facts.rtt_s,
        end_s=float(since_s.max()),
        utp_s=since_s[utp],
        window_bytes=column("window_bytes", utp),
        in_flight_bytes=column("in_flight_bytes", utp),
        event=_texts(table, "event")[utp],
        requests_s=since_s[requests],
        target_requests=column("target_requests", requests),
        outstanding_requests=column("outstanding_requests", requests),
        request_slow_start=column("slow_start", requests) == 1.0,
        received_s=since_s[received],
        received_bytes=column("received_bytes", received),
    )


def _texts(table: pa.Table, name: str) -> NDArray[np.str_]:
    values = table[name].cast(pa.string()).to_pylist()
    return np.asarray([value or "" for value in values], dtype=np.str_)


def _read(path: Path, columns: tuple[Column, ...]) -> pa.Table:
    return _with_texts(read_table(path, columns, missing="extract the run's records first"))


def _with_texts(table: pa.Table) -> pa.Table:
    """Convert clients and classes from dictionary codes to text."""
    for name in ("client", "class"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(pa.string()))
    return table


def _with_codes(table: pa.Table, clients: list[str]) -> pa.Table:
    """Replace each client by its index in the list."""
    place = table.schema.get_field_index("client")
    return table.set_column(
        place, "client", pc.index_in(table["client"], value_set=pa.array(clients, pa.string()))
    )


def _class_data(
    streams: pa.Table,
    beats: Beats | None,
    level: Level,
    horizon_s: float | None,
    clients: Sequence[str],
    side_by_side: Mapping[str, dict[int, Download]] | None = None,
) -> ClassData:
    groups = side_by_side or {}
    from_command = "ttfb_from_command_s"
    return ClassData(
        streams=Streams(
            client=_codes(streams),
            start_s=_floats(streams, "start_s"),
            end_s=_floats(streams, "end_s"),
            outcome=np.asarray(streams["outcome"].cast(pa.string()).to_pylist(), dtype=np.str_),
            ttfb_s=_floats(streams, "ttfb_from_start_s"),
            ttfb_from_command_s=None if beats is None else _floats(streams, from_command),
            time_to_320kib_s=_floats(streams, "time_to_320kib_s"),
            time_to_last_byte_s=_floats(streams, "time_to_last_byte_s"),
            bytes_requested=_floats(streams, "bytes_requested"),
        ),
        beats=beats,
        begin_s=level.measured_start_s,
        end_s=level.measured_end_s,
        horizon_s=horizon_s,
        side_by_side=tuple(tuple(group.values()) for group in groups.values() if group),
        not_side_by_side=tuple(name for name, group in groups.items() if not group),
        clients=tuple(clients),
    )


def _beats(table: pa.Table) -> Beats:
    end_s = _floats(table, "time_s")
    return Beats(
        client=_codes(table),
        begin_s=end_s - _floats(table, "interval_s"),
        end_s=end_s,
        bytes_read=_floats(table, "bytes_read"),
    )


Progress = dict[tuple[str, int], tuple[Floats, Floats]]
"""(client, stream number) -> times and bytes received by then, two arrays of the same shape."""


def _progress(records: Path) -> Progress:
    """Load the progress of streams; empty if it was not logged."""
    if not (records / files.PROGRESS_TABLE).is_file():
        return {}
    table = _read(records / files.PROGRESS_TABLE, PROGRESS)
    time_s, received = _floats(table, "time_s"), _floats(table, "bytes_received")
    return {key: (time_s[rows], received[rows]) for key, rows in stream_rows(table).items()}


def _groups(
    streams: pa.Table, clients: list[str], progress: Progress, level: Level
) -> Iterator[tuple[str, dict[int, Download]]]:
    """Yield the clients with parallel downloads, and these by number, oldest first.

    A client with a stream of unknown outcome or size has none, because its service is not fully
    known.
    """
    if not progress:
        return
    rows_by_client: dict[int, list[dict[str, Any]]] = {}
    for row in streams.to_pylist():
        if level.measured_start_s <= row["start_s"] < level.measured_end_s:
            rows_by_client.setdefault(row["client"], []).append(row)
    for code, rows in sorted(rows_by_client.items()):
        rows.sort(key=lambda row: (row["start_s"], row["stream_index"]))
        ends = [row["end_s"] for row in rows]
        overlap = any(row["start_s"] < end for row, end in zip(rows[1:], ends, strict=False))
        known = all(row["bytes_requested"] and row["outcome"] != Outcome.UNKNOWN for row in rows)
        if overlap:
            name = clients[code]
            found = {row["stream_index"]: _download(row, name, progress) for row in rows if known}
            yield name, found


def groups_side_by_side(records: Path, level: Level) -> Iterator[tuple[str, dict[int, Download]]]:
    """Yield the clients of a whole run with parallel downloads, and these by number.

    Raises:
        AnalysisError: a table is missing or cannot be read.
    """
    streams = _read(records / files.STREAMS_TABLE, STREAMS)
    clients = sorted(pc.unique(streams["client"]).to_pylist())
    streams, progress = _with_codes(streams, clients), _progress(records)
    for name in sorted(pc.unique(streams["class"]).to_pylist()):
        own = streams.filter(pc.equal(streams["class"], name))
        yield from (
            (name, group) for name, group in _groups(own, clients, progress, level) if group
        )


def _download(row: dict[str, Any], client: str, progress: Progress) -> Download:
    nothing = (np.empty(0), np.empty(0))
    time_s, received = progress.get((client, row["stream_index"]), nothing)
    last_byte_s = row["time_to_last_byte_s"]
    done_s = None if last_byte_s is None else row["start_s"] + last_byte_s
    return download(
        row["start_s"],
        row["end_s"],
        done_s,
        float(row["bytes_requested"]),
        time_s,
        received,
        row.get(GAP.name),
    )


def _codes(table: pa.Table) -> NDArray[np.int64]:
    """Return the codes of the clients, shape (n,)."""
    column = table["client"].cast(pa.int64()).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _floats(table: pa.Table, name: str) -> Floats:
    """Return a column as floats of shape (n,), NaN for null."""
    # Large byte counts are rounded to the nearest double.
    column = table[name].cast(pa.float64(), safe=False).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
