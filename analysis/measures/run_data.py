"""Reads a run's records back as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from analysis.arrays import Floats
from analysis.celltrace.cell_tables import load_cells
from analysis.celltrace.cells import Cells
from analysis.celltrace.serving import served
from analysis.celltrace.statistics import relayed
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import GOODPUT, PEERS, PROGRESS, STREAMS, Column, Outcome
from analysis.formats.record_files import read_transfer_facts
from analysis.formats.study import Level
from analysis.formats.tables import read_table
from analysis.measures.data import ALL, Beats, ClassData, Streams
from analysis.measures.downloads import Download, Downloads, download
from analysis.measures.peer_transfer import PeerTransfer
from analysis.records.peerlog import Kind


def load_run(records: Path, level: Level) -> dict[str, ClassData]:
    """A run's records as arrays: each class of the level, each other class met, and ``ALL``.

    Roles of traced relays are classes as well.

    Raises:
        AnalysisError: a table is missing or cannot be read.
    """
    if (records / files.PEERS_TABLE).is_file():
        nothing = _without_streams(level)
        transfer = load_transfer(records)
        return {name: replace(nothing, transfer=transfer) for name in level.classes}
    streams = _read(records / files.STREAMS_TABLE, STREAMS)
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
    classes = {
        name: _class_data(
            streams.filter(pc.equal(streams["class"], name)),
            beats.filter(pc.equal(beats["class"], name)),
            level,
            level.horizon_s(name),
            clients,
            _side_by_side(
                streams.filter(pc.equal(streams["class"], name)), clients, progress, level
            ),
        )
        for name in names
    }
    together = _class_data(streams, beats, level, None, clients)
    return {**classes, **_by_role(records, level), ALL: together}


def _by_role(records: Path, level: Level) -> dict[str, ClassData]:
    """What traced relays relayed, each role of relays as a class of its own."""
    if not (records / files.CELLS_TABLE).is_file():
        return {}
    by_role: dict[str, list[Cells]] = {}
    for _, role, cells in load_cells(records):
        by_role.setdefault(role, []).append(cells)
    nothing = _without_streams(level)
    return {
        role: replace(
            nothing,
            relayed=relayed(own, level.measured_start_s, level.measured_end_s),
            served=served(own, level.measured_start_s, level.measured_end_s),
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
    """A transfer between two peers from a run's records.

    Raises:
        AnalysisError: the table or what is known of the path is missing or cannot be read.
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
        # The seed has one socket that carries the transfer; others only greet.
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
    table = read_table(path, columns, missing="extract the run's records first")
    for name in ("client", "class"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(pa.string()))
    return table


def _with_codes(table: pa.Table, clients: list[str]) -> pa.Table:
    """The table with each client's place in the list instead of its name."""
    place = table.schema.get_field_index("client")
    return table.set_column(
        place, "client", pc.index_in(table["client"], value_set=pa.array(clients, pa.string()))
    )


def _class_data(
    streams: pa.Table,
    beats: pa.Table,
    level: Level,
    horizon_s: float | None,
    clients: Sequence[str],
    side_by_side: tuple[Downloads, ...] = (),
) -> ClassData:
    end_s = _floats(beats, "time_s")
    return ClassData(
        streams=Streams(
            client=_codes(streams),
            start_s=_floats(streams, "start_s"),
            end_s=_floats(streams, "end_s"),
            outcome=np.asarray(streams["outcome"].cast(pa.string()).to_pylist(), dtype=np.str_),
            ttfb_s=_floats(streams, "ttfb_from_start_s"),
            ttfb_from_command_s=_floats(streams, "ttfb_from_command_s"),
            time_to_320kib_s=_floats(streams, "time_to_320kib_s"),
            time_to_last_byte_s=_floats(streams, "time_to_last_byte_s"),
        ),
        beats=Beats(
            client=_codes(beats),
            begin_s=end_s - _floats(beats, "interval_s"),
            end_s=end_s,
            bytes_read=_floats(beats, "bytes_read"),
        ),
        begin_s=level.measured_start_s,
        end_s=level.measured_end_s,
        horizon_s=horizon_s,
        side_by_side=side_by_side,
        clients=tuple(clients),
    )


Progress = dict[tuple[str, int], tuple[Floats, Floats]]
"""Client and number of a stream -> when how much of it had come, two arrays of one shape."""


def _progress(records: Path) -> Progress:
    """How streams came along; empty where the logs did not tell."""
    if not (records / files.PROGRESS_TABLE).is_file():
        return {}
    table = _read(records / files.PROGRESS_TABLE, PROGRESS)
    index = np.asarray(table["stream_index"].to_numpy(), dtype=np.int64)
    time_s, received = _floats(table, "time_s"), _floats(table, "bytes_received")
    # A stream's rows stand together.
    names = table["client"].to_pylist()
    ends = [
        row
        for row in range(1, len(names) + 1)
        if row == len(names) or (names[row], index[row]) != (names[row - 1], index[row - 1])
    ]
    return {
        (names[begin], int(index[begin])): (time_s[begin:end], received[begin:end])
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    }


def _side_by_side(
    streams: pa.Table, clients: list[str], progress: Progress, level: Level
) -> tuple[Downloads, ...]:
    """The downloads of each client that made several side by side in the measured span.

    A client with a stream of unknown fate or size is left out: who was served when it cannot tell.
    """
    if not progress:
        return ()
    of_client: dict[int, list[dict[str, Any]]] = {}
    for row in streams.to_pylist():
        if level.measured_start_s <= row["start_s"] < level.measured_end_s:
            of_client.setdefault(row["client"], []).append(row)
    groups = []
    for code, rows in sorted(of_client.items()):
        rows.sort(key=lambda row: (row["start_s"], row["stream_index"]))
        ends = [row["end_s"] for row in rows]
        overlap = any(row["start_s"] < end for row, end in zip(rows[1:], ends, strict=False))
        known = all(row["bytes_requested"] and row["outcome"] != Outcome.UNKNOWN for row in rows)
        if overlap and known:
            groups.append(tuple(_download(row, clients[code], progress) for row in rows))
    return tuple(groups)


def _download(row: dict[str, Any], client: str, progress: Progress) -> Download:
    nothing = (np.empty(0), np.empty(0))
    time_s, received = progress.get((client, row["stream_index"]), nothing)
    last_byte_s = row["time_to_last_byte_s"]
    done_s = None if last_byte_s is None else row["start_s"] + last_byte_s
    return download(
        row["start_s"], row["end_s"], done_s, float(row["bytes_requested"]), time_s, received
    )


def _codes(table: pa.Table) -> NDArray[np.int64]:
    """The clients' codes, shape (n,)."""
    column = table["client"].cast(pa.int64()).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _floats(table: pa.Table, name: str) -> Floats:
    """A column as floats of shape (n,), NaN for null."""
    column = table[name].cast(pa.float64()).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
