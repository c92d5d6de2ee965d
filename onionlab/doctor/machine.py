"""Check CPUs, memory and disk. These checks do not depend on the engine."""

from __future__ import annotations

from onionlab.engines.examination import (
    MISSING,
    OK,
    SMALLER,
    WARN,
    Finding,
    Need,
    format_bytes,
)

BUILD_DISK_BYTES = 1500 * 2**20
"""The disk space for a build of Tor with its source and all build trees (measured: 0.9 GB)."""


def cpus(count: int) -> Finding:
    """Report the number of CPUs that this process may use."""
    if count > 1:
        return Finding(OK, "CPUs", str(count))
    return Finding(WARN, "CPUs", "1: simulations run one after the other")


def memory(available: int, need: Need | None) -> Finding:
    """Compare the available memory in bytes with the need of the experiment's largest run."""
    text = f"{format_bytes(available)} available"
    if need is None:
        return Finding(OK, "memory", text)
    text += f"; {need.name} needs about {format_bytes(need.memory_bytes)} per run"
    if available < need.memory_bytes:
        return Finding(MISSING, "memory", text, f"{SMALLER}, or add memory")
    return Finding(OK, "memory", text)


def disk(free: int, need: Need | None) -> Finding:
    """Compare the free disk space in bytes with the needs of a build and all runs together."""
    wanted = BUILD_DISK_BYTES + (need.disk_bytes if need else 0)
    what = f"a build and {need.name} need" if need else "a build needs"
    text = f"{format_bytes(free)} free; {what} about {format_bytes(wanted)}"
    if free < wanted:
        return Finding(MISSING, "disk", text, "make clean-build, fewer NETWORKS, or another disk")
    return Finding(OK, "disk", text)
