"""Whether the command that started a workflow is still there.

A command holds a lock while it carries a plan out, and each of its jobs asks for it now and then:
a lock that nobody holds means that the command has ended, whatever ended it, and the job ends too.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from onionlab.errors import UserError

PATIENCE_S = 5.0
RETRY_S = 0.2


@contextlib.contextmanager
def presence(out: Path) -> Iterator[None]:
    """Hold the lock of a results directory. Raises UserError where another command holds it."""
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + PATIENCE_S
    with _lock_file(out).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # For an instant it may be a job that asks.
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{out} is in use: another command is making this experiment",
                        "wait for it, or end it",
                    ) from None
                time.sleep(RETRY_S)
        yield


def is_present(out: Path) -> bool:
    """Whether some command holds the lock of a results directory."""
    with _lock_file(out).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock_file(out: Path) -> Path:
    return out / ".in-use"
