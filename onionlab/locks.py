"""File locks, which the kernel releases when the process with the lock ends for any reason.

The locks use flock(2). The library filelock is not used: since version 4 it refuses a lock file
of another user in a shared folder such as /run/lock, where onionlab locks CPUs for all users.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.2


def open_lock(path: Path) -> int:
    """Return a descriptor of a lock file, which is created if it is missing."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def try_lock(descriptor: int) -> bool:
    """Lock an open file; return False if another process or another descriptor has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def file_lock(
    path: Path,
    on_wait: Callable[[], None] = lambda: None,
    *,
    timeout_s: float | None = None,
    refusal: Exception | None = None,
    open_file: Callable[[Path], int] = open_lock,
) -> Iterator[None]:
    """Hold the lock of a file until the block ends.

    Args:
        path: The file, which is not removed.
        on_wait: A function to call once, before the wait, if another process holds the lock.
        timeout_s: Maximum wait in seconds. By default it is unlimited, and waiting processes get
            the lock in the order of arrival.
        refusal: Exception to raise after ``timeout_s``, in place of TimeoutError.
        open_file: A function that opens the file and returns its descriptor.
    """
    descriptor = open_file(path)
    try:
        if not try_lock(descriptor):
            on_wait()
            if timeout_s is None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            else:
                deadline_s = time.monotonic() + timeout_s
                while not try_lock(descriptor):
                    if time.monotonic() > deadline_s:
                        raise refusal or TimeoutError
                    time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file. A file that is missing has no lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
