"""Find Shadow, TGen, OnionTrace and shared libraries on this machine, and their versions.

Debian has no packages of these three programs. Errors therefore state not only the missing program
and the required version, but also the page with installation instructions.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from onionlab.errors import UserError
from onionlab.programs.building import file_sha256

PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Tool:
    """A program found on this machine.

    path, sha256: absolute path and SHA-256 of the executable. version: its release, e.g. ``3.3.0``.
    commit: abbreviated commit that it was built from (``f1b2cacf2``, with ``-dirty`` for a changed
    tree); None if the program does not report it, for example for a tagged release.
    """

    path: Path
    version: str
    commit: str | None
    sha256: str


@dataclass(frozen=True)
class Program:
    """The static properties of a program that this harness runs.

    Attributes:
        name: Its executable.
        title: Its name in messages.
        variable: The environment variable that can name its path.
        minimum: The minimum supported version.
        documentation: The page with installation instructions.
        probe_arguments: Arguments with which it prints its version.
        pattern: Matches the version and, if it is printed, the commit in the output.
        has_option: Whether a command-line option can also specify its path.
    """

    name: str
    title: str
    variable: str
    minimum: tuple[int, ...]
    documentation: str
    pattern: re.Pattern[str]
    probe_arguments: tuple[str, ...] = ()
    has_option: bool = True

    @property
    def minimum_text(self) -> str:
        """The minimum supported version, e.g. ``3.0.0``."""
        return ".".join(str(part) for part in self.minimum)


_VERSION = r"(?P<version>\d+(?:\.\d+)+)"
SHADOW = Program(
    name="shadow",
    title="Shadow",
    variable="SHADOW",
    minimum=(3, 0, 0),
    documentation="https://shadow.github.io/docs/guide/install_shadow.html",
    # For example: Shadow 3.3.0 — v3.3.0-199-gf1b2cacf2 2026-08-19--09:03:14
    pattern=re.compile(
        rf"^Shadow {_VERSION}(?:.*-g(?P<commit>[0-9a-f]{{7,40}}(?:-dirty)?)\b)?", re.MULTILINE
    ),
    probe_arguments=("--version",),
)
# TGen and OnionTrace have no version option. Without arguments they print their version and usage.
TGEN = Program(
    name="tgen",
    title="TGen",
    variable="TGEN",
    minimum=(1, 1, 2),
    documentation="https://github.com/shadow/tgen",
    pattern=re.compile(rf"Initializing TGen v{_VERSION}(?:-\d+-g(?P<commit>[0-9a-f]{{7,40}}))?"),
)
ONIONTRACE = Program(
    name="oniontrace",
    title="OnionTrace",
    variable="ONIONTRACE",
    minimum=(1, 0, 0),
    documentation="https://github.com/shadow/oniontrace",
    pattern=re.compile(rf"Starting OnionTrace v{_VERSION}"),
    has_option=False,
)


def find_tool(program: Program, explicit: str | None = None) -> Tool:
    """Find a program, and ask it for its version.

    ``explicit`` is the path of the program. If it is not given, the path is the value of the
    program's environment variable. If this is not set either, search for the program on the PATH.
    Raises UserError if the program is missing, does not start, does not print its version, or is
    older than the minimum version, or if Shadow's path contains a space.
    """
    # `make SHADOW=` passes an empty value, which means that no path is given.
    path = _locate(program, explicit or os.environ.get(program.variable) or None)
    try:
        probe = subprocess.run(
            [path, *program.probe_arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"{program.title} at {path} does not start: {error}", _hint(program)
        ) from error
    match = program.pattern.search(probe.stdout)
    if match is None:
        said = probe.stdout.strip().splitlines()
        raise UserError(
            f"{path} does not answer like {program.title}: "
            + (said[0] if said else f"no output, exit status {probe.returncode}"),
            _hint(program),
        )
    version = match["version"]
    if tuple(int(part) for part in version.split(".")) < program.minimum:
        raise UserError(
            f"{program.title} {version} at {path} is too old: "
            f"{program.minimum_text} or newer is needed",
            _hint(program),
        )
    return Tool(path, version, match.groupdict().get("commit"), file_sha256(path))


# A line of ldd is "name => path (address)", or "path (address)" if the program names the library by
# its path. Lines without a path, such as the line of the vDSO, do not match.
_LOADED = re.compile(r"^\t(?:.* => )?(/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)


@functools.cache
def shared_libraries(program: Path) -> dict[str, str]:
    """Return the shared libraries that a program loads on this machine: file name -> SHA-256.

    A library determines how a program allocates memory and which system calls it makes, so another
    version of the library can change a simulation's results. The result is empty for a program that
    is not linked dynamically. Raises UserError if the program `ldd` is missing.
    """
    try:
        listed = subprocess.run(
            ["ldd", program], capture_output=True, text=True, errors="replace", check=False
        ).stdout
    except FileNotFoundError as error:
        raise UserError("the program `ldd` is missing", "apt-get install libc-bin") from error
    paths = [Path(found) for found in re.findall(_LOADED, listed)]
    return {path.name: file_sha256(path) for path in sorted(paths)}


def has_aes() -> bool:
    """Return whether the processor supports AES instructions.

    Without them OpenSSL chooses other ciphers, which changes the data that relays send. Other
    extensions that differ between processors (AVX2 and AVX-512, BMI, ADX and SHA) were also
    disabled in a test, but did not change a run.
    """
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found is not None and "aes" in found[1].split()


def _locate(program: Program, named: str | None) -> Path:
    found = shutil.which(named or program.name)
    if found is None:
        if named is None:
            message = f"{program.title} is not installed: no `{program.name}` on the PATH"
        elif Path(named).is_dir():
            message = f"{named} is a directory, not the program {program.title}"
        elif Path(named).exists():
            message = f"{named} is not executable"
        else:
            message = f"{program.title} not found at {named}"
        raise UserError(message, _hint(program))
    path = Path(found).absolute()
    if program is SHADOW and any(character.isspace() for character in str(path)):
        raise UserError(
            f"Shadow's path contains a space: {path}",
            "Shadow preloads libraries from its folder, which fails if there is a space in the "
            f"path. Install it elsewhere: {program.documentation}",
        )
    return path


def _hint(program: Program) -> str:
    return (
        f"{program.title} {program.minimum_text} or newer is needed. "
        f"How to install it: {program.documentation}\n"
        f"If it is installed elsewhere, specify the executable: {program.variable}=/path/to/"
        f"{program.name}"
        + (f" (make) or --{program.name} /path/to/{program.name}." if program.has_option else "")
    )
