"""Check Python, its packages, and the tools that build Tor."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from onionlab.engines.examination import MISSING, OK, WARN, Finding
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.tor.build_trees import find_toolchain
from onionlab.programs.tor.variants import STOCK, load_registry

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
