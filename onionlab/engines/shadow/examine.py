"""Check whether this machine can run Shadow. The limits follow Shadow's documentation."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onionlab.engines.examination import (
    MISSING,
    OK,
    WARN,
    Finding,
    Need,
    Question,
    cgroup_limit,
    format_bytes,
    hard_limit,
    kernel_setting,
    process_status,
)
from onionlab.errors import UserError
from onionlab.programs.installed import SHADOW, TGEN, Program, find_tool

GUIDE = "https://shadow.github.io/docs/guide"
SYSTEM_CONFIGURATION = f"{GUIDE}/system_configuration.html"
SUPPORTED_PLATFORMS = f"{GUIDE}/supported_platforms.html"

KERNEL_MINIMUM = (5, 10)  # Shadow's supported_platforms.md

# The assumed needs of Shadow 3.3. Most exceed the needs that were measured on a network of 98
# processes. Each simulated process needed 5.6 open files in Shadow itself, 16 KiB in /dev/shm and
# up to 3 threads. The whole simulation needed 8 MiB in /dev/shm.
FILES_BASE = 200
FILES_PER_PROCESS = 8
SHARED_BASE_BYTES = 16 * 2**20
SHARED_BYTES_PER_PROCESS = 64 * 2**10
THREADS_PER_PROCESS = 3
DEFAULT_PROCESSES = 1000
"""The number of simulated processes, as in a network at full size, if no experiment is given."""
MAPS_MINIMUM = 65530
"""The lowest accepted vm.max_map_count, which is the kernel's default. Shadow's documentation
recommends more for programs with many mappings.
"""


def examine(question: Question, *, needed: bool) -> Iterator[Finding]:
    """Yield all findings. Problems are only warnings if another engine will run."""
    yield tool(SHADOW, question.shadow, needed=needed)
    yield tool(TGEN, question.tgen, needed=needed)
    yield kernel(platform.machine(), platform.release())
    if needed:
        yield seccomp(process_status("Seccomp"))
        yield shared_memory(Path("/dev/shm"), question.need)
    yield from limits(question.need, needed=needed)


def tool(program: Program, explicit: str | None, *, needed: bool) -> Finding:
    """Check that a program is installed. explicit: its path if the user specified it, or None."""
    try:
        found = find_tool(program, explicit)
    except UserError as error:
        if needed:
            return Finding(MISSING, program.title, error.message, error.hint or "")
        return Finding(OK, program.title, f"{error.message}; the embedded engine runs without it")
    commit = f", commit {found.commit}" if found.commit else ""
    return Finding(OK, program.title, f"{found.version}{commit} ({found.path})")


def kernel(machine: str, release: str) -> Finding:
    """Check that Shadow supports this processor and kernel."""
    text = f"Linux {release} on {machine}"
    if machine != "x86_64":
        return Finding(WARN, "kernel", f"{text}: Shadow supports x86_64", SUPPORTED_PLATFORMS)
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if version < KERNEL_MINIMUM:
        text += ": Shadow supports 5.10 and newer"
        return Finding(WARN, "kernel", text, SUPPORTED_PLATFORMS)
    return Finding(OK, "kernel", text)


def seccomp(mode: str | None) -> Finding:
    """Check whether a container filters system calls. A filter blocks Shadow or makes it slow.

    mode: the entry ``Seccomp`` of /proc/self/status.
    """
    if mode == "2":
        return Finding(
            WARN,
            "system call filter",
            "this container has one, under which Shadow may fail or be slow",
            f"docker run --security-opt seccomp=unconfined ({SUPPORTED_PLATFORMS})",
        )
    return Finding(OK, "system call filter", "none")


def shared_memory(path: Path, need: Need | None) -> Finding:
    """Check the free space in /dev/shm, which Shadow and the simulated processes use."""
    if not os.path.ismount(path):
        fix = f"mount -t tmpfs tmpfs {path}"
        return Finding(WARN, str(path), "not a separate file system", fix)
    free = shutil.disk_usage(path).free
    text = f"{format_bytes(free)} free"
    processes = need.processes if need else DEFAULT_PROCESSES
    wanted = SHARED_BASE_BYTES + processes * SHARED_BYTES_PER_PROCESS
    if free < wanted:
        return Finding(
            MISSING if need else WARN,
            str(path),
            f"{text}; {_describe_need(need)} about {format_bytes(wanted)}",
            f"docker run --shm-size=..., or: mount -o remount,size=... {path} "
            f"({SUPPORTED_PLATFORMS})",
        )
    return Finding(OK, str(path), text)


@dataclass(frozen=True)
class Limit:
    """A limit of the system.

    read: a function that returns the value of the limit, or None if there is no limit or its value
    is unknown. wanted: a function of the number of simulated processes that returns the lowest
    sufficient value. fix: how to raise the limit.
    """

    subject: str
    read: Callable[[], int | None]
    wanted: Callable[[int], int]
    fix: str


def _files(processes: int) -> int:
    return FILES_BASE + FILES_PER_PROCESS * processes


def _threads(processes: int) -> int:
    # Reserve 1000 threads for other programs on the machine.
    return 1000 + THREADS_PER_PROCESS * processes


def _sysctl(name: str, wanted: Callable[[int], int], value: int) -> Limit:
    fix = f"sudo sysctl -w {name}={value} ({SYSTEM_CONFIGURATION})"
    return Limit(name, lambda: kernel_setting(name.replace(".", "/")), wanted, fix)


LIMITS = (
    Limit(
        "open files (ulimit -Hn)",
        lambda: hard_limit(resource.RLIMIT_NOFILE),
        _files,
        f"raise `nofile` in /etc/security/limits.conf ({SYSTEM_CONFIGURATION})",
    ),
    _sysctl("fs.nr_open", _files, 10485760),
    _sysctl("fs.file-max", _files, 10485760),
    _sysctl("vm.max_map_count", lambda _: MAPS_MINIMUM, 1073741824),
    _sysctl("kernel.pid_max", _threads, 4194304),
    _sysctl("kernel.threads-max", _threads, 4194304),
    Limit(
        "processes (ulimit -Hu)",
        lambda: hard_limit(resource.RLIMIT_NPROC),
        _threads,
        f"raise `nproc` in /etc/security/limits.conf ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "tasks (cgroup)",
        lambda: cgroup_limit("pids", "pids.max"),
        _threads,
        f"sudo systemctl set-property user-$UID.slice TasksMax=infinity ({SYSTEM_CONFIGURATION})",
    ),
)


def limits(need: Need | None, *, needed: bool) -> Iterator[Finding]:
    """Check the limits that Shadow's system_configuration.md lists."""
    processes = need.processes if need else DEFAULT_PROCESSES
    for limit in LIMITS:
        value = limit.read()
        if value is None:
            yield Finding(OK, limit.subject, "unlimited")
            continue
        wanted = limit.wanted(processes)
        if value >= wanted:
            yield Finding(OK, limit.subject, str(value))
        else:
            status = MISSING if need and needed else WARN
            text = f"{value}; {_describe_need(need)} about {wanted}"
            yield Finding(status, limit.subject, text, limit.fix)


def _describe_need(need: Need | None) -> str:
    return f"{need.name} needs" if need else f"{DEFAULT_PROCESSES} simulated processes need"
