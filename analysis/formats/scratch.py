"""Folders for files that are being written, beside where they go: none outlives a killed writer.

The standard library is enough here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch_folder(out: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in ``out`` whose name begins with ``prefix``; it is gone afterwards.

    Those of writers that were killed go first. A writer holds a lock on its folder, which ends with
    it, however it ends. Where a file system has no such locks, what is left stays.
    """
    for left in out.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _opened(left) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        folder = _born(out, prefix, stack)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _born(out: Path, prefix: str, stack: contextlib.ExitStack) -> Path:
    """A new folder with its lock, which ``stack`` holds."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out))
        # Another writer may come between, and take it for one that was left.
        with contextlib.suppress(FileNotFoundError):
            descriptor = stack.enter_context(_opened(folder))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError:
                return folder
            if folder.exists():
                return folder


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
