"""The guest's memory: how much it needs, where it lies, how much of it is in use.

All of it is one file without a name, which the kernel maps: on a file system in memory, or it would
be written to a disk all the time.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from onionlab.engines.base import Simulation
from onionlab.errors import UserError

BASE_BYTES = 200 * 2**20
HOST_BYTES = 1 * 2**20
TOR_BYTES = 24 * 2**20
TRAFFIC_HOST_BYTES = 1 * 2**20
LOG_BYTES_PER_HOST_S = 300
HEADROOM = 1.3
_STEP_BYTES = 64 * 2**20

_TMPFS_MAGIC = "tmpfs"


def guest_bytes(simulation: Simulation, asked_bytes: int | None) -> int:
    """Return how much memory the guest gets: as asked for, or enough for the simulation's size."""
    if asked_bytes is not None:
        return asked_bytes
    programs = [p for each in simulation.processes.values() for p in each]
    tors = sum(program.program.startswith("tor-") for program in programs)
    traffic = len(programs) - tors
    needed = (
        BASE_BYTES
        + len(simulation.network.hosts) * HOST_BYTES
        + tors * TOR_BYTES
        + traffic * (TRAFFIC_HOST_BYTES + LOG_BYTES_PER_HOST_S * simulation.stop_ms // 1000)
    )
    return -(-round(needed * HEADROOM) // _STEP_BYTES) * _STEP_BYTES


def memory_place(needed_bytes: int) -> Path:
    """Return a folder of a file system in memory with that much room. Raises UserError."""
    candidates = [Path("/dev/shm")]
    candidates += [
        Path(value) for name in ("TMPDIR", "XDG_RUNTIME_DIR") if (value := os.environ.get(name))
    ]
    candidates += [Path("/tmp")]
    best: tuple[int, Path] | None = None
    for folder in candidates:
        if _in_memory(folder) and os.access(folder, os.W_OK | os.X_OK):
            room = os.statvfs(folder)
            if room.f_flag & os.ST_NOEXEC:
                continue
            free = room.f_bavail * room.f_frsize
            if best is None or free > best[0]:
                best = free, folder
    if best is None:
        raise UserError(
            "there is no file system in memory for the guest's memory "
            f"(looked at {', '.join(map(str, candidates))})",
            "mount a tmpfs without `noexec` and name it: TMPDIR=/path",
        )
    free, folder = best
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < needed_bytes:
        raise UserError(
            f"{folder} has {free >> 20} MiB free, the simulation needs {needed_bytes >> 20} MiB",
            "make it larger (mount -o remount,size=...), or lower SCALE",
        )
    _ = available
    return folder


def memory_file_bytes(pid: int) -> int:
    """Return how much memory the nameless files take that a process has open."""
    seen: dict[tuple[int, int], int] = {}
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                status = entry.stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    except OSError:
        return 0
    return sum(seen.values())


def _in_memory(folder: Path) -> bool:
    try:
        real = folder.resolve(strict=True)
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    best = ("", "")
    for line in lines:
        before, after = line.split(" - ", 1)
        point = before.split()[4]
        if (str(real) + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
            best = point, after.split()[0]
    return best[1] == _TMPFS_MAGIC
