"""Check whether this machine can build Tor and run an experiment.

A finding has the status ``ok``, ``warn`` (the experiment can run, but the user should read the
note) or ``missing`` (the experiment cannot run). A finding includes a fix if a fix is known.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from onionlab.engines import ENGINES
from onionlab.engines.examination import (
    MISSING,
    OK,
    SMALLER,
    WARN,
    Finding,
    Need,
    Question,
    format_bytes,
)
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.tor.build_trees import find_toolchain
from onionlab.programs.tor.variants import STOCK, load_registry
from onionlab.runs.costs.estimate import available_memory_bytes

BUILD_DISK_BYTES = 1500 * 2**20
"""The disk space for a build of Tor with its source and all build trees (measured: 0.9 GB)."""

PYTHON_MINIMUM, PYTHON_MAXIMUM = (3, 11), (3, 13)

# Program, or name of a library in pkg-config -> Debian package with this program or library.
BUILD_PROGRAMS = {
    "autoconf": "autoconf",
    "automake": "automake",
    "make": "make",
    "patch": "patch",
    "pkg-config": "pkg-config",
}
BUILD_LIBRARIES = {"libevent": "libevent-dev", "openssl": "libssl-dev", "zlib": "zlib1g-dev"}


def examine(question: Question) -> Iterator[Finding]:
    """Yield all findings, in the order of the steps to set up a new machine."""
    yield python_version(sys.version_info[:2])
    yield python_packages(question.root / "requirements.lock")
    yield from build_tools()
    yield tor_builds(question.root)
    for name, kind in ENGINES.items():
        yield from kind.examine(question, needed=name == question.engine)
    yield cpus(len(os.sched_getaffinity(0)))
    yield memory(available_memory_bytes(), question.need)
    yield disk(shutil.disk_usage(question.root).free, question.need)


def python_version(version: tuple[int, ...]) -> Finding:
    """Check whether the project supports this Python version. version: major and minor number."""
    text = ".".join(str(part) for part in version)
    if PYTHON_MINIMUM <= version <= PYTHON_MAXIMUM:
        return Finding(OK, "Python", text)
    return Finding(
        MISSING,
        "Python",
        f"{text} is not supported; use 3.11 to 3.13",
        "make setup PYTHON=/path/to/python3.12",
    )


def python_packages(lock: Path) -> Finding:
    """Check that all packages in the lock file are installed, each in the version given there."""
    wanted = dict(
        re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock.read_text("utf-8"), re.MULTILINE)
    )
    wrong = []
    for name, version in wanted.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "missing"
        if found != version:
            wrong.append(f"{name} {found}, not {version}")
    if not wrong:
        return Finding(OK, "Python packages", f"all {len(wanted)} as in {lock.name}")
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return Finding(MISSING, "Python packages", wrong[0] + more, "make setup")


def build_tools() -> Iterator[Finding]:
    """Check the compiler, the programs and the libraries that Tor's build needs."""
    try:
        toolchain = find_toolchain()
        yield Finding(OK, "C compiler", toolchain.description["compiler"])
    except UserError as error:
        yield Finding(MISSING, "C compiler", error.message, "make setup")
    absent = [package for name, package in BUILD_PROGRAMS.items() if shutil.which(name) is None]
    if "pkg-config" not in absent:
        absent += [
            package
            for module, package in BUILD_LIBRARIES.items()
            if subprocess.run(["pkg-config", "--exists", module], check=False).returncode != 0
        ]
    what = ", ".join([*BUILD_PROGRAMS, *BUILD_LIBRARIES])
    if absent:
        text = f"not installed: {' '.join(absent)}"
        fix = f"make setup, or: apt-get install {' '.join(absent)}"
        yield Finding(MISSING, "Tor's build needs", text, fix)
    else:
        yield Finding(OK, "Tor's build needs", what)


def tor_builds(root: Path) -> Finding:
    """Report which of the builds of `make build` are missing.

    Whether an existing build is up to date is not checked.
    """
    try:
        variants = load_registry(root).variants.values()
        wanted = list(
            dict.fromkeys(
                [STOCK, *(one.series for one in variants if one.series and not one.source)]
            )
        )
    except UserError as error:
        fix = error.hint or "correct or restore what this message names"
        return Finding(MISSING, "Tor builds", error.message, fix)
    absent = [
        name
        for name in wanted
        if not (build_directory(root) / "tor" / name / "bin" / f"tor-{name}").is_file()
    ]
    if absent:
        text = f"not built yet: {', '.join(absent)}"
        return Finding(
            WARN, "Tor builds", text, "make build (or run an experiment, which builds them)"
        )
    return Finding(OK, "Tor builds", ", ".join(wanted))


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
