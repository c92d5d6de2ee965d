"""Build the kernel of the embedded engine: Linux as an ordinary program (User-Mode Linux).

The layout under ``build/uml``::

    source/              the tarball of Linux and what is known of it
    store/KEY/linux      a finished kernel, with built.json beside it
    store/KEY/calls.so   what programs call it by (configs/uml/calls.c)
    linux -> store/KEY/linux
    logs/                the compiler's whole output, and the last boot check's

KEY is a hash of everything that a kernel depends on: source, patches, configuration, compiler. A
kernel is made in a directory of its own, must boot, and is put in place by one rename. It holds
neither paths nor times: the same inputs give the same bytes in every checkout.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.durable import put_in_place
from onionlab.engines.uml.bootcheck import IN_PROCESSES, BootReport, check_boot, takes_ptrace
from onionlab.engines.uml.kernel_configuration import configure, make_command
from onionlab.engines.uml.kernel_patches import KernelPatch, apply_patches, load_patches
from onionlab.engines.uml.kernel_source import ENVIRONMENT_VARIABLE, obtain_source, unpack_source
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    build_key_of,
    build_lock,
    building_directory,
    file_sha256,
    first_line,
    new_log,
    run_logged,
    work_directory,
)
from onionlab.programs.sources import Source

FORMAT = 4
"""Part of every key: raise it when a kernel is built differently."""

IN_PROCESSES_PATCH = "0009-kernel-in-each-process"
CALLS_PATCH = "0010-calls-without-signals"

CALLS = "calls.so"
CALLS_FLAGS = (
    *("-std=gnu11", "-O2", "-shared", "-fPIC", "-fno-stack-protector"),
    # It calls within assembly, and the kernel does not keep vector registers.
    *("-mno-red-zone", "-mgeneral-regs-only"),
    *("-Wl,--build-id=none", "-Wl,-z,now"),
)

# Program -> Debian package.
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
"""The unpacked part of the source and the objects."""


@dataclass(frozen=True)
class BuiltKernel:
    """One finished kernel.

    Attributes:
        path: The executable.
        version: What it calls itself, e.g. ``6.12.117``.
        sha256: Of the executable.
        calls: The library that its programs are started with; None where it has no use of it.
        calls_sha256: Of that library; empty without one.
        config_sha256: Of the whole configuration that it was built with.
        patches: Names of the patches that are in it, e.g. ``0001-seeded-random-numbers``.
        source: Where it comes from (source, patches, options, compiler); JSON, for manifests.
        ptrace_because: Why it cannot run inside of its processes here and takes ptrace, which is
            slower and gives the same; empty where it can.
    """

    path: Path
    version: str
    sha256: str
    config_sha256: str
    patches: tuple[str, ...]
    source: dict[str, Any]
    ptrace_because: str = ""
    calls: Path | None = None
    calls_sha256: str = ""


@dataclass(frozen=True)
class Inputs:
    """What a build starts from."""

    root: Path
    source: Source
    fragment: Path
    calls: Path
    patches: tuple[KernelPatch, ...]
    toolchain: dict[str, str]
    jobs: int
    say: Callable[[str], None]

    @property
    def directory(self) -> Path:
        """``build/uml``."""
        return uml_directory(self.root)


def uml_directory(root: Path) -> Path:
    """Everything of the embedded engine that can be made again."""
    return build_directory(root) / "uml"


def ensure_kernel(
    root: Path,
    *,
    say: Callable[[str], None],
    linux_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> BuiltKernel:
    """Build the kernel where it is not built yet.

    Args:
        root: The checkout.
        say: Receives progress, a line at a time.
        linux_source: Tarball or tree to build from; by default the variable LINUX_SOURCE, and the
            distribution's linux-source package where that is not set either.
        update_source: Fetch the package anew.
        jobs: How many compilers at once; by default one for each CPU.

    Raises:
        UserError: This machine cannot run it, something that the build takes is missing, a patch
            does not apply, the build fails, or the new kernel does not boot.
    """
    check_machine()
    with build_lock(uml_directory(root), "the kernel", say):
        inputs = _prepare(root, say, linux_source, update_source, jobs)
        store = inputs.directory / "store" / build_key(inputs)
        built = _read_build(store, say)
        if built is None:
            built = _build(inputs, store)
        link = inputs.directory / "linux"
        target = Path("store") / store.name / "linux"
        if not link.is_symlink() or link.readlink() != target:
            with work_directory(inputs) as work:
                (work / "linux").symlink_to(target)
                (work / "linux").replace(link)
        return built


def find_kernel(root: Path) -> BuiltKernel | None:
    """The kernel that was built last, if it is there."""
    link = uml_directory(root) / "linux"
    # Only looked at: what is damaged is the next build's business.
    return _read_intact(link.resolve().parent) if link.is_symlink() else None


def check_machine(machine: str | None = None) -> None:
    """Whether this processor will do.

    Raises:
        UserError: It is not x86_64.
    """
    machine = machine or platform.machine()
    if machine != "x86_64":
        raise UserError(
            f"the embedded engine runs on x86_64 alone; this machine is {machine}",
            "Shadow has the same limit. Use an x86_64 machine or virtual machine.",
        )


def missing_programs() -> list[str]:
    """Debian packages that hold the programs which the build takes and does not find."""
    return [package for name, package in BUILD_PROGRAMS.items() if shutil.which(name) is None]


def _prepare(
    root: Path,
    say: Callable[[str], None],
    linux_source: str | None,
    update_source: bool,
    jobs: int | None,
) -> Inputs:
    absent = missing_programs()
    if absent:
        raise UserError(
            f"building the kernel takes programs that are missing: {' '.join(absent)}",
            f"`make setup` installs them, or: apt-get install {' '.join(absent)}",
        )
    named = linux_source if linux_source is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    configuration = root / "configs/uml"
    return Inputs(
        root=root,
        source=obtain_source(uml_directory(root), named, update=update_source, say=say),
        fragment=configuration / "kernel.config",
        calls=configuration / "calls.c",
        patches=load_patches(configuration / "patches"),
        toolchain={
            "compiler": first_line("gcc", "--version"),
            "linker": first_line("ld", "--version"),
            "libc": first_line("ldd", "--version"),
        },
        jobs=jobs or len(os.sched_getaffinity(0)),
        say=say,
    )


def provenance(inputs: Inputs) -> dict[str, Any]:
    """Everything that decides what a kernel holds, as JSON."""
    return {
        "linux": inputs.source.facts,
        "patches": [
            {"name": variant.path.name, "sha256": variant.sha256}
            for patch in inputs.patches
            for variant in patch.variants
        ],
        "fragment_sha256": file_sha256(inputs.fragment),
        "calls_source_sha256": file_sha256(inputs.calls),
        "toolchain": inputs.toolchain,
    }


def build_key(inputs: Inputs) -> str:
    """The name of a kernel on disk: a hash of all that decides what it holds."""
    decisive = provenance(inputs)
    # The source counts by its content alone: the same tarball from elsewhere is the same source.
    decisive |= {"linux": inputs.source.sha256, "format": FORMAT}
    return build_key_of(decisive)


def _read_build(store: Path, say: Callable[[str], None]) -> BuiltKernel | None:
    """A finished kernel, or None; what is not whole is removed."""
    built = _read_intact(store)
    if built is None and store.exists():
        say(f"{store} is damaged: building the kernel again")
        shutil.rmtree(store)
    return built


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
        config_sha256=record["config_sha256"],
        patches=tuple(record["patches"]),
        source=record["source"],
        ptrace_because=record["ptrace_because"],
        calls=store / CALLS if record["calls_sha256"] else None,
        calls_sha256=record["calls_sha256"],
    )


# Building


def _build(inputs: Inputs, store: Path) -> BuiltKernel:
    _check_disk(inputs.directory)
    log = new_log(inputs, "kernel")
    with building_directory(inputs) as work:
        tree = work / "tree"
        inputs.say("the kernel: unpacking")
        version = unpack_source(inputs.source, tree)
        patches = apply_patches(tree, inputs.patches, inputs.source.path.name, inputs.say)
        inputs.say(f"Linux {version}: building the kernel of the embedded engine")
        config_sha256 = configure(inputs, inputs.fragment, tree, log)
        command = [*make_command(tree), f"-j{inputs.jobs}", "linux"]
        run_logged(inputs, command, tree, log, "the kernel: compile")
        staged = work / "staged"
        staged.mkdir()
        # With its symbols: a profile of a simulation names the kernel's functions by them.
        kernel = staged / "linux"
        shutil.copy2(tree / "linux", kernel)
        calls_sha256 = ""
        if CALLS_PATCH in patches:
            calls = staged / CALLS
            command = ["gcc", *CALLS_FLAGS, "-o", str(calls), str(inputs.calls)]
            run_logged(inputs, command, work, log, "the kernel: calls")
            calls_sha256 = file_sha256(calls)
        boot, ptrace_because = _boot(inputs, kernel, patches)
        inputs.say(f"the kernel: boots in {boot.wall_s:.1f} s")
        if ptrace_because:
            inputs.say(f"the kernel: takes ptrace, runs cost up to twice as much: {ptrace_because}")
        record = {
            "format": FORMAT,
            "version": version,
            "sha256": file_sha256(kernel),
            "config_sha256": config_sha256,
            "patches": patches,
            "ptrace_because": ptrace_because,
            "calls_sha256": calls_sha256,
            "source": provenance(inputs),
        }
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        (staged / "built.json").write_text(text, encoding="utf-8")
        shutil.copy2(tree / ".config", staged / "config")
        store.parent.mkdir(exist_ok=True)
        put_in_place(staged, store)
    inputs.say(f"the kernel: done, SHA-256 {record['sha256']}")
    return _from_record(store, record)


def _boot(inputs: Inputs, kernel: Path, patches: Sequence[str]) -> tuple[BootReport, str]:
    """Boot a new kernel as runs will; how that went, and why it takes ptrace (empty: it doesn't).

    Raises:
        UserError: It does not boot, not even with ptrace.
    """
    log = new_log(inputs, "boot")
    if IN_PROCESSES_PATCH not in patches:
        return check_boot(kernel, log), "this version of Linux is without the patch"
    try:
        boot = check_boot(kernel, log, arguments=(IN_PROCESSES,))
    except UserError as error:
        return check_boot(kernel, new_log(inputs, "boot-ptrace")), f"{error.message}, see {log}"
    return boot, takes_ptrace(boot.output)


def _check_disk(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < BUILD_DISK_BYTES:
        raise UserError(
            f"building the kernel takes {BUILD_DISK_BYTES / 2**30:.1f} GiB below {directory}, "
            f"and {free / 2**30:.1f} GiB are free",
            "Make room, or put the checkout on another disk.",
        )
