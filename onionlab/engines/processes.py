"""The processes of a simulation: how much memory they hold, and that none is left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

SAMPLE_INTERVAL_S = 5.0
SAMPLE_SHARE = 0.01
"""Of one CPU's time, at most: a sample of hundreds of processes takes a tenth of a second."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def ended_with_caller(command: Sequence[str]) -> list[str]:
    """The command, such that the kernel kills it when the calling process ends, however it ends.

    A caller that ends before setpriv has asked for that is noticed by the parent's number.
    """
    still_there = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", still_there, str(os.getpid()), *command]


class MemorySampler:
    """Samples the memory of a process tree, and of the machine in the format of `free -w -b -l`.

    The second goes to `free_log`, each sample below its date, as tornettools records it. The sum of
    private memory leaves out what the tree's processes share: shared_bytes, called with the id of
    the first one, returns that.
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
        """Return the memory of the tree in bytes, measured anew at most once each few seconds.

        At first more often, as the time since the start doubles: a short run has a peak as well.
        Less often where a sample takes long.
        """
        now = time.monotonic()
        if now >= self._next_s:
            cpu_before_s = time.process_time()
            self._latest_bytes = _private_bytes(self._pid) + self._shared_bytes(self._pid)
            took_s = time.process_time() - cpu_before_s
            interval_s = max(SAMPLE_INTERVAL_S, took_s / SAMPLE_SHARE)
            self._next_s = now + min(interval_s, now - self._started_s)
            self.peak_bytes = max(self.peak_bytes, self._latest_bytes)
            # What cannot be written, where the disk is full, is not worth the simulation.
            with contextlib.suppress(OSError), self._free_log.open("a") as out:
                out.write(_free_text())
        return self._latest_bytes


def children_cpu_s() -> float:
    """Return the CPU time of all processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def memory_kills() -> int | None:
    """How many processes the system has killed for want of memory since it started, if it says."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def kill_processes_below(directory: Path) -> list[int]:
    """Kill all processes whose working directory lies below `directory`; return their ids.

    That is how processes of a simulation are known that outlived the command which started it.
    """
    killed = []
    for pid in _pids_below(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    return killed


def end_processes_below(directory: Path, *, patience_s: float = 10.0) -> None:
    """Kill them, and wait until they are gone: a killed process may take a while to fall."""
    deadline_s = time.monotonic() + patience_s
    while kill_processes_below(directory) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _pids_below(directory: Path) -> Iterator[int]:
    root = str(directory.resolve())
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            cwd = str((entry / "cwd").readlink())
            if cwd == root or cwd.startswith(root + "/"):
                yield int(entry.name)


def _private_bytes(pid: int) -> int:
    """Sum resident minus shared memory over a process and its descendants."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = psutil.Process(pid)
        for process in [tree, *tree.children(recursive=True)]:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{process.pid}/statm").read_text().split()
                total += (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    return total


def _free_text() -> str:
    memory = psutil.virtual_memory()
    columns = {
        "total": memory.total,
        "used": memory.used,
        "free": memory.free,
        "shared": memory.shared,
        "buffers": memory.buffers,
        "cache": memory.cached,
        "available": memory.available,
    }
    head = " " * 8 + "".join(f"{name:>16}" for name in columns)
    body = "Mem:    " + "".join(f"{value:>16}" for value in columns.values())
    return f"{time.time():.9f} UTC seconds since epoch\n{head}\n{body}\n"
