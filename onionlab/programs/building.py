"""What the builds of other people's programs share: locks, work directories, commands, patches.

A build is made in a directory of its own and put in place by one rename, so a killed build leaves
nothing that could be taken for a whole one. Whatever a compiler says goes to a log.
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

SIGN_OF_LIFE_S = 20.0
HALT_S = 0.5
LOG_LINES_SHOWN = 15
RECORD = "built.json"

_PLAIN_PATH = re.compile(r"[\w./+,@-]+")


First = TypeVar("First")
Second = TypeVar("Second")

_halt: ContextVar[threading.Event | None] = ContextVar("_halt", default=None)
"""Set where another thread has no use for this one's build any more."""


_only_finished: ContextVar[bool] = ContextVar("_only_finished", default=False)
"""Set where builds that are finished may be used, and none may be made."""


class _HaltedError(Exception):
    """This build was given up because the one beside it failed."""


class NotBuiltError(UserError):
    """Something would have to be fetched or built, where nothing is to be."""


@contextlib.contextmanager
def only_what_is_built() -> Iterator[None]:
    """While the block lasts nothing is fetched and nothing compiled: NotBuiltError instead."""
    before = _only_finished.set(True)
    try:
        yield
    finally:
        _only_finished.reset(before)


def require_leave_to_build(lacking: str) -> None:
    """Raises NotBuiltError, with what is lacking, where nothing is to be fetched or built."""
    if _only_finished.get():
        raise NotBuiltError(lacking)


class Workshop(Protocol):
    """Where something is built, and who hears of it."""

    @property
    def directory(self) -> Path:
        """Holds work directories, logs and results."""

    @property
    def say(self) -> Callable[[str], None]:
        """Receives progress, a line at a time."""


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def build_lock(directory: Path, what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time build ``what`` in ``directory``; the second one waits.

    Nothing is locked or written where only finished builds may be used: each of them appears whole.
    """
    if _only_finished.get():
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


def work_directory(workshop: Workshop) -> contextlib.AbstractContextManager[Path]:
    """Return a scratch folder for one step, on the file system where its result belongs."""
    # By its real path: compilers record the path, and are told to leave it out.
    return scratch_folder(workshop.directory.resolve(), ".work-")


@contextlib.contextmanager
def building_directory(workshop: Workshop) -> Iterator[Path]:
    """A directory to compile in, likewise gone afterwards.

    Other people's makefiles know no path with a space, and some know fewer letters still: where the
    checkout lies at such a path, they work in the system's folder for temporary files.

    Raises:
        UserError: that folder is at such a path too, or nothing is to be built.
    """
    require_leave_to_build(f"{workshop.directory} does not hold all that this takes, built")
    if _PLAIN_PATH.fullmatch(str(workshop.directory.resolve())):
        with work_directory(workshop) as path:
            yield path
        return
    folder = Path(tempfile.gettempdir()).resolve()
    if not _PLAIN_PATH.fullmatch(str(folder)):
        raise UserError(
            f"nothing can be compiled below {workshop.directory}, nor below {folder}: their paths "
            "have letters that makefiles cannot take",
            "name another folder for temporary files: TMPDIR=/tmp make ...",
        )
    with scratch_folder(folder, "onionlab-build-") as path:
        yield path


def _until(halt: threading.Event, build: Callable[[], First]) -> First:
    _halt.set(halt)
    return build()


def at_once(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Make two builds side by side: each has parts that one CPU does alone.

    Where one fails, or this thread is interrupted, the other's program is ended, and the error is
    that of the one that failed.
    """
    halt = threading.Event()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # Each in a copy of this thread's context: a thread begins with an empty one.
        one = pool.submit(copy_context().run, _until, halt, first)
        other = pool.submit(copy_context().run, _until, halt, second)
        try:
            both: list[concurrent.futures.Future[Any]] = [one, other]
            concurrent.futures.wait(both, return_when=concurrent.futures.FIRST_EXCEPTION)
        finally:
            # Where both are done, there is nobody to hear it.
            halt.set()
    if isinstance(one.exception(), _HaltedError):
        other.result()
    return one.result(), other.result()


# Running the build's programs


def apply_patch(tree: Path, patch: Patch, origin: str, hint: str, *, fuzz: int = 0) -> None:
    """Apply one patch to ``tree``, the source that is called ``origin``.

    ``fuzz``: as for :func:`patch_problem`.

    Raises:
        UserError: It does not apply; the message names the patch, the file and the hunk.
    """
    problem = patch_problem(tree, patch, fuzz=fuzz)
    if problem is not None:
        name = f"{patch.path.parent.name}/{patch.path.name}"
        raise UserError(f"{name} does not apply to {origin}: {problem}", hint)


def patch_problem(tree: Path, patch: Patch, *, dry_run: bool = False, fuzz: int = 0) -> str | None:
    """Apply a patch, or only try it; return why it does not apply, or None if it does.

    Every line of a hunk's context has to match: with fewer, a hunk may land in the wrong one of
    several similar places.

    Args:
        tree: Where the source is.
        patch: The patch.
        dry_run: Whether to change nothing.
        fuzz: How many lines at each end of a hunk's context may differ.
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
            return f"{file or 'it'} has that change already"
    return output.strip().splitlines()[-1] if output.strip() else "patch failed without a word"


def first_line(*command: str) -> str:
    """The first line of what a command prints; empty where it fails or is missing."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, env=build_environment(), check=False
        )
    except OSError:
        return ""
    return result.stdout.partition("\n")[0].strip() if result.returncode == 0 else ""


def build_environment() -> dict[str, str]:
    """What the build's programs see of the environment.

    Flags for compilers and for make (also those of a make that called this program) would change
    the build without being part of its key.
    """
    kept = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME")
    kept_variables = {name: os.environ[name] for name in kept if name in os.environ}
    return {"LC_ALL": "C"} | kept_variables | cache_environment()


def intact_build(store: Path, program: str, *beside: str) -> dict[str, Any] | None:
    """The record of a finished build in ``store``, or None where none can be relied on.

    ``beside``: what else ``bin`` has to hold besides ``program``.
    """
    try:
        built: dict[str, Any] = json.loads((store / RECORD).read_text(encoding="utf-8"))
        intact = file_sha256(store / "bin" / program) == built["sha256"]
        intact = intact and all((store / "bin" / name).is_file() for name in beside)
        return built if intact and {"version", "source"} <= built.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_build(
    workshop: Workshop, store: Path, program: str, *beside: str
) -> dict[str, Any] | None:
    """Like :func:`intact_build`; a damaged build is removed. The caller holds the build's lock."""
    built = intact_build(store, program, *beside)
    if built is None and store.exists():
        workshop.say(f"{store} is damaged: building it again")
        shutil.rmtree(store)
    return built


def put_build(
    workshop: Workshop,
    work: Path,
    store: Path,
    programs: Mapping[str, Path],
    *,
    build_format: int,
    version: Callable[[Path], str],
    source: Mapping[str, Any],
) -> dict[str, Any]:
    """Put a finished build in place by one rename; returns its record.

    Args:
        workshop: Who hears of it.
        work: A directory of this build's own, on the file system of ``store``.
        store: Where it goes.
        programs: Name in ``bin`` -> what is copied there; the first is the build's own program.
        build_format: The builder's ``FORMAT``.
        version: Tells the version of the build's own program.
        source: What the build depends on, as JSON.
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
    workshop.say(f"{program}: done, SHA-256 {built['sha256']}")
    return built


def build_key_of(decisive: Mapping[str, Any]) -> str:
    """The name of a build on disk: a hash of all that decides what it holds."""
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def patched_copy(
    workshop: Workshop, base: Path, series: Iterable[Series], origin: str, hint: str
) -> Iterator[Path]:
    """A copy of the tree ``base`` with patches applied, in a work directory; gone afterwards.

    ``origin`` and ``hint``: as for :func:`apply_patch`.
    """
    with building_directory(workshop) as work:
        tree = work / "tree"
        # With time stamps (-a): make goes by them, and only what a patch touches is old.
        subprocess.run(["cp", "-a", base, tree], check=True)
        for one in series:
            for patch in one.patches:
                apply_patch(tree, patch, origin, hint)
        yield tree


def new_log(workshop: Workshop, name: str) -> Path:
    """An empty log under ``logs``, named after what it is about."""
    log = workshop.directory / "logs" / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("", encoding="utf-8")
    return log


def run_logged(
    workshop: Workshop,
    command: Sequence[str],
    directory: Path,
    log: Path,
    what: str,
    *,
    environment: dict[str, str] | None = None,
    may_fail: bool = False,
) -> int:
    """Run ``command`` with its output appended to ``log``; says now and then that it still runs.

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
            status = _wait(workshop, process, what, started)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if status != 0 and not may_fail:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = "\n".join("  " + line for line in lines[-LOG_LINES_SHOWN:])
        raise UserError(f"{what} failed (exit status {status})", f"{last}\nThe whole output: {log}")
    workshop.say(f"{what}: {time.monotonic() - started:.0f} s")
    return status


def _wait(workshop: Workshop, process: subprocess.Popen[bytes], what: str, started: float) -> int:
    halt = _halt.get()
    due = started + SIGN_OF_LIFE_S
    while True:
        try:
            return process.wait(timeout=min(HALT_S, SIGN_OF_LIFE_S))
        except subprocess.TimeoutExpired:
            if halt is not None and halt.is_set():
                raise _HaltedError from None
            if time.monotonic() >= due:
                workshop.say(f"{what}: still running after {time.monotonic() - started:.0f} s")
                due = time.monotonic() + SIGN_OF_LIFE_S


def unpack_tarball(path: Path, destination: Path, *, hint: str) -> None:
    """Unpack a source's tarball into ``destination``, without its top folder.

    Raises:
        UserError: The tarball is cut or damaged; with ``hint``.
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
        raise UserError(f"{path} is cut or damaged: {reason}", hint)
