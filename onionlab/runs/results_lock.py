"""The lock of a results folder, by which jobs notice that the command that started them has ended.

A command holds the lock while its runs are made. Each of its jobs checks the lock every second: if
nobody holds it, the command has ended, for whatever reason, and the job ends too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from onionlab.errors import UserError
from onionlab.runs.beside import Done, beside
from onionlab.runs.locks import file_lock, is_locked

TIMEOUT_S = 5.0
"""A job that checks the lock holds it for an instant."""
CHECK_INTERVAL_S = 1.0


@contextlib.contextmanager
def results_lock(out: Path) -> Iterator[None]:
    """Hold the lock of a results folder. Raises UserError if another command holds it."""
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(_lock_file(out), timeout_s=TIMEOUT_S))
        except TimeoutError:
            raise in_use_error(out) from None
        yield


def in_use_error(out: Path) -> UserError:
    """Return the error of a command that finds another one at work in a results folder."""
    return UserError(
        f"{out} is in use: another command is making this experiment", "wait for it, or end it"
    )


def is_in_use(out: Path) -> bool:
    """Return whether a command holds the lock of a results folder."""
    return is_locked(_lock_file(out))


@contextlib.contextmanager
def exit_with_command(out: Path, log: Callable[[str], None]) -> Iterator[None]:
    """End this process, as SIGTERM does, when the command or the parent process ends.

    Args:
        out: The results folder that the command has locked.
        log: Receives the reason.
    """
    parent = os.getppid()

    def watch(done: Done) -> None:
        while not done.wait(CHECK_INTERVAL_S):
            if os.getppid() != parent or not is_in_use(out):
                log("the command that started this run has ended; so does the run")
                _terminate_main_thread()
                return

    with beside(watch):
        yield


def exit_with_parent() -> None:
    """End this process, as SIGTERM does, when its parent ends or is killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(CHECK_INTERVAL_S)
        _terminate_main_thread()

    threading.Thread(target=watch, daemon=True).start()


def _terminate_main_thread() -> None:
    # A signal to the process may be handled by another thread while this one is in a system call.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _lock_file(out: Path) -> Path:
    return out / ".in-use"
