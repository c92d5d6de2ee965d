"""A run's logs to its records, whatever kind of run it is."""

from __future__ import annotations

from pathlib import Path

from analysis import records
from analysis.peerrecords import PEERS_FILE, extract_peers
from analysis.records import ParseReport


def extract(run_directory: Path, out: Path) -> ParseReport:
    """Reads a run's logs and writes its record tables and parse.json into ``out``.

    Raises:
        AnalysisError: as `records.extract` and `peerrecords.extract_peers`.
    """
    if (run_directory / PEERS_FILE).is_file():
        return extract_peers(run_directory, out)
    return records.extract(run_directory, out)
