"""Measure the memory of a simulation's processes, and kill them reliably."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

SESSION_FILE = ".session"
"""File in a simulation's folder that identifies its processes until they have ended."""
END_TIMEOUT_S = 10.0
SAMPLE_INTERVAL_S = 5.0
SAMPLE_SHARE = 0.01
"""The maximum share of one CPU's time that samples may use. A sample of hundreds of processes takes
0.1 s.
"""


def with_parent_death_signal(command: Sequence[str]) -> list[str]:
    """Return a command line that makes the kernel kill the command when the calling process ends.

    If the caller ends before setpriv takes effect, the kernel sends no signal. The shell therefore
    compares the process ids of its parent and of the caller. It starts the command only if they are
    the same.
    """
    parent_check = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", parent_check, str(os.getpid()), *command]


class MemorySampler:
    """Samples the memory of a process tree and of the machine.

    pid: the id of the tree's first process. free_log: the file for samples of the machine: the
    time, then the header and the line `Mem:` of `free -w -b -l`, as tornettools reads them.
    shared_bytes: a function that gets `pid` and returns the memory that the processes of the tree
    share. A sample of the tree also has the private memory of each process.
    """

    def __init__(
        self, pid: int, free_log: Path, shared_bytes: Callable[[int], int] = lambda _pid: 0
    ) -> None:
        self._pid = pid
        self._free_log = free_log
        self._shared_bytes = shared_bytes
        self._started_s = time.monotonic()
        self._next_s = 0.0
        self._latest_bytes = 0
        self.peak_bytes = 0

    def sample(self) -> int:
        """Return the memory of the tree in bytes, measured at most once every few seconds.

        The first intervals between samples are shorter, so that a short run also has several
        samples. If a sample takes much CPU time, the next interval is longer (see SAMPLE_SHARE).
        """
        now = time.monotonic()
        if now >= self._next_s:
            cpu_before_s = time.process_time()
            self._latest_bytes = _private_bytes(self._pid) + self._shared_bytes(self._pid)
            took_s = time.process_time() - cpu_before_s
            interval_s = max(SAMPLE_INTERVAL_S, took_s / SAMPLE_SHARE)
            self._next_s = now + min(interval_s, now - self._started_s)
            self.peak_bytes = max(self.peak_bytes, self._latest_bytes)
            # A failure to write, for example to a full disk, must not end the simulation.
            with contextlib.suppress(OSError), self._free_log.open("a") as out:
                out.write(_free_text())
        return self._latest_bytes


def children_cpu_s() -> float:
    """Return the user and system time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def memory_kills() -> int | None:
    """Return how many processes the out-of-memory killer has killed since the system booted.

    Return None if the system does not report this number.
    """
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        return int(found[1]) if found else None
    return None


def record_session(directory: Path, pid: int) -> None:
    """Record in a file in `directory` to which session a simulation's first process belongs."""
    text = f"{os.getsid(pid)} {platform.node()}"
    (directory / SESSION_FILE).write_text(text, encoding="utf-8")


def kill_processes_below(directory: Path) -> list[int]:
    """Kill the processes of a simulation in `directory`, and return their ids.

    A process belongs to the simulation if it is in the session that `record_session` recorded, and
    its working directory is below `directory`. Processes inherit their session, and keep it when
    their parent ends, so any command can find them. Other processes that work in the folder, such
    as a user's shell, are in other sessions. The session alone does not suffice, because Shadow is
    in the session of all jobs of a command.
    """
    session = _recorded_session(directory)
    if session is None:
        return []
    root, killed = directory.resolve(), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_in_session = os.getsid(process.pid) == session
            if is_in_session and Path(process.cwd()).is_relative_to(root):
                process.kill()
                killed.append(process.pid)
    return killed


def end_processes_below(directory: Path) -> None:
    """Kill the processes of a simulation as `kill_processes_below` does, and wait for their end.

    The wait takes at most `END_TIMEOUT_S`.
    """
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while kill_processes_below(directory) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _recorded_session(directory: Path) -> int | None:
    """Return the recorded session of a simulation; None if no session of this node is recorded."""
    try:
        session, _, node = (directory / SESSION_FILE).read_text(encoding="utf-8").partition(" ")
        return int(session) if node == platform.node() else None
    except (OSError, ValueError):
        return None


def _private_bytes(pid: int) -> int:
    """Return the sum of resident minus shared memory of a process and all its descendants."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = psutil.Process(pid)
        for process in [tree, *tree.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                memory = process.memory_info()
                total += memory.rss - memory.shared
    return total


def _free_text() -> str:
    memory = psutil.virtual_memory()
    names = ("total", "used", "free", "shared", "buffers", "cached", "available")
    columns = {"cache" if name == "cached" else name: getattr(memory, name) for name in names}
    head = " " * 8 + "".join(f"{name:>16}" for name in columns)
    body = "Mem:    " + "".join(f"{value:>16}" for value in columns.values())
    return f"{time.time():.9f} UTC seconds since epoch\n{head}\n{body}\n"
