"""CPUs of its own for each simulation.

Simulations pin their threads; two on the same CPU would run at half speed while another idles. Each
takes a lock on every CPU that it uses; the locks end with the process that holds them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

RETRY_S = 1.0


def lock_directory() -> Path:
    """One for the whole machine (and user): the CPUs are shared by all checkouts."""
    return Path(tempfile.gettempdir()) / f"onionlab-cpus-{os.getuid()}"


@contextlib.contextmanager
def own_cpus(count: int) -> Iterator[list[int]]:
    """Take `count` CPUs (or all there are, if fewer) and bind the calling process to them.

    Waits until they are free. Child processes inherit the binding.
    """
    directory = lock_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    allowed = sorted(os.sched_getaffinity(0))
    wanted = min(count, len(allowed))
    with contextlib.ExitStack() as stack:
        cpus = _take(directory, allowed, wanted, stack)
        os.sched_setaffinity(0, cpus)
        try:
            yield cpus
        finally:
            os.sched_setaffinity(0, allowed)


def _take(
    directory: Path, allowed: list[int], wanted: int, stack: contextlib.ExitStack
) -> list[int]:
    """Take all or none at a time: two that each hold half would wait for ever."""
    with (directory / "queue").open("w") as queue:
        # First come, first served: else whoever asks just when a CPU falls free takes it from those
        # who wait, and one experiment's runs keep another's out.
        fcntl.flock(queue, fcntl.LOCK_EX)
        while True:
            taken: dict[int, IO[str]] = {}
            for cpu in allowed:
                lock = (directory / f"cpu{cpu}").open("w")
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    taken[cpu] = lock
                except BlockingIOError:
                    lock.close()
                if len(taken) == wanted:
                    for held in taken.values():
                        stack.callback(held.close)
                    return list(taken)
            for held in taken.values():
                held.close()
            time.sleep(RETRY_S)
