"""Extraction of streams and goodput from the log of a client that downloads in pieces.

A download counts as a stream. It starts when the client begins to connect. Its first byte arrives
with the first block (16 KiB), and its last byte with the last block.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.formats import files
from analysis.formats.columns import GOODPUT, PROGRESS, STREAMS, Outcome, arrow_schema
from analysis.formats.record_files import ParseReport
from analysis.formats.run_files import RunClock
from analysis.records.peerlog import Kind, PeerLog
from analysis.records.transfer import LOGGED_ROLES, read_peer_log

SIZE = re.compile("[0-9]{1,15}")
"""The size of a download in bytes."""


def fetches_in_pieces(run_directory: Path, host: str) -> bool:
    """Return whether a client's log is that of a libtorrent peer."""
    folder = run_directory / files.HOSTS / host
    return any(folder.glob("libtorrent-peer-*.stdout*"))


def read_client(
    run_directory: Path, host: str, class_name: str, clock: RunClock, report: ParseReport
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return streams, goodput and (empty) progress of one client, and count lines in ``report``.

    Raises:
        AnalysisError: there is no log, or it is empty or not that of a peer.
    """
    epoch_us = clock.epoch_us
    log = read_peer_log(run_directory, host, clock, report, LOGGED_ROLES["downloader"])
    rows = _stream_rows(log, epoch_us)
    outcomes = report.streams[class_name]
    for index, row in enumerate(rows):
        row.update({"client": host, "class": class_name, "stream_index": index})
        outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
    beats = [entry for entry in log.entries if entry["kind"] == Kind.BEAT]
    report.stream_lines += sum(row["outcome"] != Outcome.OPEN.value for row in rows)
    report.heartbeat_lines += len(beats)
    if not rows:
        report.clients_without_streams.append(host)
    if not beats:
        report.clients_without_heartbeats.append(host)
    goodput = _goodput_table(beats, rows, epoch_us, host, class_name)
    # The log does not contain the arrival of individual blocks.
    progress = arrow_schema(PROGRESS).empty_table()
    return pa.Table.from_pylist(rows, schema=arrow_schema(STREAMS)), goodput, progress


def _stream_rows(log: PeerLog, epoch_us: int) -> list[dict[str, Any]]:
    size = int(log.header["size"]) if SIZE.fullmatch(log.header.get("size", "")) else None
    downloads: dict[int, dict[str, Any]] = {}
    for entry in log.entries:
        if entry["kind"] != Kind.DOWNLOAD:
            continue
        number, event, *rest = entry["text"].split()
        facts = downloads.setdefault(int(number), {})
        facts[event] = entry["time_us"]
        if rest:
            facts["server" if event == "start" else "bytes"] = rest[0]
    last_us = log.entries[-1]["time_us"] if log.entries else 0
    # A download without its first line has no start, so its duration is unknown.
    return [
        _stream_row(number, facts, size, last_us, epoch_us)
        for number, facts in sorted(downloads.items())
        if "start" in facts
    ]


def _stream_row(
    number: int, facts: dict[str, Any], size: int | None, last_us: int, epoch_us: int
) -> dict[str, Any]:
    start_us = facts["start"]

    def since(name: str) -> float | None:
        return (facts[name] - start_us) / 1e6 if name in facts else None

    outcome = Outcome.OPEN
    if "done" in facts:
        outcome = Outcome.SUCCESS
    elif "timeout" in facts:
        outcome = Outcome.TIMEOUT
    end_us = facts.get("done", facts.get("timeout", last_us))
    return {
        "stream_id": number,
        "server": facts["server"].rpartition(":")[0],
        "start_s": (start_us - epoch_us) / 1e6,
        "start_resolution_s": 0.0,
        "time_to_proxy_reply_s": None,
        "ttfb_from_start_s": since("first"),
        "ttfb_from_command_s": None,
        "ttfb_resolution_s": 0.0 if "first" in facts else None,
        "time_to_320kib_s": None,
        "time_to_last_byte_s": since("done"),
        "bytes_requested": size,
        "bytes_received": int(facts["bytes"]) if "bytes" in facts else None,
        "outcome": outcome.value,
        "error": "TIMEOUT" if outcome is Outcome.TIMEOUT else None,
        "end_s": (end_us - epoch_us) / 1e6,
    }


def _goodput_table(
    beats: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    epoch_us: int,
    host: str,
    class_name: str,
) -> pa.Table:
    """Return a row for each heartbeat except the first, which begins the first interval."""
    time_s = np.array([(beat["time_us"] - epoch_us) / 1e6 for beat in beats], dtype=np.float64)
    received = np.array([beat["received_bytes"] for beat in beats], dtype=np.int64)
    count = max(0, len(beats) - 1)

    def per_interval(times_s: list[float]) -> pa.Array:
        return pa.array(np.histogram(times_s, time_s)[0] if count else [], pa.int32())

    ended = {
        outcome: [row["end_s"] for row in rows if row["outcome"] == outcome.value]
        for outcome in (Outcome.SUCCESS, Outcome.TIMEOUT)
    }
    schema = arrow_schema(GOODPUT)
    columns = {
        "client": pa.array([host] * count, schema.field("client").type),
        "class": pa.array([class_name] * count, schema.field("class").type),
        "time_s": pa.array(time_s[1:], pa.float64()),
        "interval_s": pa.array(np.diff(time_s), pa.float64()),
        "bytes_read": pa.array(np.diff(received), pa.int64()),
        "bytes_written": pa.array(np.zeros(count, dtype=np.int64), pa.int64()),
        "streams_created": per_interval([row["start_s"] for row in rows]),
        "streams_succeeded": per_interval(ended[Outcome.SUCCESS]),
        "streams_failed": per_interval(ended[Outcome.TIMEOUT]),
    }
    return pa.table(columns, schema=schema)
