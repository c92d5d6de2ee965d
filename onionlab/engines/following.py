"""Run a simulation's first process to its end, and follow it: the loop of every engine."""

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
    ended_with_caller,
    memory_kills,
)

POLL_INTERVAL_S = 1.0
FIRST_POLL_S = 0.05
"""Each later poll doubles the time since the start, up to the interval: the shortest simulation has
samples of its memory too, and not only of its end."""


@dataclass(frozen=True)
class Command:
    """What an engine starts.

    words: the program and its arguments; log: where its output goes; environment: all of it;
    own_session: whether a terminal's Ctrl-C is kept from it; shared_bytes: as MemorySampler has it.
    """

    words: Sequence[str]
    directory: Path
    log: Path
    environment: Mapping[str, str]
    own_session: bool = False
    shared_bytes: Callable[[int], int] = lambda _pid: 0


@dataclass(frozen=True)
class Ended:
    """How a simulation's first process ended, and what it used.

    status: as subprocess has it, below zero for a signal; memory_kills: processes that the system
    killed meanwhile because memory had ended, anywhere on the machine; None where it does not say.
    """

    status: int
    memory_kills: int | None
    usage: Usage

    def __str__(self) -> str:
        """Tell it, to stand behind who it was."""
        if self.status >= 0:
            how = f"ended with status {self.status}"
        else:
            killed = -self.status in (signal.SIGKILL, signal.SIGTERM)
            how = f"{'was killed' if killed else 'ended by a signal'} ({_name_of(-self.status)})"
        if self.memory_kills:
            return (
                f"{how}; meanwhile memory ended, and the system killed {self.memory_kills} of the "
                "machine's processes"
            )
        if self.status != -signal.SIGKILL:
            return how
        if self.memory_kills is None:
            return f"{how}, most likely because memory ended: `dmesg` tells whether the system did"
        return f"{how}, by somebody or by a program that guards memory: the system did not do it"


def _name_of(number: int) -> str:
    """A signal's name; those of real time have none."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def follow(
    command: Command,
    *,
    simulated_s: Callable[[], float],
    stop_s: float,
    on_progress: Callable[[Progress], None],
) -> Ended:
    """Run a command to its end and say how far it is, each second.

    simulated_s: the simulated time so far; where it or `on_progress` raises, the command is killed.
    The memory that it uses goes to free.log.
    """
    started = time.monotonic()
    cpu_before_s = children_cpu_s()
    kills_before = memory_kills()
    with command.log.open("wb") as log:
        # A killed runner must not leave the simulation behind.
        process = subprocess.Popen(
            ended_with_caller(command.words),
            cwd=command.directory,
            start_new_session=command.own_session,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(command.environment),
            # Shadow makes the programs' folders with it, and Tor logs permissions that it corrects.
            umask=0o022,
        )
        sampler = MemorySampler(process.pid, command.directory / "free.log", command.shared_bytes)
        try:
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
    return Ended(
        status=process.returncode,
        memory_kills=None if kills is None or kills_before is None else kills - kills_before,
        usage=Usage(
            wall_s=time.monotonic() - started,
            cpu_s=children_cpu_s() - cpu_before_s,
            peak_memory_bytes=sampler.peak_bytes,
        ),
    )


def _has_ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait for the end of a process, so long at most."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    return process.returncode is not None
