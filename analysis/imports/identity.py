"""Which imported simulations are the same, and which are of the same network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from analysis.formats import files
from analysis.imports.tornettools import FOLDER

FINGERPRINT = "fingerprint"
"""A relay's file that names its key, so that no two networks have the same ones."""


def content_hash(source: Path) -> str:
    """Hash of a simulation's files: of one file, or of the JSON files of a folder by name."""
    found = [source] if source.is_file() else sorted(source.glob("*.json*"))
    return _hash((file.name, file) for file in found if file.is_file())


def network_hash(source: Path) -> str:
    """Hash of the relays' keys beside a simulation's results; "" where there are none."""
    folder = source.parent if source.is_file() or source.name == FOLDER else source
    # Where tornettools puts a network's hosts.
    found = sorted((folder / files.TEMPLATE / "hosts").glob(f"*/{FINGERPRINT}"))
    return _hash((file.parent.name, file) for file in found) if found else ""


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    total = hashlib.sha256()
    for name, file in named:
        with file.open("rb") as content:
            total.update(f"{name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
