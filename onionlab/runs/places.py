"""Check, before work starts, that its output can be written, and explain errors of files."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

from onionlab.errors import UserError
from onionlab.paths import working_root

PROBE_BYTES = 2**20
"""Free space below which a file system counts as full."""
DISK_MARGIN = 1.2
"""Factor for the disk space of a run in progress, because Shadow keeps shared memory in files that
the estimate does not include."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""errno of an error that is due to a full disk, or to a user's full disk quota."""
REMEDIES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or ask for a larger quota",
    errno.EROFS: "make it writable, or use a checkout elsewhere",
    errno.EACCES: "change its permissions, or use a checkout of your own",
    errno.EPERM: "change its permissions, or use a checkout of your own",
}
"""errno of an operating system error -> hint."""

MAX_NAME_LENGTH = 200
"""Number of characters after which the name of a file in a message is cut."""
_NUMBER = re.compile(r"\[Errno (\d+)\] ([^:]*)")


def require_room(folder: Path, hint: str = "free some space there") -> None:
    """Raise UserError if a temporary file of 1 MiB cannot be written into a folder."""
    try:
        _write_probe(folder)
    except OSError as error:
        raise UserError(f"{folder}: no file can be written: {error.strerror}", hint) from None


def is_full(folder: Path) -> bool:
    """Return whether a folder has no room for a temporary file of 1 MiB; ignore other errors."""
    try:
        _write_probe(folder)
    except OSError as error:
        return error.errno in FULL
    return False


def _write_probe(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
        os.posix_fallocate(probe.fileno(), 0, PROBE_BYTES)


def require_writable(folder: Path, hint: str = "name another place") -> None:
    """Raise UserError if a folder is not writable, or does not exist and cannot be created."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise UserError(f"{existing} is not a folder", "name another place")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{existing} is not writable", hint)


def user_error_from_os_error(error: OSError) -> UserError:
    """Return a UserError for an error of the operating system, with the file and a hint."""
    if isinstance(error, shutil.Error):
        error = _first_error(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    if not names and error.errno in FULL:
        # The error of a failed write does not name a file.
        place = ", ".join(_full_folders())
    else:
        place = " -> ".join(_cut(name) for name in names)
    text = error.strerror or str(error) or type(error).__name__
    return UserError(f"{place}: {text}" if place else text, REMEDIES.get(error.errno or 0))


def _full_folders() -> list[str]:
    """Return a folder on each full file system among those that this program writes to."""
    root = working_root()
    below = (root / name for name in ("build", "runs", "results", "networks", "nightly"))
    full: dict[int, str] = {}
    for folder in (root, *below, Path(os.environ.get("TMPDIR") or "/tmp"), Path("/dev/shm")):
        if folder.is_dir() and shutil.disk_usage(folder).free < PROBE_BYTES:
            full.setdefault(folder.stat().st_dev, str(folder))
    return list(full.values())


def _first_error(error: shutil.Error) -> OSError:
    """Return the first error of a copied folder. `shutil.copytree` collects errors as strings."""
    first = error.args[0][0] if isinstance(error.args[0], list) else error.args[0]
    if not isinstance(first, tuple):
        return OSError(str(first))
    source, target, text = map(str, first)
    found = _NUMBER.match(text)
    if not found:
        return OSError(f"{_cut(source)} -> {_cut(target)}: {text}")
    return OSError(int(found[1]), found[2], source, None, target)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[:MAX_NAME_LENGTH]}..."
