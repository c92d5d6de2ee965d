"""The patches to Linux that the embedded engine needs: configs/uml/patches.

A patch may have variants for different versions of Linux. The first one that applies is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from onionlab.engines.uml.kernel_source import ENVIRONMENT_VARIABLE
from onionlab.programs.building import apply_patch, patch_problem
from onionlab.programs.patches import Patch

PATCHES_HINT = (
    "Use a source that the patches in configs/uml/patches apply to: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/linux-6.12.tar.xz."
)

MAX_FUZZ = 2
"""The accepted fuzz: distributions have many versions of Linux, and each kernel is boot-checked."""


@dataclass(frozen=True)
class KernelPatch:
    """One change, in one or more variants for different versions of Linux.

    Attributes:
        name: The name, such as ``0001-seeded-random-numbers``.
        variants: The variants, in the order in which they are tried.
        required: Whether a kernel without it is rejected.
    """

    name: str
    variants: tuple[Patch, ...]
    required: bool


def load_patches(directory: Path) -> tuple[KernelPatch, ...]:
    """Return the patches in the order in which they apply.

    ``NNNN-name.patch`` may have variants for other versions, ``NNNN-name.WHICH.patch``. They are
    tried after it, in the order of their names. A line ``Onionlab: optional`` in the message of the
    first one means that the kernel works without the patch.
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


def apply_patches(
    tree: Path, patches: Iterable[KernelPatch], origin: str, say: Callable[[str], None]
) -> list[str]:
    """Apply all patches that fit to ``tree``. Return the names of the applied patches.

    Args:
        tree: Linux's source.
        patches: The patches, in their order.
        origin: The origin of the tree, for messages.
        say: Receives the names of omitted optional patches and of patches that apply with fuzz.

    Raises:
        UserError: A required patch does not apply.
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
                say(f"the kernel: {patch.name} applies to {origin} with fuzz")
        elif patch.required:
            apply_patch(tree, patch.variants[0], origin, PATCHES_HINT)
        else:
            say(f"the kernel: {patch.name} does not apply to this version and is omitted")
    return applied
