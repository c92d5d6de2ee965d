"""Shared parts of builds of third-party programs: locks, work directories, commands, patches.

Each build runs in its own directory and is put in place by one rename, so a killed build is never
mistaken for a complete one. All compiler output goes to a log.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from analysis.formats.durable import put_in_place
from analysis.formats.scratch import scratch_folder
from onionlab.errors import UserError
from onionlab.locks import file_lock
from onionlab.paths import code_root
from onionlab.programs.compiler_cache import cache_environment
from onionlab.programs.patches import Patch, Series

LOG = logging.getLogger(__name__)
STATUS_INTERVAL_S = 20.0
POLL_INTERVAL_S = 0.5
LOG_LINES_SHOWN = 15
RECORD = "built.json"

_MACHINE_FAILED = re.compile(
    "No space left on device|Cannot allocate memory|virtual memory exhausted|Killed signal"
)
"""Text in a build's output that shows that the machine, not the source, made the build fail."""

_PLAIN_PATH = re.compile(r"[\w./+,@-]+")

First = TypeVar("First")
Second = TypeVar("Second")

_builds_allowed = True
_cancelled = threading.Event()
"""Set by `run_concurrently` to end builds that still run: `_wait` checks it regularly."""


class _CancelledError(Exception):
    """A build was cancelled, because the concurrent build failed or the user interrupted both."""


class BuildFailedError(UserError):
    """Raised if a compiler, or another program of a build, rejects the source."""


class NotBuiltError(UserError):
    """Raised if something has to be fetched or built, but builds are not allowed."""


@dataclass(frozen=True)
class BuiltProgram:
    """A program of a run, as manifests record it.

    version: the version that it reports, e.g. ``0.4.9.11``. sha256: SHA-256 of the executable.
    source: provenance (source, patches, compiler, options) as JSON.
    """

    path: Path
    version: str
    sha256: str
    source: dict[str, Any]


@contextlib.contextmanager
def no_builds() -> Iterator[None]:
    """Raise NotBuiltError instead of fetching or compiling anything while the block runs."""
    global _builds_allowed
    before, _builds_allowed = _builds_allowed, False
    try:
        yield
    finally:
        _builds_allowed = before


def ensure_building_allowed(lacking: str) -> None:
    """Raise NotBuiltError with the message ``lacking`` if fetching and building are not allowed."""
    if not _builds_allowed:
        raise NotBuiltError(lacking)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def build_lock(directory: Path, what: str) -> Iterator[None]:
    """Hold the lock for building ``what`` in ``directory``; wait if another process holds it.

    If builds are not allowed, take no lock. To use a finished build, no lock is needed, because a
    rename has put the build in place.
    """
    if not _builds_allowed:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    message = f"waiting for another build of {what} in this checkout"
    with file_lock(directory / ".lock", lambda: LOG.info(message)):
        yield


def work_directory(directory: Path) -> contextlib.AbstractContextManager[Path]:
    """Return a scratch folder for one step of a build, on the file system of ``directory``."""
    # Use the resolved path because compilers embed it and -ffile-prefix-map has to match it.
    return scratch_folder(directory.resolve(), ".work-")


@contextlib.contextmanager
def building_directory(directory: Path) -> Iterator[Path]:
    """Yield a directory to compile in and remove it afterwards.

    Makefiles of third-party programs do not support paths with spaces, and some support even fewer
    characters. If ``directory`` has such a path, use the system's folder for temporary files.
    Raises UserError if this folder's path is also unsuitable, or building is not allowed.
    """
    ensure_building_allowed(f"{directory} does not contain all builds that are needed")
    if _PLAIN_PATH.fullmatch(str(directory.resolve())):
        with work_directory(directory) as path:
            yield path
        return
    folder = Path(tempfile.gettempdir()).resolve()
    if not _PLAIN_PATH.fullmatch(str(folder)):
        raise UserError(
            f"cannot compile below {directory} or {folder}: their paths contain characters that "
            "makefiles do not support",
            "use another folder for temporary files: TMPDIR=/tmp make ...",
        )
    with scratch_folder(folder, "onionlab-build-") as path:
        yield path


def run_concurrently(
    first: Callable[[], First], second: Callable[[], Second]
) -> tuple[First, Second]:
    """Run two builds concurrently, because some build steps use only one CPU. Return the results.

    If a build fails, the running program of the other build is terminated, and the error of the
    failed build is raised. If this thread is interrupted, both programs are terminated.
    """
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            one, other = pool.submit(first), pool.submit(second)
            try:
                both: list[concurrent.futures.Future[Any]] = [one, other]
                concurrent.futures.wait(both, return_when=concurrent.futures.FIRST_EXCEPTION)
            finally:
                _cancelled.set()
    finally:
        _cancelled.clear()
    if isinstance(one.exception(), _CancelledError):
        other.result()
    return one.result(), other.result()


# Running the build's programs


def apply_patch(tree: Path, patch: Patch, origin: str, hint: str, *, fuzz: int = 0) -> None:
    """Apply one patch to ``tree``, the source with the name ``origin``, as `patch_problem` does.

    Raises UserError if it does not apply; the message names the patch, the file and the hunk.
    """
    problem = patch_problem(tree, patch, fuzz=fuzz)
    if problem is not None:
        name = f"{patch.path.parent.name}/{patch.path.name}"
        raise UserError(f"{name} does not apply to {origin}: {problem}", hint)


def patch_problem(tree: Path, patch: Patch, *, dry_run: bool = False, fuzz: int = 0) -> str | None:
    """Apply a patch, or only test whether it applies. Return why it does not apply, or None.

    By default every context line of a hunk has to match. Otherwise a hunk could be applied to
    another place of the file that is similar to the intended place.

    dry_run: whether to change nothing. fuzz: the number of lines at each end of a hunk's context
    that may differ. Raises UserError if the program `patch` is missing.
    """
    command = ["patch", "-p1", "--batch", "--forward", f"--fuzz={fuzz}", "--no-backup-if-mismatch"]
    command += ["--reject-file=-", f"--directory={tree}", *(["--dry-run"] if dry_run else [])]
    try:
        result = subprocess.run(
            command, input=patch.content, capture_output=True, env=build_environment(), check=False
        )
    except FileNotFoundError as error:
        raise UserError("the program `patch` is missing", "`make setup` installs it.") from error
    if result.returncode == 0:
        return None
    output = (result.stdout + result.stderr).decode(errors="replace")
    # Select the lines that name the file and the error, for example "patching file
    # src/app/main.c" and "Hunk #1 FAILED at 12.".
    lines = [
        line.strip().removeprefix("|")
        for line in output.splitlines()
        if re.match(r"(check|patch)ing file|Hunk #\d+ FAILED|can't find|The next|\|\+\+\+ ", line)
        or "previously applied" in line
    ]
    # Report the first error and its file. The line before an error names the file. For the error
    # "can't find file", the next line names it.
    first = next((n for n, one in enumerate(lines) if not re.match("(check|patch)ing", one)), 0)
    if first and not lines[first].startswith("can't find"):
        first -= 1
    return "; ".join(lines[first : first + 2]) or "patch failed without output"


def first_line(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the first line of a command's output, or an empty string if it fails or is missing.

    environment: by default that of builds.
    """
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment or build_environment(),
            check=False,
        )
    except OSError:
        return ""
    return result.stdout.partition("\n")[0].strip() if result.returncode == 0 else ""


def install_packages(name: str) -> None:
    """Install the Debian packages of ``configs/apt-packages-NAME.txt`` that are missing.

    Raises UserError if they cannot be installed.
    """
    script = code_root() / "onionlab" / "setup.sh"
    # Standard output is not captured: the script may ask for a password on the terminal.
    done = subprocess.run(
        [script, f"configs/apt-packages-{name}.txt"],
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said, _, error = done.stderr.rpartition("error: ")
        message, _, hint = error.strip().partition("\n")
        aside = "".join(f"{line}\n" for line in re.findall(r"^[EW]: .*", said, re.MULTILINE))
        raise UserError(message or f"{script.name} failed", aside + hint)


def build_environment() -> dict[str, str]:
    """Return the environment for programs of a build.

    It omits flags for compilers and for make, including flags of a make that called this program.
    Such flags would change the build, but not the hash that is the build's name.
    """
    kept = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME")
    kept_variables = {name: os.environ[name] for name in kept if name in os.environ}
    return {"LC_ALL": "C"} | kept_variables | cache_environment()


def intact_build(store: Path, program: str, *companions: str) -> BuiltProgram | None:
    """Return the finished build in ``store``, or None if there is no intact one.

    ``companions``: other files that ``bin`` has to contain.
    """
    path = store / "bin" / program
    try:
        record = json.loads((store / RECORD).read_text(encoding="utf-8"))
        built = BuiltProgram(path, record["version"], record["sha256"], record["source"])
        intact = file_sha256(path) == built.sha256
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return built if intact and all(path.with_name(one).is_file() for one in companions) else None


def read_build(store: Path, program: str, *companions: str) -> BuiltProgram | None:
    """Return the same as :func:`intact_build`, but remove a damaged build.

    The caller holds the build lock.
    """
    built = intact_build(store, program, *companions)
    if built is None and store.exists():
        LOG.info("%s is damaged: rebuilding it", store)
        shutil.rmtree(store)
    return built


def put_build(
    work: Path,
    store: Path,
    programs: Mapping[str, Path],
    *,
    build_format: int,
    version: Callable[[Path], str],
    source: Mapping[str, Any],
) -> BuiltProgram:
    """Put a finished build in place by one rename. Return its record.

    Args:
        work: The private directory of this build.
        store: The destination.
        programs: Name in ``bin`` -> file to copy there; the first is the build's main program.
        build_format: The builder's ``FORMAT``.
        version: A function that returns the version of the main program.
        source: Everything that the build depends on, as JSON.
    """
    staged = work / "staged"
    (staged / "bin").mkdir(parents=True)
    for name, compiled in programs.items():
        shutil.copy2(compiled, staged / "bin" / name)
    program = next(iter(programs))
    compiled = staged / "bin" / program
    built = BuiltProgram(
        store / "bin" / program, version(compiled), file_sha256(compiled), dict(source)
    )
    record = {name: value for name, value in vars(built).items() if name != "path"}
    text = json.dumps({"format": build_format, **record}, indent=2, sort_keys=True) + "\n"
    (staged / RECORD).write_text(text, encoding="utf-8")
    store.parent.mkdir(exist_ok=True)
    put_in_place(staged, store)
    LOG.info("%s: done, SHA-256 %s", program, built.sha256)
    return built


def is_linked(link: Path, target: Path) -> bool:
    """Return whether ``link`` is a link to ``target``, a path relative to the link's folder."""
    return link.is_symlink() and link.readlink() == target


def link_build(link: Path, target: Path) -> None:
    """Make ``link`` a link to ``target``, a path relative to the link's folder, by one rename."""
    if not is_linked(link, target):
        with work_directory(link.parent) as work:
            (work / link.name).symlink_to(target)
            (work / link.name).replace(link)


def hash_inputs(decisive: Mapping[str, Any]) -> str:
    """Return the name of a build on disk: a hash of everything that determines its content."""
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def patched_copy(
    directory: Path, base: Path, series: Iterable[Series], origin: str, hint: str
) -> Iterator[Path]:
    """Copy the tree ``base``, apply patches, yield the copy and remove it afterwards.

    ``directory``: see :func:`building_directory`; ``origin`` and ``hint``: see :func:`apply_patch`.
    """
    with building_directory(directory) as work:
        tree = work / "tree"
        # Keep time stamps (-a): make compares them, so it recompiles only files that a patch
        # changes.
        subprocess.run(["cp", "-a", base, tree], check=True)
        for one in series:
            for patch in one.patches:
                apply_patch(tree, patch, origin, hint)
        yield tree


def new_log(directory: Path, name: str) -> Path:
    """Create an empty log below ``directory / "logs"``, named after the build step."""
    log = directory / "logs" / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("", encoding="utf-8")
    return log


def run_logged(
    command: Sequence[str],
    directory: Path,
    log: Path,
    what: str,
    *,
    environment: dict[str, str] | None = None,
    may_fail: bool = False,
) -> int:
    """Run ``command`` with its output appended to ``log`` and report regularly that it is running.

    Return the exit status. Raises UserError if the program is missing. Unless ``may_fail``, raises
    UserError if a signal ended the program or the machine lacks memory or disk space, and
    BuildFailedError if the program failed for another reason.
    """
    started_s = time.monotonic()
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"$ {' '.join(command)}\n")
        stream.flush()
        try:
            process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=build_environment() | (environment or {}),
            )
        except FileNotFoundError as error:
            raise UserError(
                f"the program `{command[0]}` is missing", "`make setup` installs it."
            ) from error
        try:
            status = _wait(process, what, started_s)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if status != 0 and not may_fail:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = "\n".join("  " + line for line in lines[-LOG_LINES_SHOWN:])
        rejected = status > 0 and not _MACHINE_FAILED.search("\n".join(lines))
        failed = BuildFailedError if rejected else UserError
        raise failed(f"{what} failed (exit status {status})", f"{last}\nFull output: {log}")
    LOG.info("%s: %.0f s", what, time.monotonic() - started_s)
    return status


def _wait(process: subprocess.Popen[bytes], what: str, started_s: float) -> int:
    reported_s = started_s
    while True:
        try:
            return process.wait(min(POLL_INTERVAL_S, STATUS_INTERVAL_S))
        except subprocess.TimeoutExpired:
            if _cancelled.is_set():
                raise _CancelledError from None
            if time.monotonic() >= reported_s + STATUS_INTERVAL_S:
                reported_s = time.monotonic()
                LOG.info("%s: still running after %.0f s", what, reported_s - started_s)
