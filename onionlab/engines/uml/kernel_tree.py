"""Patch and configure Linux's tree, with configs/uml/patches and configs/uml/kernel.config.

A patch may have variants for different versions of Linux. The first variant that applies is used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from onionlab.engines.uml.kernel_source import ENVIRONMENT_VARIABLE, linux_version
from onionlab.errors import UserError
from onionlab.programs.building import apply_patch, patch_problem, run_logged
from onionlab.programs.compiler_cache import through_cache
from onionlab.programs.patches import Patch

LOG = logging.getLogger(__name__)
PATCHES_HINT = (
    "Use a source that the patches in configs/uml/patches apply to: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/linux-6.12.tar.xz."
)

MAX_FUZZ = 2
"""The maximum fuzz of patch(1). Fuzz is accepted because distributions have many versions of Linux.
The risk is small, because each kernel has to pass a boot check.
"""


@dataclass(frozen=True)
class KernelPatch:
    """One change to Linux.

    name: for example ``0001-seeded-random-numbers``. variants: patch files for different versions
    of Linux, in the order in which they are tried. required: whether to reject Linux's source if no
    variant applies.
    """

    name: str
    variants: tuple[Patch, ...]
    required: bool


def load_patches(directory: Path) -> tuple[KernelPatch, ...]:
    """Return the patches in a directory, in the order in which they have to be applied.

    The file ``NNNN-name.patch`` may have variants for other versions of Linux, with names such as
    ``NNNN-name.6.8.patch``. The variants are tried after ``NNNN-name.patch``, in the order of their
    names. If ``NNNN-name.patch`` contains the line ``Onionlab: optional``, the patch is not
    required, because the kernel works without it.
    """

    def name_of(path: Path) -> str:
        return path.name.split(".", 1)[0]

    files = sorted(directory.glob("*.patch"), key=lambda p: (name_of(p), len(p.suffixes), p.name))
    found = []
    for name, variants in groupby(files, name_of):
        patches = tuple(Patch.read(path) for path in variants)
        required = re.search(rb"^Onionlab: optional$", patches[0].content, re.MULTILINE) is None
        found.append(KernelPatch(name, patches, required))
    return tuple(found)


def apply_patches(tree: Path, patches: Iterable[KernelPatch], origin: str) -> list[str]:
    """Apply all patches that fit Linux's tree. Return the names of the applied patches.

    origin: the name of the tree's source in messages. Raises UserError if a required patch does not
    apply.
    """
    applied = []
    for patch in patches:
        fitting = next(
            (
                (one, fuzz)
                for fuzz in (0, MAX_FUZZ)
                for one in patch.variants
                if patch_problem(tree, one, dry_run=True, fuzz=fuzz) is None
            ),
            None,
        )
        if fitting is not None:
            one, fuzz = fitting
            apply_patch(tree, one, origin, PATCHES_HINT, fuzz=fuzz)
            applied.append(patch.name)
            if fuzz:
                LOG.info("the kernel: %s applies to %s with fuzz", patch.name, origin)
        elif patch.required:
            apply_patch(tree, patch.variants[0], origin, PATCHES_HINT)
        else:
            LOG.info("the kernel: %s does not apply to this version and is omitted", patch.name)
    return applied


# By default Linux stores the time, host and user of its build in the kernel. With fixed values, the
# same source results in the same kernel.
FIXED_IDENTITY = (
    "KBUILD_BUILD_TIMESTAMP=2000-01-01",
    "KBUILD_BUILD_USER=onionlab",
    "KBUILD_BUILD_HOST=onionlab",
    "KBUILD_BUILD_VERSION=1",
    "LOCALVERSION=",
)

# If a machine has these tools, Kconfig writes their versions to the configuration although the
# build does not use them. The kernel contains the whole configuration, so it would differ between
# machines.
UNUSED_TOOLS = ("RUSTC=false", "BINDGEN=false", "PAHOLE=false")


def make_command(tree: Path) -> list[str]:
    """Return the command line of make in ``tree``, without a target."""
    # Without the prefix map, the kernel could contain the tree's path (because of __FILE__). -w
    # disables warnings, which are meant for Linux's developers.
    flags = f"KCFLAGS=-ffile-prefix-map={tree}=. -w"
    compiler = f"CC={through_cache('gcc')}"
    return ["make", "-s", "ARCH=um", compiler, *FIXED_IDENTITY, *UNUSED_TOOLS, flags]


def configure(fragment: Path, tree: Path, log: Path) -> None:
    """Generate ``.config`` in ``tree`` from the fragment, a file with the options to set.

    Kconfig disables all other options that it can disable. Raises UserError if Kconfig does not
    accept an option of the fragment.
    """
    release = tuple(int(part) for part in linux_version(tree, tree).split(".")[:2])
    wanted = list(fragment_options(fragment.read_text(encoding="utf-8"), release))
    asked = tree.parent / "asked.config"
    asked.write_text("".join(line + "\n" for line in wanted), encoding="utf-8")
    command = [*make_command(tree), f"KCONFIG_ALLCONFIG={asked}", "allnoconfig"]
    run_logged(command, tree, log, "the kernel: configure")
    content = (tree / ".config").read_text(encoding="utf-8")
    missing = missing_options(wanted, content)
    if missing:
        raise UserError(
            f"Linux {'.'.join(str(part) for part in release)} does not accept these options of "
            f"{fragment.name}: {', '.join(missing)}",
            "Their names or what they depend on have changed: look them up in the Kconfig files "
            "of this version, or use another source with LINUX_SOURCE=.",
        )


def fragment_options(fragment: str, release: tuple[int, ...]) -> Iterator[str]:
    """Yield the options in a fragment's text that apply to a release such as ``(6, 12)``.

    A line that ends with ``# since 6.16`` applies to 6.16 and newer releases, and a line that ends
    with ``# until 6.15`` applies to 6.15 and older releases.
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
    """Return the wanted lines that ``config``, the text of a configuration, does not fulfil.

    ``CONFIG_X=n`` is fulfilled if ``config`` does not set this option.
    """
    present = set(config.splitlines())
    names = {line.partition("=")[0] for line in present}
    return [
        line
        for line in wanted
        if (line.removesuffix("=n") in names if line.endswith("=n") else line not in present)
    ]
