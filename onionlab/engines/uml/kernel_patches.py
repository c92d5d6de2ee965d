"""The changes to Linux that the embedded engine needs: configs/uml/patches.

A patch may have variants for different versions of Linux; the first one that applies is taken.
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
    "Name a source that the patches in configs/uml/patches fit: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/linux-6.12.tar.xz."
)

MAX_FUZZ = 2
"""Distributions have many versions of Linux, and the boot check tries each kernel."""


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
        patches = tuple(Patch.read(path) for path in variants)
        required = re.search(rb"^Onionlab: optional$", patches[0].content, re.MULTILINE) is None
        found.append(KernelPatch(name, patches, required))
    return tuple(found)


def apply_patches(
    tree: Path, patches: Iterable[KernelPatch], origin: str, say: Callable[[str], None]
) -> list[str]:
    """Apply to ``tree`` what applies; returns the names of the patches that are in.

    Args:
        tree: Linux's source.
        patches: In their order.
        origin: What the tree was unpacked from, for the message.
        say: Is told which optional patch does not fit, and which one applies with fuzz.

    Raises:
        UserError: A patch that must apply does not.
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
                say(f"the kernel: {patch.name} does not match {origin} in its whole context")
        elif patch.required:
            apply_patch(tree, patch.variants[0], origin, PATCHES_HINT)
        else:
            say(f"the kernel: {patch.name} does not fit this version and is left out")
    return applied
