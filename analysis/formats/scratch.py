"""Temporary folders inside an output folder. A folder that a crash leaves is removed later.

This module needs only the standard library.
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
    """Yield an empty folder in ``out`` whose name begins with ``prefix``, and remove it at the end.

    Folders of killed writers are removed first. A writer locks its folder, and the lock ends with
    the process. On a file system without locks, the folders of killed writers remain.
    """
    for abandoned in out.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            _lock(abandoned, stack)
            shutil.rmtree(abandoned, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        folder = _create_locked(out, prefix, stack)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _create_locked(out: Path, prefix: str, stack: contextlib.ExitStack) -> Path:
    """Create and lock a folder. Closing ``stack`` releases the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out))
        try:
            _lock(folder, stack)
        except (FileNotFoundError, BlockingIOError):
            # Another writer removes the folder, so create another folder.
            continue
        except OSError:
            return folder
        if folder.exists():
            return folder


def _lock(folder: Path, stack: contextlib.ExitStack) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
