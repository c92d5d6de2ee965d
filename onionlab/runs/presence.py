"""Whether the command that started a workflow is still there.

A command holds a lock while it carries a plan out, and each of its jobs asks for it now and then:
a lock that nobody holds means that the command has ended, whatever ended it, and the job ends too,
also where it waits for a CPU or for another job.

A job on another machine cannot ask for a lock: there, the command writes to a file now and then,
and a file that stays as it is means the same. No clocks of two machines are compared.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from onionlab.errors import UserError
from onionlab.runs.beside import Done, beside

PATIENCE_S = 5.0
RETRY_S = 0.2
ASK_S = 1.0
BEAT_S = 5.0
LOST_S = 40.0
"""Without a beat for so long, a command has ended: a job then ends within a minute in all."""
BEATS = ".command-"
"""How the files begin that commands write to, each command to one of its own."""


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
                    raise in_use(out) from None
                time.sleep(RETRY_S)
        yield


def in_use(out: Path) -> UserError:
    """The error of who finds another command there."""
    return UserError(
        f"{out} is in use: another command is making this experiment", "wait for it, or end it"
    )


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
    with _ending_without(lambda: is_present(out), say):
        yield


@contextlib.contextmanager
def beating(out: Path) -> Iterator[Path]:
    """Write to a new file in a results directory now and then, until the block ends; yield it.

    Whoever does this holds the lock of ``out``: files of earlier commands, which were killed, go.
    """
    for old in out.glob(f"{BEATS}*"):
        old.unlink(missing_ok=True)
    file = out / f"{BEATS}{uuid.uuid4().hex}"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with writing_beats(descriptor):
            yield file
    finally:
        os.close(descriptor)
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def writing_beats(
    descriptor: int, words: str = "", after_each: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Write to an open file now and then, until the block ends: a number that grows, and words.

    Always as many bytes at the same place: that works on a full disk too. after_each: is called
    after each beat.
    """

    def beat(done: Done) -> None:
        for number in itertools.count():
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, f"{number:012d} {words}\n".encode(), 0)
                os.fsync(descriptor)
            after_each()
            if done.wait(BEAT_S):
                return

    with beside(beat):
        yield


class Beats:
    """What a process on another machine knows of the one that writes to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: bytes | None = None
        self._seen_at_s = time.monotonic()

    @property
    def last(self) -> bytes | None:
        """What the file held when it was last looked at."""
        return self._seen

    def are_there(self) -> bool:
        """Whether that one was there a moment ago; not where it has removed its file."""
        now_s = time.monotonic()
        try:
            # Opened each time: what network file systems promise is for files that are opened.
            beat = self._file.read_bytes()
        except FileNotFoundError:
            return False
        except OSError:
            beat = self._seen or b""  # The file system may be away for a while.
        if beat != self._seen:
            self._seen, self._seen_at_s = beat, now_s
        return now_s - self._seen_at_s < LOST_S


@contextlib.contextmanager
def ending_with_beats(file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """The same as ``ending_with_command`` on another machine: by the file of ``beating``."""
    beats = Beats(file)
    if not beats.are_there():
        raise UserError("the command that started this run has ended")
    with _ending_without(beats.are_there, say):
        yield


@contextlib.contextmanager
def _ending_without(is_there: Callable[[], bool], say: Callable[[str], None]) -> Iterator[None]:
    """End this process when something is not there any more, or what started this process."""
    starter = os.getppid()

    def watch(done: Done) -> None:
        while not done.wait(ASK_S):
            if os.getppid() != starter or not is_there():
                say("the command that started this run has ended; so does the run")
                # To the main thread, which may stand in a system call.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                return

    with beside(watch):
        yield


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
