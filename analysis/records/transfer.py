"""Extraction of peers.parquet, transfer.json and parse.json from the logs of a run's two peers.

The same logs give the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import PEERS, arrow_schema
from analysis.formats.record_files import (
    FileProblems,
    ParseReport,
    TransferFacts,
    write_beside_tables,
    write_parse_report,
)
from analysis.formats.run_files import RunClock, read_clock, read_peers
from analysis.formats.tables import TableWriter, atomic
from analysis.records.logfile import MAX_MALFORMED, LogFile
from analysis.records.peerlog import PeerLog

LOGGED_ROLES = {"seed": "seed", "downloader": "fetch"}
"""Role of a peer in the records -> the role that its log contains."""

MAX_SILENCE_S = 2.0
"""Maximum silence at the end of a log: a peer logs its byte count every second."""


def extract_peers(run_directory: Path, out: Path) -> ParseReport:
    """Read the logs of both peers of a run and write its records into ``out``.

    Args:
        run_directory: contains peers.json, run.json (``epoch_unix_s``) and the peers' logs
            ``shadow.data/hosts/<host>/libtorrent-peer-*.stdout``, plain or compressed.
        out: created if missing. The files appear together at the end, or not at all.

    Raises:
        AnalysisError: a peer has no log, or its log is empty or not that of a peer; invalid JSON.
    """
    peers = read_peers(run_directory)
    clock = read_clock(run_directory)
    report = ParseReport(clients={"transfer": 1})
    with atomic(out) as directory:
        with TableWriter(directory / files.PEERS_TABLE, PEERS) as table:
            for role, host in (("seed", peers.seed), ("downloader", peers.downloader)):
                log = read_peer_log(run_directory, host, clock, report, LOGGED_ROLES[role])
                table.add(_table(log, host, role, clock.epoch_us))
        facts = TransferFacts(rtt_s=peers.rtt_s, sample_s=peers.sample_s)
        write_beside_tables(directory / files.TRANSFER_FACTS, facts)
        write_parse_report(directory, report)
    return report


def read_peer_log(
    run_directory: Path, host: str, clock: RunClock, report: ParseReport, role: str
) -> PeerLog:
    """Read the log of one host's peer, and count lines in ``report``.

    role: the role that the log must contain.

    Raises:
        AnalysisError: there is no log or several, or it is empty or not that of a peer of the role.
    """
    folder = run_directory / files.HOSTS / host
    paths = sorted(folder.glob("libtorrent-peer-*.stdout*"))
    if len(paths) != 1:
        found = "no log" if not paths else f"{len(paths)} logs"
        raise AnalysisError(
            f"peer {host} has {found} in {folder}",
            "the run did not start it, or its output was removed or duplicated",
        )
    file = LogFile(paths[0])
    log = PeerLog(clock.epoch_us)
    for lines in file.batches():
        log.feed(lines)
        if not log.header or log.malformed > max(MAX_MALFORMED, len(log.entries)):
            break
    if log.header and log.malformed > max(MAX_MALFORMED, len(log.entries)):
        raise AnalysisError(
            f"peer {host}: only {len(log.entries)} of {log.lines} lines of {paths[0]} are "
            f"understood: line {log.examples[0].line}: {log.examples[0].reason}"
        )
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
            f"peer {host}: {paths[0]} does not begin like a peer's log",
            file.damage or (log.examples[0].reason if log.examples else None),
        )
    if log.header.get("role") != role:
        raise AnalysisError(
            f"peer {host}: {paths[0]} is the log of another peer: its role is not {role}",
            "restore the log from a backup, or remove the run and repeat it",
        )
    problems.malformed_lines = log.malformed
    problems.examples = log.examples
    if problems.damage is None and log.entries:
        problems.damage = clock.early_end(log.entries[-1]["time_us"], MAX_SILENCE_S)
    report.bytes += file.bytes_read
    report.lines += log.lines
    report.add(problems)
    return log


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
