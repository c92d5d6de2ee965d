"""Loading of a run's records as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from analysis.arrays import Bools, Floats, Ints
from analysis.celltrace.arrivals import Arrivals
from analysis.celltrace.cell_tables import load_arrivals, load_cells
from analysis.celltrace.cells import Cells
from analysis.celltrace.queueing import served, waits
from analysis.celltrace.statistics import relayed
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.byte_marks import BYTE_MARKS
from analysis.formats.columns import GAP, GOODPUT, PEERS, PROGRESS, STREAMS, Column, Outcome
from analysis.formats.published import GET_ANEW, is_published
from analysis.formats.published_streams import read_streams
from analysis.formats.record_files import ParseReport, read_parse_report, read_transfer_facts
from analysis.formats.study import Level
from analysis.formats.tables import floats, read_table, texts
from analysis.formats.whole_run import require_streams, require_tables
from analysis.measures.data import ALL, NO_BEATS, NO_STREAMS, Beats, BytesRead, ClassData, Streams
from analysis.measures.downloads import Download
from analysis.measures.peer_transfer import PeerTransfer
from analysis.measures.perf import load_circuits, load_perf, load_relay_bytes
from analysis.measures.published import load_received, load_sums, stream_rows
from analysis.records.peerlog import Kind


def load_run(records: Path, level: Level) -> dict[str, ClassData]:
    """Load the records of a run as arrays: class -> its data.

    The keys are the level's classes of clients, any other classes in the records, the roles of
    traced relays, and ``ALL``. For a transfer between BitTorrent peers, the keys are only the
    level's classes. The records may be from a published pack.

    Raises:
        AnalysisError: a table is missing, cannot be read, does not match parse.json, or was
            published for a different measured span.
    """
    report = read_parse_report(records / files.PARSE_REPORT)
    require_tables(records, report)
    if (records / files.PEERS_TABLE).is_file():
        nothing = _without_streams(level)
        transfer = load_transfer(records)
        return {name: replace(nothing, transfer=transfer) for name in level.classes}
    published = is_published(records)
    streams = _with_texts(
        read_streams(records) if published else _read(records / files.STREAMS_TABLE, STREAMS)
    )
    require_streams(records, report, streams)
    names = {*level.classes, *pc.unique(streams["class"]).to_pylist()}
    clients = set(pc.unique(streams["client"]).to_pylist())
    beats: pa.Table | None = None
    sums: dict[str, BytesRead] = {}
    if published:
        sums, progress = load_sums(records), load_received(records)
        names |= sums.keys() - {ALL}
    else:
        beats, progress = _read(records / files.GOODPUT_TABLE, GOODPUT), _progress(records)
        names |= set(pc.unique(beats["class"]).to_pylist())
        clients |= set(pc.unique(beats["client"]).to_pylist())
    by_code = tuple(sorted(clients))
    load = {name for name, one in level.classes.items() if one.load}
    perf, circuits = load_perf(records), load_circuits(records)

    def class_data(name: str) -> ClassData:
        is_all = name == ALL
        value_set = pa.array(sorted(load) if is_all else [name], pa.string())
        chosen = pc.is_in(streams["class"], value_set=value_set)
        own = streams.filter(pc.invert(chosen) if is_all else chosen)
        groups = {} if is_all else dict(_groups(own, progress, level))
        return ClassData(
            streams=_streams(own, by_code, published),
            beats=None if beats is None else _beats(beats, by_code, name),
            begin_s=level.measured_start_s,
            end_s=level.measured_end_s,
            horizon_s=None if is_all else level.horizon_s(name),
            side_by_side=tuple(tuple(group.values()) for group in groups.values() if group),
            not_side_by_side=tuple(name for name, group in groups.items() if not group),
            clients=by_code,
            perf=perf.get(name),
            circuits=circuits.get(name),
            published_read=sums.get(name),
            unknown_bytes_reason=report.unknown_bytes_reason(None if is_all else name),
        )

    classes = {name: class_data(name) for name in sorted(names)}
    downloads = (one for own in classes.values() for group in own.side_by_side for one in group)
    if published and any(one.known_gap_s is None for one in downloads):
        raise AnalysisError(f"{records} was published for a different measured span", GET_ANEW)
    for name in load & set(classes):
        classes[name] = _mark_load(classes[name])
    relay_bytes = load_relay_bytes(records, report.damaged_relays())
    of_all = replace(class_data(ALL), relay_bytes=relay_bytes)
    return {**classes, **_by_role(records, level, report), ALL: of_all}


def _mark_load(data: ClassData) -> ClassData:
    """Return the data of a class with a mark as background load and without its streams.

    The numbers of streams that are open at the start and at the end replace the streams, because
    metrics of background load need nothing else. In a published pack, which may omit the streams,
    ``open_streams`` is None.
    """
    counts = (data.streams.open_at(data.begin_s), data.streams.open_at(data.end_s))
    return replace(
        data,
        load=True,
        streams=data.streams.started_in(0.0, 0.0),
        open_streams=None if data.beats is None else counts,
    )


def _by_role(records: Path, level: Level, report: ParseReport) -> dict[str, ClassData]:
    """Return role -> data of the cells of its traced relays; empty without cell traces."""
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
            unknown_bytes_reason=report.unknown_bytes_reason(role),
            relayed=relayed([cells for cells, _ in own], *span_s),
            served=served([cells for cells, _ in own], *span_s),
            waits=waits(own, *span_s),
        )
        for role, own in sorted(by_role.items())
    }


def _without_streams(level: Level) -> ClassData:
    return ClassData(
        streams=NO_STREAMS,
        beats=NO_BEATS,
        begin_s=level.measured_start_s,
        end_s=level.measured_end_s,
        horizon_s=None,
    )


def load_transfer(records: Path) -> PeerTransfer:
    """Load a transfer between two BitTorrent peers, the seed and the downloader, from records.

    Raises:
        AnalysisError: the table, or the file with the properties of the network path, is missing or
            cannot be read; or the seed was never connected.
    """
    table = read_table(
        records / files.PEERS_TABLE, PEERS, missing="extract the run's records first"
    )
    facts = read_transfer_facts(records)
    kind, role = (texts(table, name) for name in ("kind", "role"))
    time_s = floats(table, "time_s")
    connected_s = time_s[(kind == Kind.CONNECTED) & (role == "seed")]
    if connected_s.size == 0:
        raise AnalysisError(f"{records}: the seed was never connected")
    since_s = time_s - connected_s[0]
    utp = (kind == Kind.UTP) & (role == "seed")
    if utp.any():
        # Only one socket of the seed carries the transfer: the socket with the most bytes in
        # flight. The others only perform handshakes.
        socket, in_flight = floats(table, "socket"), floats(table, "in_flight_bytes")
        utp &= socket == socket[utp][np.argmax(in_flight[utp])]
    requests = (kind == Kind.REQUESTS) & (role == "downloader")
    received = (kind == Kind.RECEIVED) & (role == "downloader")

    def column(name: str, rows: Bools) -> Floats:
        return floats(table, name)[rows]

    return PeerTransfer(
        rtt_s=facts.rtt_s,
        end_s=float(since_s.max()),
        utp_s=since_s[utp],
        window_bytes=column("window_bytes", utp),
        in_flight_bytes=column("in_flight_bytes", utp),
        event=texts(table, "event")[utp],
        requests_s=since_s[requests],
        target_requests=column("target_requests", requests),
        outstanding_requests=column("outstanding_requests", requests),
        request_slow_start=column("slow_start", requests) == 1.0,
        received_s=since_s[received],
        received_bytes=column("received_bytes", received),
    )


def _read(path: Path, columns: tuple[Column, ...]) -> pa.Table:
    return _with_texts(read_table(path, columns, missing="extract the run's records first"))


def _with_texts(table: pa.Table) -> pa.Table:
    """Convert clients and classes from dictionary codes to strings."""
    for name in ("client", "class"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(pa.string()))
    return table


def _codes(table: pa.Table, clients: Sequence[str]) -> Ints:
    """Return the index of each row's client in ``clients``."""
    codes = pc.index_in(table["client"], value_set=pa.array(clients, pa.string()))
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def _streams(table: pa.Table, clients: Sequence[str], published: bool) -> Streams:
    return Streams(
        client=_codes(table, clients),
        start_s=floats(table, "start_s"),
        end_s=floats(table, "end_s"),
        outcome=texts(table, "outcome"),
        ttfb_s=floats(table, "ttfb_from_start_s"),
        ttfb_from_command_s=None if published else floats(table, "ttfb_from_command_s"),
        marks_s={name: floats(table, name) for name in BYTE_MARKS},
        time_to_last_byte_s=floats(table, "time_to_last_byte_s"),
        bytes_requested=floats(table, "bytes_requested"),
    )


def _beats(table: pa.Table, clients: Sequence[str], name: str) -> Beats:
    """Return the heartbeat intervals of a class, or of ``ALL``."""
    if name != ALL:
        table = table.filter(pc.equal(table["class"], name))
    end_s = floats(table, "time_s")
    return Beats(
        client=_codes(table, clients),
        begin_s=end_s - floats(table, "interval_s"),
        end_s=end_s,
        bytes_read=floats(table, "bytes_read"),
    )


Progress = dict[tuple[str, int], tuple[Floats, Floats]]
"""(client, stream number) -> times, and the bytes received by each time; arrays of equal shape."""


def _progress(records: Path) -> Progress:
    """Load the progress of streams; empty if it was not logged."""
    if not (records / files.PROGRESS_TABLE).is_file():
        return {}
    table = _read(records / files.PROGRESS_TABLE, PROGRESS)
    time_s, received = floats(table, "time_s"), floats(table, "bytes_received")
    return {key: (time_s[rows], received[rows]) for key, rows in stream_rows(table).items()}


def _groups(
    streams: pa.Table, progress: Progress, level: Level
) -> Iterator[tuple[str, dict[int, Download]]]:
    """Yield each client with parallel downloads, and their dict: stream number -> download.

    The dict has the downloads that start in the measured span, oldest first. If any of these has an
    unknown outcome or size, the downloads cannot be compared, and the dict is empty.
    """
    if not progress:
        return
    rows_by_client: dict[str, list[dict[str, Any]]] = {}
    for row in streams.to_pylist():
        if level.measured_start_s <= row["start_s"] < level.measured_end_s:
            rows_by_client.setdefault(row["client"], []).append(row)
    for client, rows in sorted(rows_by_client.items()):
        rows.sort(key=lambda row: (row["start_s"], row["stream_index"]))
        ends = [row["end_s"] for row in rows]
        overlap = any(row["start_s"] < end for row, end in zip(rows[1:], ends, strict=False))
        known = all(row["bytes_requested"] and row["outcome"] != Outcome.UNKNOWN for row in rows)
        if overlap:
            yield client, {row["stream_index"]: _download(row, progress) for row in rows if known}


def groups_side_by_side(records: Path, level: Level) -> Iterator[tuple[str, dict[int, Download]]]:
    """Yield each client with parallel downloads in a run, and a dict: stream number -> download.

    Clients with a stream of unknown outcome or size are omitted.

    Raises:
        AnalysisError: a table is missing or cannot be read.
    """
    streams, progress = _read(records / files.STREAMS_TABLE, STREAMS), _progress(records)
    for name in sorted(pc.unique(streams["class"]).to_pylist()):
        groups = _groups(streams.filter(pc.equal(streams["class"], name)), progress, level)
        yield from ((client, group) for client, group in groups if group)


def _download(row: dict[str, Any], progress: Progress) -> Download:
    nothing = (np.empty(0), np.empty(0))
    time_s, received = progress.get((row["client"], row["stream_index"]), nothing)
    last_byte_s = row["time_to_last_byte_s"]
    done_s = None if last_byte_s is None else row["start_s"] + last_byte_s
    return Download.from_progress(
        row["start_s"],
        row["end_s"],
        done_s,
        float(row["bytes_requested"]),
        time_s,
        received,
        row.get(GAP.name),
    )
