"""Identification of identical simulations and of simulations of the same network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from analysis.formats import files
from analysis.imports.tornettools import FOLDER

FINGERPRINT = "fingerprint"
"""A file with the key of a relay, which identifies a network."""


def content_hash(source: Path) -> str:
    """Return a hash of a simulation's files: of a single file, or of a folder's JSON files."""
    found = [source] if source.is_file() else sorted(source.glob("*.json*"))
    return _hash((file.name, file) for file in found if file.is_file())


def network_hash(source: Path) -> str:
    """Return a hash of the relays' keys next to a simulation's results; "" without keys."""
    folder = source.parent if source.is_file() or source.name == FOLDER else source
    # tornettools puts the hosts of a network here.
    found = sorted((folder / files.TEMPLATE / "hosts").glob(f"*/{FINGERPRINT}"))
    return _hash((file.parent.name, file) for file in found) if found else ""


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    total = hashlib.sha256()
    for name, file in named:
        with file.open("rb") as content:
            total.update(f"{name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
