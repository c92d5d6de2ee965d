"""Write files atomically: no file is incomplete, even after a crash or a power failure.

Content is written under another name, synced to the disk, and renamed. Without the sync, a file
system may keep the new name and lose the content when the power fails. The module needs only the
standard library.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SYNC_THREADS = 8

_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})
"""Errors of file systems that cannot sync folders."""


@contextlib.contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path. At the end of the block, the file written there replaces ``path``.

    A second writer of the same file waits for the first. If a writer is killed, its temporary file
    remains, and the next writer overwrites it.

    Args:
        path: The file. Its folder is created if necessary.
        durable: Whether the content must survive a power failure.
    """
    make_folder(path.parent)
    part = path.with_name(f".{path.name}.part")
    descriptor = _lock(part)
    try:
        yield part
        if durable:
            put_in_place(part, path)
        else:
            part.replace(path)
    except BaseException:
        # If the disk is full, the temporary file must not remain on it.
        part.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace the content of a file, as `whole_file` does. Text is encoded as UTF-8."""
    with whole_file(path, durable=durable) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def put_in_place(made: Path, target: Path, copy: Path | None = None) -> None:
    """Rename a file or folder. After a power failure, the target is complete or unchanged.

    Args:
        made: The file or folder.
        target: The new path. An existing file or empty folder is replaced.
        copy: Path of an intermediate copy, for a source on another file system. It must be on the
            file system of ``target``; by default, it is in the folder of ``target``.
    """
    sync_tree(made)
    make_folder(target.parent)
    try:
        made.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = copy or target.with_name(f".{target.name}.part")
        _remove(copy)
        try:
            # Both functions keep the time stamps, which `make` compares.
            if made.is_dir():
                shutil.copytree(made, copy, symlinks=True)
            else:
                shutil.copy2(made, copy)
            sync_tree(copy)
            copy.replace(target)
        finally:
            _remove(copy)
    sync(target.parent)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if they are missing."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync(one.parent)


def sync_tree(path: Path) -> None:
    """Sync a file, or a folder with everything below it."""
    # Opening a named pipe would block until another process opens its other end.
    some = (path, *path.rglob("*"))
    paths = [one for one in some if not one.is_symlink() and (one.is_file() or one.is_dir())]
    # File systems combine syncs that are requested at the same time. For the folder of a run, this
    # reduces the time to a fifth.
    with ThreadPoolExecutor(SYNC_THREADS) as pool:
        list(pool.map(sync, paths))


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def _lock(part: Path) -> int:
    """Create a temporary file if it is missing. Return a descriptor that holds its lock."""
    while True:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # If the previous writer renamed the file while this one waited, the lock does not belong to
        # the temporary file, so try again.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), part.stat()):
                return descriptor
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
