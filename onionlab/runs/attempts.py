"""Where an attempt at a run writes: below the store, or on the own disk of a cluster's node.

    runs/.partial/<id>/                            the attempt on this machine; of one elsewhere,
                                                   how far it is
    $TMPDIR/onionlab-attempts-<user>/<id>-<any>/   the attempt elsewhere, where that disk has room

A job that was killed cannot remove what it wrote on its node. The next one there does: the lock of
an attempt ends with its process, so what nobody holds is nobody's. Such locks are for one machine
and on its own disk, where they are worth something.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

from onionlab.engines.processes import end_processes_below
from onionlab.runs.store import Store

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems whose files are the job's memory."""
DISK_MARGIN = 1.2
LOCK = ".lock"


@contextlib.contextmanager
def attempt(store: Store, run_id: str, *, elsewhere: bool, disk_bytes: float) -> Iterator[Path]:
    """Clear what earlier attempts at a run left, and yield where this one writes.

    The caller holds the run (``Store.exclusive``). What still is on a node's disk at the end of the
    block goes; what is in the store stays until the next attempt.

    Args:
        store: Where the run is to go.
        run_id: Its name.
        elsewhere: Whether this is a job of a cluster.
        disk_bytes: What the run takes, about.
    """
    partial = store.partial(run_id)
    _clear(partial)
    store.remove_unfinished(run_id)
    if not elsewhere:
        yield partial
        return
    partial.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        own_disk = node_directory()
        if own_disk is not None and _has_room(own_disk, disk_bytes):
            yield stack.enter_context(_locked_place(own_disk, run_id))
        else:
            yield partial


def node_directory() -> Path | None:
    """The folder for all attempts on this node's own disk, for this user; None without one.

    That is below TMPDIR where it is set, as clusters do and profiles can; otherwise where temporary
    files go, unless these are in memory.
    """
    parent = Path(tempfile.gettempdir())
    if "TMPDIR" not in os.environ and _file_system(parent) in IN_MEMORY:
        return None
    folder = parent / f"onionlab-attempts-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError:
        return None
    # Everybody may write there: somebody else may have been first.
    if facts.st_uid != os.getuid() or folder.is_symlink() or not os.access(folder, os.W_OK):
        return None
    return folder


def _file_system(path: Path) -> str:
    """The type of the file system that a folder is on; empty where nobody tells."""
    place = path.resolve()
    found = [
        (len(mount.mountpoint), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if place.is_relative_to(mount.mountpoint)
    ]
    return max(found, default=(0, ""))[1]


def _has_room(folder: Path, disk_bytes: float) -> bool:
    return shutil.disk_usage(folder).free > disk_bytes * DISK_MARGIN


@contextlib.contextmanager
def _locked_place(folder: Path, run_id: str) -> Iterator[Path]:
    """A place for one attempt, which is this process's as long as it lives."""
    place = folder / f"{run_id}-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        with (folder / LOCK).open("w") as all_of_them:
            fcntl.flock(all_of_them, fcntl.LOCK_EX)
            _clear_nobodys(folder)
            own = stack.enter_context(place.with_suffix(LOCK).open("w"))
            fcntl.flock(own, fcntl.LOCK_EX)
        place.mkdir()
        try:
            yield place
        finally:
            _clear(place)
            place.with_suffix(LOCK).unlink(missing_ok=True)


def _clear_nobodys(folder: Path) -> None:
    """Remove what jobs left here that were killed: their processes, then their files."""
    for lock in folder.glob(f"*-*{LOCK}"):
        with lock.open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _clear(lock.with_suffix(""))
            lock.unlink(missing_ok=True)


def _clear(place: Path) -> None:
    if place.exists():
        end_processes_below(place)
        shutil.rmtree(place)
