"""Build the kernel of the embedded engine: Linux as an ordinary program (User-Mode Linux).

The layout under ``build/uml``::

    source/              the tarball of Linux, and a JSON file with its origin and hash
    store/KEY/linux      a finished kernel, in one folder with built.json and its configuration
    store/KEY/calls.so   a preloaded library for faster system calls (configs/uml/calls.c)
    linux -> store/KEY/linux
    logs/                the whole output of apt, the compiler and the last boot check

KEY is a hash of everything that a kernel depends on, such as the source, the patches, the
configuration and the compiler. A new kernel is built in a separate directory, has to pass a boot
check, and is put in place by one rename. A kernel contains neither paths nor times, so the same
inputs result in the same bytes in every checkout.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.durable import put_in_place
from onionlab.engines.uml.bootcheck import IN_PROCESSES, BootReport, check_boot, ptrace_reason
from onionlab.engines.uml.kernel_source import LINUX, obtain_linux
from onionlab.engines.uml.kernel_tree import (
    KernelPatch,
    apply_patches,
    configure,
    load_patches,
    make_command,
)
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    build_lock,
    building_directory,
    file_sha256,
    first_line,
    hash_inputs,
    link_build,
    new_log,
    run_logged,
)
from onionlab.programs.sources import Source, unpack_source

LOG = logging.getLogger(__name__)
FORMAT = 4
"""A part of every key. Increase it when the build procedure changes."""

IN_PROCESSES_PATCH = "0009-kernel-in-each-process"
CALLS_PATCH = "0010-calls-without-signals"

CALLS = "calls.so"
CALLS_FLAGS = (
    *("-std=gnu11", "-O2", "-shared", "-fPIC", "-fno-stack-protector"),
    # The library calls the kernel in inline assembly. Its functions must have no red zone, because
    # the call pushes a return address there, and must not use vector registers, because the kernel
    # does not preserve them.
    *("-mno-red-zone", "-mgeneral-regs-only"),
    *("-Wl,--build-id=none", "-Wl,-z,now"),
)

# Program that the build needs -> Debian package with this program.
BUILD_PROGRAMS = {
    "bc": "bc",
    "bison": "bison",
    "flex": "flex",
    "gcc": "gcc",
    "ld": "binutils",
    "make": "make",
    "patch": "patch",
}

BUILD_DISK_BYTES = 1200 * 2**20
"""The disk space for the unpacked part of the source and for the object files."""


@dataclass(frozen=True)
class BuiltKernel:
    """One finished kernel.

    path, sha256: the executable and its SHA-256. version: Linux's version. patches: the names of
    the applied patches. ptrace_because: why the kernel uses ptrace to control its processes; empty
    if it runs inside its processes. ptrace is slower, but gives the same results.
    calls: the library that makes the system calls of programs faster, or None if the kernel does
    not support it. calls_sha256: the library's SHA-256, or empty.
    """

    path: Path
    version: str
    sha256: str
    patches: tuple[str, ...] = ()
    ptrace_because: str = ""
    calls: Path | None = None
    calls_sha256: str = ""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a build. fragment: the kernel's options. calls: the source of ``calls.so``."""

    directory: Path
    source: Source
    fragment: Path
    calls: Path
    patches: tuple[KernelPatch, ...]
    toolchain: dict[str, str]

    def provenance(self) -> dict[str, Any]:
        """Return everything that determines a kernel's content, as a dictionary for JSON."""
        return {
            "linux": self.source.facts,
            "patches": [
                {"name": variant.path.name, "sha256": variant.sha256}
                for patch in self.patches
                for variant in patch.variants
            ],
            "fragment_sha256": file_sha256(self.fragment),
            "calls_source_sha256": file_sha256(self.calls),
            "toolchain": self.toolchain,
        }

    def key(self) -> str:
        """Return the name of the kernel's folder in the store."""
        # In place of all facts about the source, use only its hash, because a tarball results in
        # the same kernel wherever it comes from.
        decisive = {"linux": self.source.sha256, "format": FORMAT}
        return hash_inputs(self.provenance() | decisive)


def uml_directory(root: Path) -> Path:
    """Return the folder of all generated files of the embedded engine."""
    return build_directory(root) / "uml"


def ensure_kernel(root: Path) -> BuiltKernel:
    """Return the kernel of the checkout ``root``. Build it first if it is missing or damaged.

    The source is that of `obtain_linux`. Raises UserError if this machine cannot run the kernel, or
    if the kernel cannot be built.
    """
    check_machine()
    directory = uml_directory(root)
    with build_lock(directory, "the kernel"):
        inputs = _prepare(root, directory)
        store = directory / "store" / inputs.key()
        built = _read_intact(store)
        if built is None:
            if store.exists():
                LOG.info("%s is damaged: rebuilding the kernel", store)
                shutil.rmtree(store)
            built = _build(inputs, store)
        link_build(directory / "linux", Path("store") / store.name / "linux")
        return built


def find_kernel(root: Path) -> BuiltKernel | None:
    """Return the kernel that `ensure_kernel` returned last, or None if it is missing or damaged."""
    link = uml_directory(root) / "linux"
    # Do not repair a damaged kernel here, because `ensure_kernel` will do it.
    return _read_intact(link.resolve().parent) if link.is_symlink() else None


def check_machine() -> None:
    """Raise UserError if the engine does not support this processor."""
    machine = platform.machine()
    if machine != "x86_64":
        raise UserError(
            f"the embedded engine runs only on x86_64, but this machine is {machine}",
            "Shadow has the same limit. Use an x86_64 machine or virtual machine.",
        )


def missing_programs() -> list[str]:
    """Return the Debian packages of missing programs that the build needs."""
    return [package for name, package in BUILD_PROGRAMS.items() if shutil.which(name) is None]


def _prepare(root: Path, directory: Path) -> Inputs:
    absent = missing_programs()
    if absent:
        raise UserError(
            f"programs that the kernel's build needs are missing: {' '.join(absent)}",
            f"`make setup` installs them, or: apt-get install {' '.join(absent)}",
        )
    configuration = root / "configs/uml"
    return Inputs(
        directory=directory,
        source=obtain_linux(directory),
        fragment=configuration / "kernel.config",
        calls=configuration / "calls.c",
        patches=load_patches(configuration / "patches"),
        toolchain={
            "compiler": first_line("gcc", "--version"),
            "linker": first_line("ld", "--version"),
            "libc": first_line("ldd", "--version"),
        },
    )


def _read_intact(store: Path) -> BuiltKernel | None:
    try:
        record: dict[str, Any] = json.loads((store / "built.json").read_text(encoding="utf-8"))
        built = _from_record(store, record)
        whole = file_sha256(built.path) == built.sha256 and (
            built.calls is None or file_sha256(built.calls) == built.calls_sha256
        )
        return built if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _from_record(store: Path, record: dict[str, Any]) -> BuiltKernel:
    return BuiltKernel(
        path=store / "linux",
        version=record["version"],
        sha256=record["sha256"],
        patches=tuple(record["patches"]),
        ptrace_because=record["ptrace_because"],
        calls=store / CALLS if record["calls_sha256"] else None,
        calls_sha256=record["calls_sha256"],
    )


def _build(inputs: Inputs, store: Path) -> BuiltKernel:
    _check_disk(inputs.directory)
    log = new_log(inputs.directory, "kernel")
    with building_directory(inputs.directory) as work:
        tree = work / "tree"
        LOG.info("the kernel: unpacking")
        version = unpack_source(LINUX, inputs.source, tree)
        patches = apply_patches(tree, inputs.patches, inputs.source.path.name)
        LOG.info("Linux %s: building the kernel of the embedded engine", version)
        configure(inputs.fragment, tree, log)
        command = [*make_command(tree), f"-j{len(os.sched_getaffinity(0))}", "linux"]
        run_logged(command, tree, log, "the kernel: compile")
        staged = work / "staged"
        staged.mkdir()
        # Keep the symbols, so that a profile of a simulation can name the kernel's functions.
        kernel = staged / "linux"
        shutil.copy2(tree / "linux", kernel)
        calls_sha256 = ""
        if CALLS_PATCH in patches:
            calls = staged / CALLS
            command = ["gcc", *CALLS_FLAGS, "-o", str(calls), str(inputs.calls)]
            run_logged(command, work, log, "the kernel: calls")
            calls_sha256 = file_sha256(calls)
        boot, ptrace_because = _boot(inputs, kernel, patches)
        LOG.info("the kernel: boots in %.1f s", boot.wall_s)
        if ptrace_because:
            LOG.info("the kernel: uses ptrace, so runs are up to twice as slow: %s", ptrace_because)
        record = {
            "format": FORMAT,
            "version": version,
            "sha256": file_sha256(kernel),
            "patches": patches,
            "ptrace_because": ptrace_because,
            "calls_sha256": calls_sha256,
            "source": inputs.provenance(),
        }
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        (staged / "built.json").write_text(text, encoding="utf-8")
        shutil.copy2(tree / ".config", staged / "config")
        store.parent.mkdir(exist_ok=True)
        put_in_place(staged, store)
    LOG.info("the kernel: done, SHA-256 %s", record["sha256"])
    return _from_record(store, record)


def _boot(inputs: Inputs, kernel: Path, patches: Sequence[str]) -> tuple[BootReport, str]:
    """Boot a new kernel in the way in which runs will boot it, preferably without ptrace.

    Return the report, and the reason for the use of ptrace (empty if ptrace is not used). Raises
    UserError if the kernel does not boot even with ptrace.
    """
    log = new_log(inputs.directory, "boot")
    if IN_PROCESSES_PATCH not in patches:
        return check_boot(kernel, log), "this version of Linux lacks the patch"
    try:
        boot = check_boot(kernel, log, arguments=(IN_PROCESSES,))
    except UserError as error:
        boot = check_boot(kernel, new_log(inputs.directory, "boot-ptrace"))
        return boot, f"{error.message}, see {log}"
    return boot, ptrace_reason(boot.output)


def _check_disk(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < BUILD_DISK_BYTES:
        raise UserError(
            f"building the kernel needs {BUILD_DISK_BYTES / 2**30:.1f} GiB below {directory}, "
            f"but {free / 2**30:.1f} GiB are free",
            "Make room, or put the checkout on another disk.",
        )
