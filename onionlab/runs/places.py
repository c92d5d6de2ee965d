"""Where a command is to write: asked before the work for it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from onionlab.errors import UserError

PROBE_BYTES = 2**20


def require_room(folder: Path, hint: str = "free some space there") -> None:
    """Raise UserError where a temporary file of 1 MiB cannot be written into a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            os.posix_fallocate(probe.fileno(), 0, PROBE_BYTES)
    except OSError as error:
        raise UserError(f"{folder}: no file can be written: {error.strerror}", hint) from None


def require_writable(folder: Path, hint: str = "name another place") -> None:
    """Raises UserError where no file can be written into a folder, which may have to be made."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UserError(f"{there} is no folder", "name another place for what is to be written")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there} may not be written", hint)
