"""The logs of a run's two peers to its records: peers.parquet, transfer.json and parse.json.

The same logs give the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats.columns import Column, arrow_schema
from analysis.records.logfile import LogFile
from analysis.records.peerlog import PeerLog
from analysis.records.tgen import (
    FileProblems,
    ParseReport,
    TableWriter,
    atomic,
    read_epoch_us,
    read_json,
)

PEERS_TABLE = "peers.parquet"
FACTS = "transfer.json"
PEERS_FILE = "peers.json"
"""In the run directory: which host is the seed, which the downloader, and the path between them."""

_NAME = pa.dictionary(pa.int32(), pa.string())

PEERS: tuple[Column, ...] = (
    Column("host", _NAME, "host name of the peer"),
    Column("role", _NAME, "seed or downloader"),
    Column("time_s", pa.float64(), "time of the line"),
    Column("kind", _NAME, "see analysis.records.peerlog.Kind; says which columns are not null"),
    Column("socket", pa.int32(), "number of the uTP socket within its log, from 1"),
    Column("event", _NAME, "see analysis.records.peerlog.UtpEvent"),
    Column("window_bytes", pa.int64(), "congestion window"),
    Column("in_flight_bytes", pa.int64(), "most payload in flight since the line before"),
    Column("advertised_bytes", pa.int64(), "window that the other end advertises"),
    Column("waiting_bytes", pa.int64(), "payload that waits to be sent"),
    Column("delay_s", pa.float64(), "newest one-way delay above its base"),
    Column("slow_start", pa.bool_(), "of the socket, or of the requests"),
    Column("target_requests", pa.int32(), "how many blocks are to be requested"),
    Column("outstanding_requests", pa.int32(), "how many blocks are requested"),
    Column("rate_bytes_per_s", pa.int64(), "download rate as the request rule knows it"),
    Column("received_bytes", pa.int64(), "payload received so far, over all downloads"),
    Column("text", pa.string(), "of lines about connections and downloads"),
)


def extract_peers(run_directory: Path, out: Path) -> ParseReport:
    """Reads the logs of both peers of a run and writes its records into ``out``.

    Args:
        run_directory: holds peers.json, run.json (``epoch_unix_s``) and the peers' logs
            ``shadow.data/hosts/<host>/libtorrent-peer-*.stdout``, plain or compressed.
        out: made if missing. The files appear together, at the end, or not at all.

    Raises:
        AnalysisError: a peer without a log, or whose log is empty or not a peer's; bad JSON.
    """
    peers = _read_peers(run_directory)
    epoch_us = read_epoch_us(run_directory)
    report = ParseReport()
    report.clients = {"transfer": 1}
    out.mkdir(parents=True, exist_ok=True)
    with atomic(out) as directory:
        with TableWriter(directory / PEERS_TABLE, PEERS) as table:
            for role in ("seed", "downloader"):
                log = read_peer_log(run_directory, peers[role], report)
                table.add(_table(log, peers[role], role, epoch_us))
        facts = {"rtt_s": peers["rtt_s"], "sample_s": peers["sample_s"]}
        for name, content in ((FACTS, facts), ("parse.json", asdict(report))):
            text = json.dumps(content, indent=1, sort_keys=True)
            (directory / name).write_text(text + "\n", encoding="utf-8")
    return report


def read_transfer_facts(records: Path) -> dict[str, float]:
    """What transfer.json says of the path.

    Raises:
        AnalysisError: missing, or without the time of a round trip.
    """
    facts = read_json(records / FACTS)
    if not isinstance(facts, dict) or not isinstance(facts.get("rtt_s"), int | float):
        raise AnalysisError(f"{records / FACTS} has no number rtt_s", "extract the records again")
    return facts


def read_peer_log(run_directory: Path, host: str, report: ParseReport) -> PeerLog:
    """The log of one host's peer; counts what was read, and what was not, in ``report``.

    Raises:
        AnalysisError: no log, more than one, an empty one, or one that is not a peer's.
    """
    folder = run_directory / "shadow.data" / "hosts" / host
    paths = sorted(folder.glob("libtorrent-peer-*.stdout*"))
    if len(paths) != 1:
        found = "no log" if not paths else f"{len(paths)} logs"
        raise AnalysisError(
            f"peer {host} has {found} in {folder}",
            "the run did not start it, its output was removed, or it is there twice",
        )
    file = LogFile(paths[0])
    log = PeerLog()
    for lines in file.batches():
        log.feed(lines)
    problems = FileProblems(paths[0].relative_to(run_directory).as_posix(), damage=file.damage)
    if file.tail:
        problems.cut_last_line = True
        log.feed_tail(file.tail)
    if log.lines == 0:
        raise AnalysisError(
            f"peer {host} has an empty log {paths[0]}",
            file.damage or "the program did not start, or its output is lost",
        )
    if not log.header:
        raise AnalysisError(
            f"peer {host}: {paths[0]} does not begin as a peer's log does",
            file.damage or (log.examples[0].reason if log.examples else None),
        )
    problems.malformed_lines = log.malformed
    problems.examples = log.examples
    report.files += 1
    report.bytes += file.bytes_read
    report.lines += log.lines
    report.malformed_lines += log.malformed
    report.truncated_files += problems.cut_last_line or problems.damage is not None
    report.damaged_files += problems.damage is not None
    if problems.malformed_lines or problems.cut_last_line or problems.damage:
        report.problems.append(problems)
    return log


def _read_peers(run_directory: Path) -> dict[str, Any]:
    path = run_directory / PEERS_FILE
    peers = read_json(path)
    valid = isinstance(peers, dict) and all(
        isinstance(peers.get(name), kind)
        for name, kind in (
            ("seed", str), ("downloader", str), ("rtt_s", int | float), ("sample_s", int | float),
        )
    )  # fmt: skip
    if not valid:
        raise AnalysisError(f"{path} does not name a seed, a downloader, rtt_s and sample_s")
    return dict(peers)


def _table(log: PeerLog, host: str, role: str, epoch_us: int) -> pa.Table:
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
