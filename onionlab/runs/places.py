"""Check that output can be written, before the work for it starts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from onionlab.errors import UserError

PROBE_BYTES = 2**20


def require_room(folder: Path, hint: str = "free some space there") -> None:
    """Raise UserError unless a temporary file of 1 MiB can be written into a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            os.posix_fallocate(probe.fileno(), 0, PROBE_BYTES)
    except OSError as error:
        raise UserError(f"{folder}: no file can be written: {error.strerror}", hint) from None


def require_writable(folder: Path, hint: str = "name another place") -> None:
    """Raise UserError unless a folder is writable or, if it does not exist, can be created."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{existing} is not a folder", "name another place")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{existing} is not writable", hint)
