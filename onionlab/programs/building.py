"""Shared parts of builds of third-party programs: locks, work directories, commands, patches.

Each build runs in its own directory and is put in place by one rename, so a killed build is never
mistaken for a complete one. All compiler output goes to a log.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from analysis.formats.durable import put_in_place
from analysis.formats.scratch import scratch_folder
from onionlab.errors import UserError
from onionlab.programs.compiler_cache import cache_environment
from onionlab.programs.patches import Patch, Series

STATUS_INTERVAL_S = 20.0
POLL_INTERVAL_S = 0.5
LOG_LINES_SHOWN = 15
RECORD = "built.json"

_PLAIN_PATH = re.compile(r"[\w./+,@-]+")


First = TypeVar("First")
Second = TypeVar("Second")

_halt: ContextVar[threading.Event | None] = ContextVar("_halt", default=None)
"""Set when another thread no longer needs this thread's build."""


_builds_forbidden: ContextVar[bool] = ContextVar("_builds_forbidden", default=False)
"""True if finished builds may be used but nothing may be built."""


class _HaltedError(Exception):
    """This build was cancelled because the concurrent one failed."""


class NotBuiltError(UserError):
    """Something would have to be fetched or built although builds are not allowed."""


@contextlib.contextmanager
def no_builds() -> Iterator[None]:
    """Raise NotBuiltError instead of fetching or compiling anything while the block runs."""
    before = _builds_forbidden.set(True)
    try:
        yield
    finally:
        _builds_forbidden.reset(before)


def ensure_building_allowed(lacking: str) -> None:
    """Raise NotBuiltError with the message ``lacking`` if fetching and building are not allowed."""
    if _builds_forbidden.get():
        raise NotBuiltError(lacking)


class BuildContext(Protocol):
    """The directory of a build and the receiver of its progress messages."""

    @property
    def directory(self) -> Path:
        """The parent of work directories, logs and results."""

    @property
    def say(self) -> Callable[[str], None]:
        """A function that receives progress, a line at a time."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def build_lock(directory: Path, what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock for building ``what`` in ``directory``; wait if another process holds it.

    Do nothing if only finished builds may be used: each of them appears atomically.
    """
    if _builds_forbidden.get():
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("a", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build of {what} in this checkout")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def work_directory(context: BuildContext) -> contextlib.AbstractContextManager[Path]:
    """Return a scratch folder for one step, on the file system where its result belongs."""
    # Use the resolved path because compilers embed it and -ffile-prefix-map has to match it.
    return scratch_folder(context.directory.resolve(), ".work-")


@contextlib.contextmanager
def building_directory(context: BuildContext) -> Iterator[Path]:
    """Yield a directory to compile in and remove it afterwards.

    Makefiles of third-party programs do not support paths with spaces, and some support even fewer
    characters. If the checkout has such a path, use the system's folder for temporary files.

    Raises:
        UserError: The path of that folder is unsuitable too, or building is not allowed.
    """
    ensure_building_allowed(f"{context.directory} does not contain all builds that are needed")
    if _PLAIN_PATH.fullmatch(str(context.directory.resolve())):
        with work_directory(context) as path:
            yield path
        return
    folder = Path(tempfile.gettempdir()).resolve()
    if not _PLAIN_PATH.fullmatch(str(folder)):
        raise UserError(
            f"cannot compile below {context.directory} or {folder}: their paths contain characters "
            "that makefiles do not support",
            "use another folder for temporary files: TMPDIR=/tmp make ...",
        )
    with scratch_folder(folder, "onionlab-build-") as path:
        yield path


def _run_cancellable(halt: threading.Event, build: Callable[[], First]) -> First:
    _halt.set(halt)
    return build()


def run_concurrently(
    first: Callable[[], First], second: Callable[[], Second]
) -> tuple[First, Second]:
    """Run two builds concurrently, because parts of each use a single CPU.

    If one fails or this thread is interrupted, the other's program is terminated. The error is that
    of the build that failed.
    """
    halt = threading.Event()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # Run each in a copy of this thread's context, because a thread starts with an empty one.
        one = pool.submit(copy_context().run, _run_cancellable, halt, first)
        other = pool.submit(copy_context().run, _run_cancellable, halt, second)
        try:
            both: list[concurrent.futures.Future[Any]] = [one, other]
            concurrent.futures.wait(both, return_when=concurrent.futures.FIRST_EXCEPTION)
        finally:
            # This has no effect if both are done.
            halt.set()
    if isinstance(one.exception(), _HaltedError):
        other.result()
    return one.result(), other.result()


# Running the build's programs


def apply_patch(tree: Path, patch: Patch, origin: str, hint: str, *, fuzz: int = 0) -> None:
    """Apply one patch to ``tree``, the source with the name ``origin``.

    ``fuzz``: see :func:`patch_problem`.

    Raises:
        UserError: It does not apply; the message names the patch, the file and the hunk.
    """
    problem = patch_problem(tree, patch, fuzz=fuzz)
    if problem is not None:
        name = f"{patch.path.parent.name}/{patch.path.name}"
        raise UserError(f"{name} does not apply to {origin}: {problem}", hint)


def patch_problem(tree: Path, patch: Patch, *, dry_run: bool = False, fuzz: int = 0) -> str | None:
    """Apply a patch, or only try to. Return why it does not apply, or None if it does.

    By default every context line of a hunk has to match; otherwise a hunk could be applied to the
    wrong one of several similar places.

    Args:
        tree: The source tree.
        patch: The patch.
        dry_run: Change nothing.
        fuzz: The number of lines at each end of a hunk's context that may differ.
    """
    arguments = ["patch", "-p1", "--batch", "--forward", f"--fuzz={fuzz}"]
    arguments += ["--no-backup-if-mismatch"]
    arguments += ["--reject-file=-", f"--directory={tree}", *(["--dry-run"] if dry_run else [])]
    try:
        result = subprocess.run(
            arguments,
            input=patch.content,
            capture_output=True,
            env=build_environment(),
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("the program `patch` is missing", "`make setup` installs it.") from error
    if result.returncode == 0:
        return None
    return _patch_failure((result.stdout + result.stderr).decode(errors="replace"))


def _patch_failure(output: str) -> str:
    file = None
    for line in output.splitlines():
        if match := re.match(r"(?:checking|patching) file (.+)", line):
            file = match[1]
        elif match := re.match(r"Hunk #(\d+) FAILED at (\d+)", line):
            return f"hunk {match[1]} of {file}, at line {match[2]}"
        elif line.startswith("can't find file to patch"):
            named = re.search(r"^\|\+\+\+ (?:b/)?(\S+)", output, re.MULTILINE)
            return f"there is no {named[1] if named else 'such file'} to patch"
        elif "previously applied" in line or line.startswith("The next patch would create"):
            return f"{file or 'it'} already has this change"
    return output.strip().splitlines()[-1] if output.strip() else "patch failed without output"


def first_line(*command: str) -> str:
    """Return the first line of a command's output, or an empty string if it fails or is missing."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, env=build_environment(), check=False
        )
    except OSError:
        return ""
    return result.stdout.partition("\n")[0].strip() if result.returncode == 0 else ""


def build_environment() -> dict[str, str]:
    """Return the environment for programs of a build.

    Flags for compilers and for make (including those of a make that called this program) would
    change the build without being part of its key.
    """
    kept = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME")
    kept_variables = {name: os.environ[name] for name in kept if name in os.environ}
    return {"LC_ALL": "C"} | kept_variables | cache_environment()


def intact_build(store: Path, program: str, *companions: str) -> dict[str, Any] | None:
    """Return the record of a finished build in ``store``, or None if there is no intact one.

    ``companions``: other files that ``bin`` has to contain.
    """
    try:
        built: dict[str, Any] = json.loads((store / RECORD).read_text(encoding="utf-8"))
        intact = file_sha256(store / "bin" / program) == built["sha256"]
        intact = intact and all((store / "bin" / name).is_file() for name in companions)
        return built if intact and {"version", "source"} <= built.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_build(
    context: BuildContext, store: Path, program: str, *companions: str
) -> dict[str, Any] | None:
    """Return the same as :func:`intact_build`, but remove a damaged build.

    The caller holds the build lock.
    """
    built = intact_build(store, program, *companions)
    if built is None and store.exists():
        context.say(f"{store} is damaged: rebuilding it")
        shutil.rmtree(store)
    return built


def put_build(
    context: BuildContext,
    work: Path,
    store: Path,
    programs: Mapping[str, Path],
    *,
    build_format: int,
    version: Callable[[Path], str],
    source: Mapping[str, Any],
) -> dict[str, Any]:
    """Put a finished build in place by one rename. Return its record.

    Args:
        context: The context of the build.
        work: The private directory of this build, on the file system of ``store``.
        store: The destination.
        programs: Name in ``bin`` -> file to copy there; the first is the build's main program.
        build_format: The builder's ``FORMAT``.
        version: Returns the version of the main program.
        source: Everything that the build depends on, as JSON.
    """
    staged = work / "staged"
    (staged / "bin").mkdir(parents=True)
    for name, compiled in programs.items():
        shutil.copy2(compiled, staged / "bin" / name)
    program = next(iter(programs))
    built = {
        "format": build_format,
        "sha256": file_sha256(staged / "bin" / program),
        "version": version(staged / "bin" / program),
        "source": dict(source),
    }
    record = json.dumps(built, indent=2, sort_keys=True) + "\n"
    (staged / RECORD).write_text(record, encoding="utf-8")
    store.parent.mkdir(exist_ok=True)
    put_in_place(staged, store)
    context.say(f"{program}: done, SHA-256 {built['sha256']}")
    return built


def hash_inputs(decisive: Mapping[str, Any]) -> str:
    """Return the name of a build on disk: a hash of everything that determines its content."""
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def patched_copy(
    context: BuildContext, base: Path, series: Iterable[Series], origin: str, hint: str
) -> Iterator[Path]:
    """Copy the tree ``base``, apply patches, yield the copy and remove it afterwards.

    ``origin`` and ``hint``: see :func:`apply_patch`.
    """
    with building_directory(context) as work:
        tree = work / "tree"
        # Keep time stamps (-a): make compares them, so it recompiles only files that a patch
        # changes.
        subprocess.run(["cp", "-a", base, tree], check=True)
        for one in series:
            for patch in one.patches:
                apply_patch(tree, patch, origin, hint)
        yield tree


def new_log(context: BuildContext, name: str) -> Path:
    """Create an empty log under ``logs``, named after the build step."""
    log = context.directory / "logs" / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("", encoding="utf-8")
    return log


def run_logged(
    context: BuildContext,
    command: Sequence[str],
    directory: Path,
    log: Path,
    what: str,
    *,
    environment: dict[str, str] | None = None,
    may_fail: bool = False,
) -> int:
    """Run ``command`` with its output appended to ``log`` and report regularly that it is running.

    Returns:
        The exit status.

    Raises:
        UserError: The program is missing, or it failed and ``may_fail`` is not set.
    """
    started = time.monotonic()
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
            status = _wait(context, process, what, started)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if status != 0 and not may_fail:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = "\n".join("  " + line for line in lines[-LOG_LINES_SHOWN:])
        raise UserError(f"{what} failed (exit status {status})", f"{last}\nFull output: {log}")
    context.say(f"{what}: {time.monotonic() - started:.0f} s")
    return status


def _wait(
    context: BuildContext, process: subprocess.Popen[bytes], what: str, started: float
) -> int:
    halt = _halt.get()
    due = started + STATUS_INTERVAL_S
    while True:
        try:
            return process.wait(timeout=min(POLL_INTERVAL_S, STATUS_INTERVAL_S))
        except subprocess.TimeoutExpired:
            if halt is not None and halt.is_set():
                raise _HaltedError from None
            if time.monotonic() >= due:
                context.say(f"{what}: still running after {time.monotonic() - started:.0f} s")
                due = time.monotonic() + STATUS_INTERVAL_S


def unpack_tarball(path: Path, destination: Path, *, hint: str) -> None:
    """Unpack a source tarball into ``destination`` without its top-level folder.

    Raises:
        UserError: The tarball is truncated or damaged; with ``hint``.
    """
    result = subprocess.run(
        ["tar", "-xf", path, "-C", destination, "--strip-components=1"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["tar failed"])[0]
        raise UserError(f"{path} is truncated or damaged: {reason}", hint)
