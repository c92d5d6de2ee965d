"""One holder at a time on all machines that see a file, whatever the file system's locks are worth.

A lock of the system ends with its holder, and on some network file systems it holds on one machine
alone. A lease is a file that only one can make; its holder writes to it now and then. A lease that
stays as it is has lost its holder, and whoever waits takes it away. Nobody compares clocks.

Who writes nothing for so long while it still is at work (a machine that hung) finds its lease gone,
and ends itself.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from onionlab.runs.presence import Beats, writing_beats

RETRY_S = 1.0


@contextlib.contextmanager
def lease(file: Path) -> Iterator[None]:
    """Hold a lease until the block ends; wait for it where another one holds it."""
    while True:
        wait_for_lease(file)
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            break
        except FileExistsError:
            continue
    words = f"{platform.node()} {os.getpid()} {os.environ.get('SLURM_JOB_ID', '-')}"

    def end_where_it_is_gone() -> None:
        if _is_own(file, descriptor):
            return
        # Who takes it for lost has it aside for an instant, and puts it back if it is not.
        time.sleep(RETRY_S)
        if not _is_own(file, descriptor):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    try:
        with writing_beats(descriptor, words, end_where_it_is_gone):
            yield
    finally:
        if _is_own(file, descriptor):
            file.unlink(missing_ok=True)
        os.close(descriptor)


def wait_for_lease(file: Path) -> None:
    """Wait until nobody holds a lease. Takes away one that has lost its holder."""
    if not file.exists():
        return
    beats = Beats(file)
    while file.exists():
        if not beats.are_there():
            _take_away(file, beats.last)
            continue
        time.sleep(RETRY_S)


def _take_away(file: Path, seen: bytes | None) -> None:
    """Remove a lease that stayed as it was: one of those who wait does, and no newer one goes."""
    aside = file.with_name(f"{file.name}-{uuid.uuid4().hex}")
    try:
        file.rename(aside)
    except FileNotFoundError:
        return
    if seen is not None and aside.read_bytes() != seen:
        # Another one had done so before, and this is its own.
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(aside)
    aside.unlink(missing_ok=True)


def _is_own(file: Path, descriptor: int) -> bool:
    """Whether the lease of that name is the one that is open here."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
    except OSError:
        return True  # The file system may be away for a while.
