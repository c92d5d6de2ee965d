"""Data types for checks of a machine before a run, and functions that read the system's limits.

Each engine provides its own checks (`EngineKind.examine`); onionlab.doctor provides the others.
"""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass
from pathlib import Path

OK = "ok"
WARN = "warn"
MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One result of a check. status: OK, WARN or MISSING. fix: advice; "" if none is needed."""

    status: str
    subject: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Need:
    """The resources that an experiment needs.

    memory_bytes, processes: the memory and the simulated processes of its largest run. disk_bytes:
    the disk space of all its runs together.
    """

    name: str
    memory_bytes: int
    disk_bytes: int
    processes: int


@dataclass(frozen=True)
class Question:
    """What to check before a run: the machine, and whether it meets an experiment's needs.

    engine: the engine that will run. need: None to check only the machine. shadow, tgen: the paths
    of these programs that the user specified, or None.
    """

    root: Path
    engine: str
    need: Need | None = None
    shadow: str | None = None
    tgen: str | None = None


SMALLER = "make the network smaller (SCALE=0.1, or `traffic: markov_clients` for an imported one)"
"""The hint to print if a run is too large for the machine."""


def format_bytes(size: float) -> str:
    """Format a size in GiB, MiB or KiB: the largest unit in which the size is at least 1."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            amount = size / factor
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{max(size / 2**10, 1):.0f} KiB"


def cgroup_limit(controller: str, *files: str) -> int | None:
    """Return the lowest limit of this process's control groups (v1 or v2), or None without a limit.

    controller: the name of the resource in v1, such as "memory". files: the names of the files that
    contain the limit in v1 or v2. Control groups v1 express "unlimited" by a huge number, so values
    of 2**60 or more are ignored.
    """
    found = []
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        mount = Path("/sys/fs/cgroup")
        if controllers:
            if controller not in controllers.split(","):
                continue
            mount = mount / controller
        group = mount / path.lstrip("/")
        for place in (group, *group.parents):
            if place == mount.parent:
                break
            found += [
                int(text) for file in files for text in _words(place / file) if text.isdecimal()
            ]
    return min((value for value in found if value < 2**60), default=None)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").split()
    except OSError:
        return []


def hard_limit(which: int) -> int | None:
    """Return a hard limit such as ``resource.RLIMIT_NOFILE``, or None if it is unlimited."""
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def kernel_setting(name: str) -> int | None:
    """Return the number in a file of /proc/sys, such as ``fs/nr_open``; None without the file."""
    values = _words(Path("/proc/sys") / name)
    return int(values[0]) if values else None


def process_status(name: str) -> str | None:
    """Return the first word of an entry of /proc/self/status, such as ``Seccomp``, if it exists."""
    text = Path("/proc/self/status").read_text("utf-8")
    match = re.search(rf"^{name}:\s+(\S+)", text, re.MULTILINE)
    return match[1] if match else None
