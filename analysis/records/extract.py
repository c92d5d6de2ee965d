"""A run's logs to its records, whatever kind of run it is."""

from __future__ import annotations

from pathlib import Path

from analysis.errors import AnalysisError
from analysis.records import tgen as records
from analysis.records.tgen import ParseReport
from analysis.records.transfer import PEERS_FILE, extract_peers

LOGS = "shadow.data"


def extract(run_directory: Path, out: Path) -> ParseReport:
    """Reads a run's logs and writes its record tables and parse.json into ``out``.

    Raises:
        AnalysisError: as `records.extract` and `peerrecords.extract_peers`; the run came without
            its logs.
    """
    if not (run_directory / LOGS).is_dir():
        raise AnalysisError(
            f"the run {run_directory.name} came without its logs, and has no records of this "
            "format",
            f"remove it, and it is made again when it is needed: rm -r {run_directory}",
        )
    if (run_directory / PEERS_FILE).is_file():
        return extract_peers(run_directory, out)
    return records.extract(run_directory, out)
