"""Read limits of control groups, of the kernel and of this process."""

from __future__ import annotations

import re
import resource
from pathlib import Path


def cgroup_limit(controller: str, *files: str) -> int | None:
    """Return the lowest limit of this process's control groups (v1 or v2), or None without a limit.

    Control groups v1 use a huge number for "unlimited", so a limit beyond any machine is ignored.
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
    """Return a number below /proc/sys, such as ``fs/nr_open``, or None if it does not exist."""
    values = _words(Path("/proc/sys") / name)
    return int(values[0]) if values else None


def process_status(name: str) -> str | None:
    """Return an entry of this process's status in /proc, or None if it does not exist."""
    text = Path("/proc/self/status").read_text("utf-8")
    match = re.search(rf"^{name}:\s+(\S+)", text, re.MULTILINE)
    return match[1] if match else None
