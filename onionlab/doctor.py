"""What this machine has and lacks for building Tor and for running an experiment.

A finding is ``ok``, ``warn`` (it runs, but read this first) or ``missing`` (it cannot run), and
says how to mend it. Limits follow Shadow's documentation, where the links lead.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onionlab.engines.uml.bootcheck import memory_directory
from onionlab.engines.uml.kernel import BUILD_PROGRAMS as KERNEL_PROGRAMS
from onionlab.engines.uml.kernel import check_machine, find_kernel, missing_programs
from onionlab.engines.uml.kernel_source import (
    ENVIRONMENT_VARIABLE,
    choose_package,
    offered_packages,
)
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.apt import offered_by_system
from onionlab.programs.installed import SHADOW, TGEN, Program, find_tool
from onionlab.programs.tor.build import find_toolchain
from onionlab.programs.tor.variants import STOCK, load_registry

__all__ = ["MISSING", "OK", "WARN", "Finding", "Need", "Question", "examine"]

OK = "ok"
WARN = "warn"
MISSING = "missing"

GUIDE = "https://shadow.github.io/docs/guide"
SYSTEM_CONFIGURATION = f"{GUIDE}/system_configuration.html"
SUPPORTED_PLATFORMS = f"{GUIDE}/supported_platforms.html"

PYTHON_MINIMUM, PYTHON_MAXIMUM = (3, 11), (3, 13)
KERNEL_MINIMUM = (5, 10)  # Shadow's supported_platforms.md

# Program or pkg-config module -> Debian package.
BUILD_PROGRAMS = {
    "autoconf": "autoconf",
    "automake": "automake",
    "make": "make",
    "patch": "patch",
    "pkg-config": "pkg-config",
}
BUILD_LIBRARIES = {"libevent": "libevent-dev", "openssl": "libssl-dev", "zlib": "zlib1g-dev"}

BUILD_DISK_BYTES = 1500 * 2**20
"""Source, base tree and the trees of one build at work (measured: 0.9 GB)."""

# What Shadow 3.3 takes for each simulated process: measured on a network of 98 processes (5.6 files
# open in Shadow itself, 16 KiB in /dev/shm beside 8 MiB for the simulation, up to 3 threads), and
# rounded up.
FILES_BASE = 200
FILES_PER_PROCESS = 8
SHARED_BASE_BYTES = 16 * 2**20
SHARED_BYTES_PER_PROCESS = 64 * 2**10
THREADS_PER_PROCESS = 3
DEFAULT_PROCESSES = 1000
"""Where no experiment is named, a machine is judged by this many: a network at full size."""
MAPS_MINIMUM = 65530
"""The kernel's default; upstream raises it for programs that map a great deal."""


@dataclass(frozen=True)
class Finding:
    """One line of the examination; ``mend`` is empty where there is nothing to do."""

    status: str
    subject: str
    text: str
    mend: str = ""


@dataclass(frozen=True)
class Need:
    """What a named experiment takes.

    Attributes:
        name: The experiment.
        memory_bytes: Of the largest run.
        disk_bytes: Of all runs together.
        processes: Simulated processes of the largest run.
    """

    name: str
    memory_bytes: int
    disk_bytes: int
    processes: int


@dataclass(frozen=True)
class Question:
    """What the examination is about.

    Attributes:
        root: The checkout.
        need: What the experiment takes; None to judge the machine alone.
        shadow: Shadow's executable, if it is named.
        tgen: TGen's executable, if it is named.
        needs_shadow: Whether Shadow is the engine that will run; else it is the embedded one.
    """

    root: Path
    need: Need | None = None
    shadow: str | None = None
    tgen: str | None = None
    needs_shadow: bool = True


def examine(question: Question) -> Iterator[Finding]:
    """All findings, in the order in which a new machine is set up."""
    yield python_version(sys.version_info[:2])
    yield python_packages(question.root / "requirements.lock")
    yield from build_tools()
    yield tor_builds(question.root)
    yield tool(SHADOW, question.shadow, needed=question.needs_shadow)
    yield tool(TGEN, question.tgen, needed=question.needs_shadow)
    yield from embedded_engine(question.root, needed=not question.needs_shadow)
    yield kernel(platform.machine(), platform.release())
    if question.needs_shadow:
        yield seccomp(_proc_status("Seccomp"))
        yield shared_memory(Path("/dev/shm"), question.need)
    yield from limits(question.need, needs_shadow=question.needs_shadow)
    yield cpus(len(os.sched_getaffinity(0)))
    yield memory(available_memory_bytes(), question.need)
    yield disk(shutil.disk_usage(question.root).free, question.need)


# Software


def python_version(version: tuple[int, ...]) -> Finding:
    """This interpreter."""
    text = ".".join(str(part) for part in version)
    if PYTHON_MINIMUM <= version <= PYTHON_MAXIMUM:
        return Finding(OK, "Python", text)
    return Finding(
        MISSING, "Python", f"{text} is not 3.11 to 3.13", "make setup PYTHON=/path/to/python3.12"
    )


def python_packages(lock: Path) -> Finding:
    """Whether this interpreter has the packages of the lock, in its versions."""
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
    """Compiler, programs and libraries that Tor's build takes."""
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
        mend = f"make setup, or: apt-get install {' '.join(absent)}"
        yield Finding(MISSING, "Tor's build needs", text, mend)
    else:
        yield Finding(OK, "Tor's build needs", what)


def tor_builds(root: Path) -> Finding:
    """Which builds of `make build` are there; whether they are up to date shows when asked for."""
    try:
        variants = load_registry(root).variants.values()
        wanted = list(dict.fromkeys([STOCK, *(one.series for one in variants if one.series)]))
    except UserError as error:
        return Finding(MISSING, "Tor builds", error.message, error.hint or "")
    absent = [
        name
        for name in wanted
        if not (build_directory(root) / "tor" / name / "bin" / f"tor-{name}").is_file()
    ]
    if absent:
        text = f"not built yet: {', '.join(absent)}"
        return Finding(WARN, "Tor builds", text, "make build (an experiment does it by itself)")
    return Finding(OK, "Tor builds", ", ".join(wanted))


def tool(program: Program, explicit: str | None, *, needed: bool) -> Finding:
    """Shadow or TGen."""
    try:
        found = find_tool(program, explicit)
    except UserError as error:
        if needed:
            return Finding(MISSING, program.title, error.message, error.hint or "")
        text = "not installed; the embedded engine runs without it"
        return Finding(OK, program.title, text)
    commit = f", commit {found.commit}" if found.commit else ""
    return Finding(OK, program.title, f"{found.version}{commit} ({found.path})")


def embedded_engine(root: Path, *, needed: bool) -> Iterator[Finding]:
    """What the engine without Shadow takes: a kernel, or what builds one, and memory for it."""
    title = "embedded engine"
    lacking = MISSING if needed else WARN
    try:
        check_machine()
    except UserError as error:
        yield Finding(lacking, title, error.message, error.hint or "")
        return
    built = find_kernel(root)
    if built is not None:
        patches = ", ".join(built.patches) or "no patches"
        yield Finding(OK, f"{title}: kernel", f"Linux {built.version} ({patches})")
    else:
        yield from _kernel_build(f"{title}: kernel", lacking)
    try:
        yield Finding(OK, f"{title}: memory in", str(memory_directory()))
    except UserError as error:
        yield Finding(lacking, f"{title}: memory in", error.message, error.hint or "")


def _kernel_build(subject: str, lacking: str) -> Iterator[Finding]:
    """Whether the kernel that is not there yet can be built."""
    absent = missing_programs()
    if absent:
        mend = f"make setup, or: apt-get install {' '.join(absent)}"
        yield Finding(lacking, f"{subject} build", f"not installed: {' '.join(absent)}", mend)
    else:
        yield Finding(OK, f"{subject} build", ", ".join(KERNEL_PROGRAMS))
    if os.environ.get(ENVIRONMENT_VARIABLE):
        source: str | None = os.environ[ENVIRONMENT_VARIABLE]
    else:
        source = choose_package(offered_packages(offered_by_system))
    if source is None:
        # The system's lists may be old or empty; the build fetches lists of its own.
        text = "apt's lists name no linux-source package"
        yield Finding(WARN, subject, text, f"apt-get update, or {ENVIRONMENT_VARIABLE}=/path/to/it")
    else:
        text = f"not built yet; from {source}"
        yield Finding(WARN, subject, text, "nothing to do: an experiment builds it")


# The machine


def kernel(machine: str, release: str) -> Finding:
    """Processor and kernel that Shadow supports."""
    text = f"Linux {release} on {machine}"
    if machine != "x86_64":
        return Finding(WARN, "kernel", f"{text}: Shadow supports x86_64", SUPPORTED_PLATFORMS)
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if version < KERNEL_MINIMUM:
        return Finding(
            WARN, "kernel", f"{text}: Shadow supports 5.10 and newer", SUPPORTED_PLATFORMS
        )
    return Finding(OK, "kernel", text)


def seccomp(mode: str | None) -> Finding:
    """A container's system call filter: it forbids calls that Shadow makes, or slows them."""
    if mode == "2":
        return Finding(
            WARN,
            "system call filter",
            "this container has one; Shadow may fail or be slow under it",
            f"docker run --security-opt seccomp=unconfined ({SUPPORTED_PLATFORMS})",
        )
    return Finding(OK, "system call filter", "none")


def shared_memory(path: Path, need: Need | None) -> Finding:
    """Room in /dev/shm, where Shadow and the simulated processes share their memory."""
    if not os.path.ismount(path):
        return Finding(
            WARN,
            str(path),
            "not a file system of its own",
            f"mount -t tmpfs tmpfs {path}",
        )
    free = shutil.disk_usage(path).free
    text = f"{_size(free)} free"
    processes = need.processes if need else DEFAULT_PROCESSES
    wanted = SHARED_BASE_BYTES + processes * SHARED_BYTES_PER_PROCESS
    if free < wanted:
        return Finding(
            MISSING if need else WARN,
            str(path),
            f"{text}; {_what_takes(need)} about {_size(wanted)}",
            f"docker run --shm-size=..., or: mount -o remount,size=... {path} "
            f"({SUPPORTED_PLATFORMS})",
        )
    return Finding(OK, str(path), text)


@dataclass(frozen=True)
class Limit:
    """A limit of the system: where it stands, and what it must allow for a number of processes."""

    subject: str
    read: Callable[[], int | None]
    wanted: Callable[[int], int]
    mend: str


def _files(processes: int) -> int:
    return FILES_BASE + FILES_PER_PROCESS * processes


def _threads(processes: int) -> int:
    # 1000: the machine has other things to do as well.
    return 1000 + THREADS_PER_PROCESS * processes


LIMITS = (
    Limit(
        "open files (ulimit -Hn)",
        lambda: _rlimit(resource.RLIMIT_NOFILE),
        _files,
        f"raise `nofile` in /etc/security/limits.conf ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "fs.nr_open",
        lambda: _sysctl("fs/nr_open"),
        _files,
        f"sudo sysctl -w fs.nr_open=10485760 ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "fs.file-max",
        lambda: _sysctl("fs/file-max"),
        _files,
        f"sudo sysctl -w fs.file-max=10485760 ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "vm.max_map_count",
        lambda: _sysctl("vm/max_map_count"),
        lambda _: MAPS_MINIMUM,
        f"sudo sysctl -w vm.max_map_count=1073741824 ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "kernel.pid_max",
        lambda: _sysctl("kernel/pid_max"),
        _threads,
        f"sudo sysctl -w kernel.pid_max=4194304 ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "kernel.threads-max",
        lambda: _sysctl("kernel/threads-max"),
        _threads,
        f"sudo sysctl -w kernel.threads-max=4194304 ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "processes (ulimit -Hu)",
        lambda: _rlimit(resource.RLIMIT_NPROC),
        _threads,
        f"raise `nproc` in /etc/security/limits.conf ({SYSTEM_CONFIGURATION})",
    ),
    Limit(
        "tasks (cgroup)",
        lambda: cgroup_limit("pids", "pids.max"),
        _threads,
        f"sudo systemctl set-property user-$UID.slice TasksMax=infinity ({SYSTEM_CONFIGURATION})",
    ),
)


def limits(need: Need | None, *, needs_shadow: bool) -> Iterator[Finding]:
    """The limits of Shadow's system_configuration.md."""
    processes = need.processes if need else DEFAULT_PROCESSES
    for limit in LIMITS:
        value = limit.read()
        if value is None:
            yield Finding(OK, limit.subject, "unlimited")
            continue
        wanted = limit.wanted(processes)
        if value >= wanted:
            yield Finding(OK, limit.subject, str(value))
        else:
            status = MISSING if need and needs_shadow else WARN
            yield Finding(
                status, limit.subject, f"{value}; {_what_takes(need)} about {wanted}", limit.mend
            )


def cpus(count: int) -> Finding:
    """CPUs that this process may use."""
    if count > 1:
        return Finding(OK, "CPUs", str(count))
    return Finding(WARN, "CPUs", "1: simulations run one after the other")


def memory(available: int, need: Need | None) -> Finding:
    """Memory against the largest run."""
    text = f"{_size(available)} available"
    if need is None:
        return Finding(OK, "memory", text)
    text += f"; {need.name} takes about {_size(need.memory_bytes)} a run"
    if available < need.memory_bytes:
        return Finding(MISSING, "memory", text, "a smaller network (SCALE=0.1), or more memory")
    return Finding(OK, "memory", text)


def disk(free: int, need: Need | None) -> Finding:
    """Room in the checkout against a build and all runs."""
    wanted = BUILD_DISK_BYTES + (need.disk_bytes if need else 0)
    what = f"a build and {need.name} take" if need else "a build takes"
    text = f"{_size(free)} free; {what} about {_size(wanted)}"
    if free < wanted:
        return Finding(MISSING, "disk", text, "make clean-build, fewer SEEDS, or another disk")
    return Finding(OK, "disk", text)


def available_memory_bytes() -> int:
    """What may still be used: the machine's available memory, or less in a container."""
    text = Path("/proc/meminfo").read_text("utf-8")
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    available = int(match[1]) * 1024 if match else 0
    limit = cgroup_limit("memory", "memory.max", "memory.limit_in_bytes")
    return available if limit is None else min(available, limit)


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


def _rlimit(which: int) -> int | None:
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _sysctl(name: str) -> int | None:
    values = _words(Path("/proc/sys") / name)
    return int(values[0]) if values else None


def _proc_status(name: str) -> str | None:
    text = Path("/proc/self/status").read_text("utf-8")
    match = re.search(rf"^{name}:\s+(\S+)", text, re.MULTILINE)
    return match[1] if match else None


def _what_takes(need: Need | None) -> str:
    return f"{need.name} takes" if need else f"{DEFAULT_PROCESSES} simulated processes take"


def _size(count: int) -> str:
    if count < 2**30:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**30:.1f} GiB"
