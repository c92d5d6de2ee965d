"""Lock a results folder, so that jobs detect when the command that started them has ended.

A command holds the lock while it performs its runs. Each job checks the lock every second. If the
lock is free, the command has ended or was killed, so the job ends as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from onionlab.errors import UserError
from onionlab.locks import file_lock, is_locked

LOG = logging.getLogger(__name__)
TIMEOUT_S = 5.0
"""How long a command waits for the lock. Jobs that check the lock also hold it for an instant."""
CHECK_INTERVAL_S = 1.0


@contextlib.contextmanager
def results_lock(out: Path) -> Iterator[None]:
    """Hold the lock of a results folder. Raises UserError if another command holds it."""
    out.mkdir(parents=True, exist_ok=True)
    with file_lock(_lock_file(out), timeout_s=TIMEOUT_S, refusal=in_use_error(out)):
        yield


def in_use_error(out: Path) -> UserError:
    """Return the error for a results folder that another command uses."""
    return UserError(
        f"{out} is in use: another command is making this experiment", "wait for it, or end it"
    )


def is_in_use(out: Path) -> bool:
    """Return whether a command holds the lock of a results folder."""
    return is_locked(_lock_file(out))


@contextlib.contextmanager
def exit_with_command(out: Path) -> Iterator[None]:
    """During the block, send this process SIGTERM once the command that started it has ended.

    This is the case if the parent process has ended, or if no command holds the lock of ``out``.
    """
    parent = os.getppid()
    stop = _terminate_when(lambda: os.getppid() != parent or not is_in_use(out))
    try:
        yield
    finally:
        stop()


def exit_with_parent() -> None:
    """Send SIGTERM to this process if its parent ends or is killed."""
    parent = os.getppid()
    _terminate_when(lambda: os.getppid() != parent)


def _terminate_when(condition: Callable[[], bool]) -> Callable[[], None]:
    """Check a condition every second in a thread, and send this process SIGTERM once it is true.

    Return a function that stops the checks.
    """
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(CHECK_INTERVAL_S):
            if condition():
                LOG.info("the command that started this process has ended; so does the process")
                # Send the signal to the main thread, to interrupt the system call in which this
                # thread may wait. Any thread can receive a signal that is sent to the process.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                return

    def stop() -> None:
        stopped.set()
        thread.join()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return stop


def _lock_file(out: Path) -> Path:
    return out / ".in-use"
