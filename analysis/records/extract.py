"""A run's logs to its records, whatever kind of run it is.

The same logs give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from analysis.celltrace import cell_tables
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import GOODPUT, PERF, PROGRESS, STREAMS
from analysis.formats.record_files import ParseReport, write_parse_report
from analysis.formats.run_files import read_clients, read_clock, read_host_roles
from analysis.formats.tables import TableWriter, atomic
from analysis.records import oniontrace, pieces, tgen
from analysis.records.transfer import extract_peers

PERF_CLIENT = "perf-client"
"""The role of clients that measure, in hosts.json."""


def extract(run_directory: Path, out: Path) -> ParseReport:
    """Reads a run's logs and writes its record tables and parse.json into ``out``.

    Args:
        run_directory: holds run.json, clients.json or peers.json, and the hosts' logs.
        out: made if missing. The files appear together, at the end, or not at all.

    Raises:
        AnalysisError: as `extract_clients` and `transfer.extract_peers`; the run came without its
            logs.
    """
    if not (run_directory / files.LOGS).is_dir():
        raise AnalysisError(
            f"the run {run_directory.name} came without its logs, and has no records of this "
            "format",
            f"remove it, and it is made again when it is needed: rm -r {run_directory}",
        )
    if (run_directory / files.PEERS).is_file():
        return extract_peers(run_directory, out)
    return extract_clients(run_directory, out)


def extract_clients(run_directory: Path, out: Path) -> ParseReport:
    """Reads the logs of all clients of a run, and its relays' cell traces where there are any.

    Args:
        run_directory: holds clients.json (host -> class), run.json (``epoch_unix_s``), the clients'
            logs ``shadow.data/hosts/<host>/tgen*.stdout`` or ``libtorrent-peer-*.stdout``, plain or
            .gz, .xz, .zst, and with trace.json the traces. With hosts.json, a network of
            tornettools: the logs ``oniontrace*.stdout`` of the hosts that it says have one.
        out: directory for streams.parquet, goodput.parquet, parse.json and, where the logs have
            stream-status lines, progress.parquet; with hosts.json perf.parquet, and where any host
            has OnionTrace circuits.parquet and relay_bytes.parquet.

    Raises:
        AnalysisError: a client without a log, or whose log is empty or of another program; bad
            JSON; a trace that is missing or damaged; as ``oniontrace.extract``.
    """
    classes = read_clients(run_directory)
    clock = read_clock(run_directory)
    tornet = (run_directory / files.HOST_ROLES).is_file()
    roles = read_host_roles(run_directory) if tornet else {}
    measuring = {host for host, one in roles.items() if one.role == PERF_CLIENT}
    clients = Counter(classes.values())
    report = ParseReport(
        clients={name: clients[name] for name in sorted(clients)},
        streams={name: {} for name in sorted(clients)},
    )
    with atomic(out) as directory:
        with (
            TableWriter(directory / files.STREAMS_TABLE, STREAMS) as streams,
            TableWriter(directory / files.GOODPUT_TABLE, GOODPUT) as goodput,
            TableWriter(directory / files.PROGRESS_TABLE, PROGRESS) as progress,
            TableWriter(directory / files.PERF_TABLE, PERF) if tornet else nullcontext() as perf,
        ):
            for host in sorted(classes):
                one = (run_directory, host, classes[host], clock, report)
                if pieces.fetches_in_pieces(run_directory, host):
                    tables = pieces.read_client(*one)
                else:
                    tables = tgen.read_client(*one, perf if host in measuring else None)
                streams.add(tables[0])
                goodput.add(tables[1])
                progress.add(tables[2])
        if not report.status_lines:
            (directory / files.PROGRESS_TABLE).unlink()
        if cell_tables.is_traced(run_directory):
            cell_tables.extract(run_directory, directory / files.STREAMS_TABLE, directory)
        oniontrace.extract(run_directory, roles, classes, clock, directory, report)
        report.set_classes(classes)
        write_parse_report(directory, report)
    return report
