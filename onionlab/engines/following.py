"""The main loop of every engine: run a simulation's first process and monitor it until it ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onionlab.engines.base import Progress, Usage
from onionlab.engines.processes import (
    MemorySampler,
    children_cpu_s,
    memory_kills,
    record_session,
    with_parent_death_signal,
)

POLL_INTERVAL_S = 1.0
FIRST_POLL_S = 0.05
"""The delay before the first poll. The delay before each later poll is the time since the start,
but at most POLL_INTERVAL_S. Even a short simulation thus has memory samples before its end.
"""


@dataclass(frozen=True)
class Command:
    """A command that an engine starts.

    directory: its working directory. log: the file for its output. environment: its complete
    environment. own_session: whether the command gets a separate session, so that a terminal's
    Ctrl-C does not reach it. shared_bytes: see `MemorySampler`.
    """

    argv: Sequence[str]
    directory: Path
    log: Path
    environment: Mapping[str, str]
    own_session: bool = False
    shared_bytes: Callable[[int], int] = lambda _pid: 0


@dataclass(frozen=True)
class ExitInfo:
    """The exit status of a simulation's first process, and the resources that the simulation used.

    status: the return code as in subprocess. memory_kills: the number of processes on the machine
    that the out-of-memory killer killed during the simulation, or None if unknown.
    """

    status: int
    memory_kills: int | None
    usage: Usage

    def __str__(self) -> str:
        """Describe how the process ended, as a phrase without a subject: "ended with status 1"."""
        if self.status >= 0:
            how = f"ended with status {self.status}"
        else:
            killed = -self.status in (signal.SIGKILL, signal.SIGTERM)
            verb = "was killed" if killed else "ended by a signal"
            how = f"{verb} ({_signal_name(-self.status)})"
        if kills := self.memory_kills:
            return f"{how}; meanwhile the system ran out of memory (processes killed: {kills})"
        if self.status != -signal.SIGKILL:
            return how
        if self.memory_kills is None:
            return f"{how}, probably because the system ran out of memory: check `dmesg`"
        return f"{how}, by a user or by a program that guards memory, not by the system"


def _signal_name(number: int) -> str:
    """Return a signal's name, or "signal NUMBER" if it has none, like most real-time signals."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def follow(
    command: Command,
    *,
    simulated_s: Callable[[], float],
    stop_s: float,
    on_progress: Callable[[Progress], None],
) -> ExitInfo:
    """Run a command to its end and report its progress about once per second.

    simulated_s: a function that returns the simulated time so far. stop_s: the simulated time of
    the end. If `simulated_s` or `on_progress` raises an exception, the command is killed. Samples
    of the machine's memory go to free.log.
    """
    started = time.monotonic()
    cpu_before_s = children_cpu_s()
    kills_before = memory_kills()
    with command.log.open("wb") as log:
        # If this process is killed, the simulation must end as well.
        process = subprocess.Popen(
            with_parent_death_signal(command.argv),
            cwd=command.directory,
            start_new_session=command.own_session,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(command.environment),
            # Shadow creates the programs' folders with this umask. With a different umask, Tor
            # would correct the folders' permissions and log the correction.
            umask=0o022,
        )
        sampler = MemorySampler(process.pid, command.directory / "free.log", command.shared_bytes)
        try:
            record_session(command.directory, process.pid)
            poll_s = FIRST_POLL_S
            while not _has_ended(process, poll_s):
                poll_s = min(POLL_INTERVAL_S, time.monotonic() - started)
                on_progress(
                    Progress(
                        simulated_s=simulated_s(),
                        stop_s=stop_s,
                        wall_s=time.monotonic() - started,
                        memory_bytes=sampler.sample(),
                    )
                )
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    kills = memory_kills()
    return ExitInfo(
        status=process.returncode,
        memory_kills=None if kills is None or kills_before is None else kills - kills_before,
        usage=Usage(
            wall_s=time.monotonic() - started,
            cpu_s=children_cpu_s() - cpu_before_s,
            peak_memory_bytes=sampler.peak_bytes,
        ),
    )


def _has_ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait for a process to end, with a timeout. Return whether it has ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    return process.returncode is not None
