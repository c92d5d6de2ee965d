"""Whether the command that started a workflow is still there.

A command holds a lock while it carries a plan out, and each of its jobs asks for it now and then:
a lock that nobody holds means that the command has ended, whatever ended it, and the job ends too,
also where it waits for a CPU or for another job.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from onionlab.errors import UserError

PATIENCE_S = 5.0
RETRY_S = 0.2
ASK_S = 1.0


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
    try:
        with _lock_file(out).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass  # The directory has been removed: with it went whatever was to be made.
    return False


@contextlib.contextmanager
def ending_with_command(out: Path, say: Callable[[str], None]) -> Iterator[None]:
    """End this process, as SIGTERM does, when the command of ``out`` or what started this ends.

    Args:
        out: The results directory whose lock the command holds.
        say: Hears why.
    """
    starter = os.getppid()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(ASK_S):
            if os.getppid() != starter or not is_present(out):
                say("the command that started this run has ended; so does the run")
                # To the main thread, which may stand in a system call.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def end_with_starter() -> None:
    """End this process, as SIGTERM does, when the process that started it ends.

    For a helper whose starter is killed: nobody would tell it that no more work comes.
    """
    starter = os.getppid()

    def watch() -> None:
        while os.getppid() == starter:
            time.sleep(ASK_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _lock_file(out: Path) -> Path:
    return out / ".in-use"
