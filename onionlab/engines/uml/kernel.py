"""Build the kernel of the embedded engine: Linux as an ordinary program (User-Mode Linux).

The layout under ``build/uml``::

    source/              the tarball of Linux and what is known of it
    store/KEY/linux      a finished kernel, with built.json beside it
    linux -> store/KEY/linux
    logs/                the compiler's whole output, and the last boot check's

KEY is a hash of everything that a kernel depends on: source, patches, configuration, compiler. A
kernel is made in a directory of its own, must boot, and is put in place by one rename. It holds
neither paths nor times: the same inputs give the same bytes in every checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from onionlab.engines.uml.bootcheck import check_boot
from onionlab.engines.uml.kernel_source import (
    ENVIRONMENT_VARIABLE,
    linux_version,
    obtain_source,
    unpack_source,
)
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    apply_patch,
    build_environment,
    build_key_of,
    build_lock,
    file_sha256,
    first_line,
    new_log,
    run_logged,
    work_directory,
)
from onionlab.programs.registry import Patch
from onionlab.programs.sources import Source

__all__ = [
    "BUILD_DISK_BYTES",
    "BUILD_PROGRAMS",
    "BuiltKernel",
    "ensure_kernel",
    "find_kernel",
    "load_patches",
    "missing_options",
]

FORMAT = 1
"""Part of every key: raise it when a kernel is built differently."""

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

# Linux writes when, where and by whom it was built into the kernel, unless it is told.
FIXED_IDENTITY = (
    "KBUILD_BUILD_TIMESTAMP=2000-01-01",
    "KBUILD_BUILD_USER=onionlab",
    "KBUILD_BUILD_HOST=onionlab",
    "KBUILD_BUILD_VERSION=1",
    "LOCALVERSION=",
)

PATCHES_HINT = (
    "Name a source that the patches in configs/uml/patches fit: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/linux-6.12.tar.xz."
)


@dataclass(frozen=True)
class BuiltKernel:
    """One finished kernel.

    Attributes:
        path: The executable.
        version: What it calls itself, e.g. ``6.12.117``.
        sha256: Of the executable.
        config_sha256: Of the whole configuration that it was built with.
        patches: Names of the patches that are in it, e.g. ``0001-seeded-random-numbers``.
        source: Where it comes from (source, patches, options, compiler); JSON, for manifests.
    """

    path: Path
    version: str
    sha256: str
    config_sha256: str
    patches: tuple[str, ...]
    source: dict[str, Any]


@dataclass(frozen=True)
class KernelPatch:
    """One change, in one or more variants for different versions of Linux.

    Attributes:
        name: Such as ``0001-seeded-random-numbers``.
        variants: In the order in which they are tried.
        required: Whether a kernel without it is refused.
    """

    name: str
    variants: tuple[Patch, ...]
    required: bool


@dataclass(frozen=True)
class Inputs:
    """What a build starts from."""

    root: Path
    source: Source
    fragment: Path
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
    configuration = root / "configs" / "uml"
    return Inputs(
        root=root,
        source=obtain_source(uml_directory(root), named, update=update_source, say=say),
        fragment=configuration / "kernel.config",
        patches=load_patches(configuration / "patches"),
        toolchain={
            "compiler": first_line("gcc", "--version"),
            "linker": first_line("ld", "--version"),
            "libc": first_line("ldd", "--version"),
        },
        jobs=jobs or len(os.sched_getaffinity(0)),
        say=say,
    )


def load_patches(directory: Path) -> tuple[KernelPatch, ...]:
    """The patches in the order in which they apply.

    ``NNNN-name.patch`` may have variants for other versions, ``NNNN-name.WHICH.patch``; those are
    tried after it, in the order of their names. A line ``Onionlab: optional`` in the first one's
    message says that the kernel also serves without.
    """

    def name_of(path: Path) -> str:
        return path.name.split(".", 1)[0]

    files = sorted(directory.glob("*.patch"), key=lambda p: (name_of(p), len(p.suffixes), p.name))
    found = []
    for name, variants in groupby(files, name_of):
        patches = tuple(Patch(path, path.read_bytes()) for path in variants)
        required = re.search(rb"^Onionlab: optional$", patches[0].content, re.MULTILINE) is None
        found.append(KernelPatch(name, patches, required))
    return tuple(found)


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
        return built if file_sha256(built.path) == built.sha256 else None
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
    )


# Building


def _build(inputs: Inputs, store: Path) -> BuiltKernel:
    _check_disk(inputs.directory)
    log = new_log(inputs, "kernel")
    with work_directory(inputs) as work:
        tree = work / "tree"
        inputs.say("the kernel: unpacking")
        version = unpack_source(inputs.source, tree)
        patches = apply_patches(inputs, tree)
        inputs.say(f"Linux {version}: building the kernel of the embedded engine")
        config_sha256 = configure(inputs, tree, log)
        command = [*make_command(tree), f"-j{inputs.jobs}", "linux"]
        run_logged(inputs, command, tree, log, "the kernel: compile")
        staged = work / "staged"
        staged.mkdir()
        # With its symbols: a profile of a simulation names the kernel's functions by them.
        kernel = staged / "linux"
        shutil.copy2(tree / "linux", kernel)
        boot = check_boot(kernel, new_log(inputs, "boot"))
        inputs.say(f"the kernel: boots in {boot.wall_s:.1f} s")
        record = {
            "format": FORMAT,
            "version": version,
            "sha256": file_sha256(kernel),
            "config_sha256": config_sha256,
            "patches": patches,
            "source": provenance(inputs),
        }
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        (staged / "built.json").write_text(text, encoding="utf-8")
        shutil.copy2(tree / ".config", staged / "config")
        store.parent.mkdir(exist_ok=True)
        staged.rename(store)
    inputs.say(f"the kernel: done, SHA-256 {record['sha256']}")
    return _from_record(store, record)


def _check_disk(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < BUILD_DISK_BYTES:
        raise UserError(
            f"building the kernel takes {BUILD_DISK_BYTES / 2**30:.1f} GiB below {directory}, "
            f"and {free / 2**30:.1f} GiB are free",
            "Make room, or put the checkout on another disk.",
        )


def apply_patches(inputs: Inputs, tree: Path) -> list[str]:
    """Apply to ``tree`` what applies; returns the names of the patches that are in.

    Raises:
        UserError: A patch that must apply does not.
    """
    applied = []
    for patch in inputs.patches:
        fitting = next((one for one in patch.variants if _applies(tree, one)), None)
        if fitting is not None:
            apply_patch(tree, fitting, inputs.source.path.name, PATCHES_HINT)
            applied.append(patch.name)
        elif patch.required:
            apply_patch(tree, patch.variants[0], inputs.source.path.name, PATCHES_HINT)
        else:
            inputs.say(f"the kernel: {patch.name} does not fit this version and is left out")
    return applied


def _applies(tree: Path, patch: Patch) -> bool:
    result = subprocess.run(
        ["patch", "-p1", "--batch", "--forward", "--dry-run", f"--directory={tree}"],
        input=patch.content,
        capture_output=True,
        env=build_environment(),
        check=False,
    )
    return result.returncode == 0


def make_command(tree: Path) -> list[str]:
    """How make is called in ``tree``, without a target."""
    # The tree's path could otherwise get into a kernel by way of __FILE__.
    return ["make", "-s", "ARCH=um", *FIXED_IDENTITY, f"KCFLAGS=-ffile-prefix-map={tree}=."]


def configure(inputs: Inputs, tree: Path, log: Path) -> str:
    """Make ``.config`` from the fragment; returns its SHA-256.

    Raises:
        UserError: Kconfig does not take an option of the fragment.
    """
    release = tuple(int(part) for part in linux_version(tree, tree).split(".")[:2])
    wanted = list(fragment_options(inputs.fragment.read_text(encoding="utf-8"), release))
    asked = tree.parent / "asked.config"
    asked.write_text("".join(line + "\n" for line in wanted), encoding="utf-8")
    command = [*make_command(tree), f"KCONFIG_ALLCONFIG={asked}", "allnoconfig"]
    run_logged(inputs, command, tree, log, "the kernel: configure")
    content = (tree / ".config").read_text(encoding="utf-8")
    missing = missing_options(wanted, content)
    if missing:
        raise UserError(
            f"Linux {'.'.join(str(part) for part in release)} does not take these options of "
            f"{inputs.fragment.name}: {', '.join(missing)}",
            "Their names or what they depend on have changed: look them up in the Kconfig files "
            "of this version, or name another source with LINUX_SOURCE=.",
        )
    # The header of the file names the compiler: that is part of the key already.
    settings = "".join(line + "\n" for line in content.splitlines() if "CONFIG_" in line)
    return hashlib.sha256(settings.encode()).hexdigest()


def fragment_options(fragment: str, release: tuple[int, ...]) -> Iterator[str]:
    """The lines of a fragment that hold for a release such as ``(6, 12)``.

    ``# since 6.16`` at the end of a line: that release and newer; ``# until 6.15``: up to that one.
    """
    for line in fragment.splitlines():
        option, _, remark = line.partition("#")
        if not option.strip():
            continue
        bound = re.fullmatch(r"\s*(since|until) (\d+)\.(\d+)\s*", remark)
        if bound is not None:
            limit = (int(bound[2]), int(bound[3]))
            if (release < limit) if bound[1] == "since" else (release > limit):
                continue
        yield option.strip()


def missing_options(wanted: Sequence[str], config: str) -> list[str]:
    """Lines such as ``CONFIG_NET=y`` that ``config`` does not hold; ``=n`` is met by absence."""
    present = set(config.splitlines())
    names = {line.partition("=")[0] for line in present}
    return [
        line
        for line in wanted
        if (line.removesuffix("=n") in names if line.endswith("=n") else line not in present)
    ]
