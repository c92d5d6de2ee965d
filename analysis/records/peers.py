"""Extraction of records from the logs of libtorrent peers.

The peers are the two hosts of a run without Tor, or clients in a simulated Tor network. A client's
download counts as a stream. This stream starts when the client begins to connect. The first byte
arrives with the first block (16 KiB), and the last byte with the last block.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import GOODPUT, PEERS, PROGRESS, STREAMS, Outcome, arrow_schema
from analysis.formats.record_files import (
    ParseReport,
    TransferFacts,
    write_beside_tables,
    write_parse_report,
)
from analysis.formats.run_files import RunClock, read_clock, read_peers
from analysis.formats.tables import TableWriter, atomic, build_table
from analysis.records.logfile import count_log, read_log
from analysis.records.peerlog import Kind, PeerLog

LOGS = "libtorrent-peer-*.stdout*"

LOGGED_ROLES = {"seed": "seed", "downloader": "fetch"}
"""Role of a peer in the records -> the role that its log contains."""

SIZE = re.compile("[0-9]{1,15}")
"""Pattern of the size of a download, in bytes."""


def extract_peers(run_directory: Path, out: Path) -> ParseReport:
    """Read the logs of both peers of a run and write its records into ``out``.

    The run has peers.json, run.json (``epoch_unix_s``) and the peers' logs
    ``shadow.data/hosts/<host>/libtorrent-peer-*.stdout``, plain or compressed.

    Raises:
        AnalysisError: a peer has no log or several, or its log is empty or from another program or
            role; or a JSON file is invalid.
    """
    peers = read_peers(run_directory)
    clock = read_clock(run_directory)
    report = ParseReport(clients={"transfer": 1})
    with atomic(out) as directory:
        with TableWriter(directory / files.PEERS_TABLE, PEERS) as table:
            for role, host in (("seed", peers.seed), ("downloader", peers.downloader)):
                log = _read(run_directory, host, clock, report, role)
                table.add(_peer_table(log, host, role, clock.epoch_us))
        facts = TransferFacts(rtt_s=peers.rtt_s, sample_s=peers.sample_s)
        write_beside_tables(directory / files.TRANSFER_FACTS, facts)
        write_parse_report(directory, report)
    return report


def _read(
    run_directory: Path, host: str, clock: RunClock, report: ParseReport, role: str
) -> PeerLog:
    """Read the log of one host's peer, and count its lines in ``report``."""
    folder = run_directory / files.HOSTS / host
    paths = sorted(folder.glob(LOGS))
    if len(paths) != 1:
        found = "no log" if not paths else f"{len(paths)} logs"
        raise AnalysisError(
            f"peer {host} has {found} in {folder}",
            "the run did not start it, or its output was removed or duplicated",
        )
    path, log = paths[0], PeerLog(clock.epoch_us)
    file, problems = read_log(run_directory, path, log)
    if log.header and log.is_foreign:
        raise AnalysisError(
            f"peer {host}: only {len(log.entries)} of {log.lines} lines of {path} are understood: "
            f"{log.first_problem}"
        )
    if log.lines == 0:
        raise AnalysisError(
            f"peer {host} has an empty log {path}",
            file.damage or "the program did not start, or its output is lost",
        )
    if not log.header:
        raise AnalysisError(
            f"peer {host}: {path} does not begin like a peer's log",
            file.damage or (log.examples[0].reason if log.examples else None),
        )
    if log.header.get("role") != LOGGED_ROLES[role]:
        raise AnalysisError(
            f"peer {host}: {path} is the log of another peer: its role is not {LOGGED_ROLES[role]}",
            "restore the log from a backup, or remove the run and repeat it",
        )
    count_log(report, file, log, problems, clock)
    return log


def _peer_table(log: PeerLog, host: str, role: str, epoch_us: int) -> pa.Table:
    rows = [
        {
            **{name: value for name, value in entry.items() if name not in ("time_us", "delay_us")},
            "host": host,
            "role": role,
            "time_s": (entry["time_us"] - epoch_us) / 1e6,
            "delay_s": entry["delay_us"] / 1e6 if "delay_us" in entry else None,
            "slow_start": bool(entry["slow_start"]) if "slow_start" in entry else None,
        }
        for entry in log.entries
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(PEERS))


def fetches_in_pieces(run_directory: Path, host: str) -> bool:
    """Return whether a client's log is the log of a libtorrent peer."""
    return any((run_directory / files.HOSTS / host).glob(LOGS))


def read_client(
    run_directory: Path, host: str, class_name: str, clock: RunClock, report: ParseReport
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return one client's tables of streams, goodput and (empty) progress.

    The lines of the client's log are counted in ``report``.

    Raises:
        AnalysisError: there is no log or several, or the log is empty, or from another program or
            role.
    """
    log = _read(run_directory, host, clock, report, "downloader")
    client = {"client": host, "class": class_name}
    rows = [{**row, **client, "stream_index": i} for i, row in enumerate(_stream_rows(log))]
    beats = [entry for entry in log.entries if entry["kind"] == Kind.BEAT]
    report.add_client(host, class_name, [row["outcome"] for row in rows], len(beats))
    report.stream_lines += sum(row["outcome"] != Outcome.OPEN.value for row in rows)
    report.heartbeat_lines += len(beats)
    # The log does not contain the arrival of individual blocks, so there is no progress.
    progress = arrow_schema(PROGRESS).empty_table()
    streams = pa.Table.from_pylist(rows, schema=arrow_schema(STREAMS))
    return streams, _goodput_table(beats, rows, log.epoch_us, client), progress


def _stream_rows(log: PeerLog) -> list[dict[str, Any]]:
    """Return rows of streams.parquet, one per download, without the columns about the client."""
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
    # If a download's first line is missing, its start is unknown. Omit such a download.
    return [
        _stream_row(number, facts, size, last_us, log.epoch_us)
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
        "ttfb_from_start_s": since("first"),
        "ttfb_resolution_s": 0.0 if "first" in facts else None,
        "time_to_last_byte_s": since("done"),
        "bytes_requested": size,
        "bytes_received": int(facts["bytes"]) if "bytes" in facts else None,
        "outcome": outcome.value,
        "error": "TIMEOUT" if outcome is Outcome.TIMEOUT else None,
        "end_s": (end_us - epoch_us) / 1e6,
    }


def _goodput_table(
    beats: list[dict[str, Any]], rows: list[dict[str, Any]], epoch_us: int, client: dict[str, str]
) -> pa.Table:
    """Return a row for each heartbeat except the first, at which the first interval begins."""
    time_s = np.array([(beat["time_us"] - epoch_us) / 1e6 for beat in beats], dtype=np.float64)
    received = np.array([beat["received_bytes"] for beat in beats], dtype=np.int64)

    def count(time: str, *outcomes: Outcome) -> Any:
        times_s = [row[time] for row in rows if not outcomes or row["outcome"] in outcomes]
        return np.histogram(times_s, time_s)[0] if len(beats) > 1 else []

    return build_table(
        GOODPUT,
        {
            **client,
            "time_s": time_s[1:],
            "interval_s": np.diff(time_s),
            "bytes_read": np.diff(received),
            "bytes_written": np.zeros(max(0, len(beats) - 1), dtype=np.int64),
            "streams_created": count("start_s"),
            "streams_succeeded": count("end_s", Outcome.SUCCESS),
            "streams_failed": count("end_s", Outcome.TIMEOUT),
        },
    )
