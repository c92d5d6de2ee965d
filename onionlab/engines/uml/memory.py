"""Determine the size, location and use of the guest's memory.

The guest's kernel uses one mapped file without a name as its memory. The file is on a file system
in memory. If it were on a disk, every change of the guest's memory would be written to the disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from onionlab.engines.base import ENDLESS_STREAM_BYTES, Simulation
from onionlab.errors import UserError

# Measured memory needs of the guest before it starts the first program, of a network namespace with
# its link, of a Tor process under load, and of a TGen client or server.
BASE_BYTES = 80 * 2**20
HOST_BYTES = 2**19
TOR_BYTES = 3 * 2**20
TRAFFIC_BYTES = 2**19
# The number of bytes that a client logs per simulated second, as heartbeat lines. Logs stay in the
# guest's memory until the end of the simulation.
LOG_BYTES_PER_S = 300

LIMIT_FACTOR = 1.5
LIMIT_MARGIN_BYTES = 384 * 2**20
LIMIT_STEP_BYTES = 64 * 2**20

_FOLDER_VARIABLES = ("TMPDIR", "XDG_RUNTIME_DIR")
_TRAFFIC_PROGRAM = "tgen"


def expected_bytes(simulation: Simulation) -> int:
    """Return the memory that the guest of a simulation is expected to use."""
    programs = [program for each in simulation.processes.values() for program in each]
    traffic = sum(program.program == _TRAFFIC_PROGRAM for program in programs)
    return (
        BASE_BYTES
        + len(simulation.network.hosts) * HOST_BYTES
        + (len(programs) - traffic) * TOR_BYTES
        + sum(program.extra_memory_bytes for program in programs)
        + traffic * (TRAFFIC_BYTES + LOG_BYTES_PER_S * simulation.stop_ms // 1000)
        + simulation.endless_streams * ENDLESS_STREAM_BYTES
    )


def guest_bytes(simulation: Simulation, asked_bytes: int | None) -> int:
    """Return the guest's memory size: `asked_bytes`, or by default ample memory for the simulation.

    Memory that the guest does not use costs only 1/60 of its size on the host. The size must not
    depend on the machine's memory: Tor derives limits from the size, so results would differ
    between machines.
    """
    if asked_bytes is not None:
        return asked_bytes
    limit = LIMIT_MARGIN_BYTES + round(expected_bytes(simulation) * LIMIT_FACTOR)
    return -(-limit // LIMIT_STEP_BYTES) * LIMIT_STEP_BYTES


def memory_folder(simulation: Simulation, limit_bytes: int) -> Path:
    """Return a folder on a file system in memory with space for the guest's memory.

    limit_bytes: the size of the guest's memory. Raises UserError if no folder has enough space, or
    if the machine has less memory available than the simulation is expected to use.
    """
    # Import psutil here, because kernel.py uses this module to build and boot a kernel even before
    # the Python packages are installed.
    import psutil

    expected = min(expected_bytes(simulation), limit_bytes)
    available = psutil.virtual_memory().available
    if available < expected:
        raise UserError(
            f"the simulation needs about {_mib(expected)} of memory, but the machine has "
            f"{_mib(available)} available",
            "end other programs, run fewer simulations at a time (JOBS), or lower SCALE",
        )
    folder = roomiest_memory_folder()
    room = free_bytes(folder)
    if room < limit_bytes:
        raise UserError(
            f"{folder} has space for {_mib(room)}, but the guest's memory needs up to "
            f"{_mib(limit_bytes)}",
            "make it larger (`mount -o remount,size=4G`; for a container `--shm-size=4g`), "
            "lower SCALE, or set `engine: {uml: {memory: ...}}` in the experiment",
        )
    return folder


def roomiest_memory_folder() -> Path:
    """Return the folder with the most free space on a file system in memory.

    The candidates are /dev/shm, /tmp, and the folders in the environment variables TMPDIR and
    XDG_RUNTIME_DIR. Raises UserError if none of them has free space in memory.
    """
    named = [value for name in _FOLDER_VARIABLES if (value := os.environ.get(name))]
    candidates = [Path(name) for name in dict.fromkeys(("/dev/shm", *named, "/tmp"))]
    best = max(candidates, key=free_bytes)
    if free_bytes(best) == 0:
        raise UserError(
            "no file system in memory has space for the guest's memory; tried: "
            + ", ".join(map(str, candidates)),
            "free some space in a tmpfs that is mounted without `noexec` (`mount -t tmpfs tmpfs "
            "/dev/shm`), or specify another one with TMPDIR=/path",
        )
    return best


def unlinked_files_bytes(pid: int) -> int:
    """Return the space that all open but unlinked files of a process occupy.

    If the process is a guest's kernel, this is the memory that the guest has used so far.
    """
    taken: dict[tuple[int, int], int] = {}
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    taken[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(taken.values())


def free_bytes(folder: Path) -> int:
    """Return the free space of a folder, or 0 if it cannot contain a guest's memory.

    Only a writable tmpfs without `noexec` can contain a guest's memory.
    """
    try:
        if file_system_type(folder) != "tmpfs" or not os.access(folder, os.W_OK | os.X_OK):
            return 0
        status = os.statvfs(folder)
    except OSError:
        return 0
    return 0 if status.f_flag & os.ST_NOEXEC else status.f_bavail * status.f_frsize


def file_system_type(folder: Path) -> str:
    """Return the type of a folder's file system, or "" if it is unknown."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ", 1)
        if before.split()[2] == wanted:
            return after.split()[0]
    return ""


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
