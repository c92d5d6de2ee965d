"""Extraction of records from the logs of a run of any kind.

The same logs give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import GOODPUT, PERF, PROGRESS, STREAMS
from analysis.formats.record_files import ParseReport, write_parse_report
from analysis.formats.run_files import is_traced, read_clients, read_clock, read_host_roles
from analysis.formats.tables import TableWriter, atomic
from analysis.records import oniontrace, peers, tgen

PERF_CLIENT = "perf-client"
"""The role of measuring clients in hosts.json."""


def extract(run_directory: Path, out: Path) -> ParseReport:
    """Read the logs of a run and write its record tables and parse.json into ``out``.

    The folder is created if it is missing. The files appear together at the end, or not at all.

    Raises:
        AnalysisError: the run has no logs, or `extract_clients` or `peers.extract_peers` raises it.
    """
    if not (run_directory / files.LOGS).is_dir():
        raise AnalysisError(
            f"the run {run_directory.name} has neither its logs nor records of this format",
            f"remove it, and it will be run again when needed: rm -r {run_directory}",
        )
    if (run_directory / files.PEERS).is_file():
        return peers.extract_peers(run_directory, out)
    return extract_clients(run_directory, out)


def extract_clients(run_directory: Path, out: Path) -> ParseReport:
    """Write record tables from the logs of a run's clients and the cell traces of its relays.

    Args:
        run_directory: contains clients.json (host -> class), run.json (``epoch_unix_s``), the
            clients' logs ``shadow.data/hosts/<host>/tgen*.stdout`` or ``libtorrent-peer-*.stdout``,
            which may be compressed (.gz, .xz, .zst), and cell traces if there is a trace.json. For
            a tornettools network, it also contains hosts.json, and the logs ``oniontrace*.stdout``
            of the hosts that hosts.json lists for OnionTrace.
        out: receives streams.parquet, goodput.parquet, parse.json and, if the logs have
            stream-status lines, progress.parquet. If there is a hosts.json, it also receives
            perf.parquet and, if any host has OnionTrace, circuits.parquet and relay_bytes.parquet.
            If there are cell traces, it also receives their tables and celltrace.json.

    Raises:
        AnalysisError: a client has no log, or its log is empty or from another program; a JSON file
            is invalid; a trace is missing or damaged; or ``oniontrace.extract`` raises it.
    """
    classes = read_clients(run_directory)
    clock = read_clock(run_directory)
    tornet = (run_directory / files.HOST_ROLES).is_file()
    roles = read_host_roles(run_directory) if tornet else {}
    measuring = {host for host, one in roles.items() if one.role == PERF_CLIENT}
    clients = dict(sorted(Counter(classes.values()).items()))
    report = ParseReport(clients=clients, streams={name: {} for name in clients})
    with atomic(out) as directory:
        with (
            TableWriter(directory / files.STREAMS_TABLE, STREAMS) as streams,
            TableWriter(directory / files.GOODPUT_TABLE, GOODPUT) as goodput,
            TableWriter(directory / files.PROGRESS_TABLE, PROGRESS) as progress,
            TableWriter(directory / files.PERF_TABLE, PERF) if tornet else nullcontext() as perf,
        ):
            for host in sorted(classes):
                one = (run_directory, host, classes[host], clock, report)
                if peers.fetches_in_pieces(run_directory, host):
                    tables = peers.read_client(*one)
                else:
                    tables = tgen.read_client(*one, perf if host in measuring else None)
                streams.add(tables[0])
                goodput.add(tables[1])
                progress.add(tables[2])
        if not report.status_lines:
            (directory / files.PROGRESS_TABLE).unlink()
        if is_traced(run_directory):
            # Import this module only here: it imports pandas, which takes a notable part of the
            # time of a small run.
            from analysis.celltrace import cell_tables

            cell_tables.extract(run_directory, directory / files.STREAMS_TABLE, directory)
        oniontrace.extract(run_directory, roles, classes, clock, directory, report)
        report.set_classes(classes)
        write_parse_report(directory, report)
    return report
