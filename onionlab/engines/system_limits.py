"""What the system allows this process: limits of control groups, of the kernel, of the process."""

from __future__ import annotations

import re
import resource
from pathlib import Path


def cgroup_limit(controller: str, *files: str) -> int | None:
    """The least limit of this process's control groups (v1 or v2); None where there is none.

    A limit that is beyond any machine (v1 has no word for "none") counts as none.
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
    """The hard limit of this process, such as ``resource.RLIMIT_NOFILE``; None: unlimited."""
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def kernel_setting(name: str) -> int | None:
    """A number below /proc/sys, such as ``fs/nr_open``; None where there is none."""
    values = _words(Path("/proc/sys") / name)
    return int(values[0]) if values else None


def process_status(name: str) -> str | None:
    """An entry of this process's status in /proc; None where the kernel has no such entry."""
    text = Path("/proc/self/status").read_text("utf-8")
    match = re.search(rf"^{name}:\s+(\S+)", text, re.MULTILINE)
    return match[1] if match else None
