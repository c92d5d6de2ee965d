"""The registry of libtorrent's variants: ``libtorrent-patches/variants.yaml``.

Each variant is a build of libtorrent. All variants have the observer, a patch with which peers log
their windows and requests. A variant's own patches are applied after the observer. The file's
comments explain each key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from onionlab.programs.patches import Series, load_series
from onionlab.programs.registry import (
    Name,
    VariantDisplay,
    find_indistinguishable_styles,
    read_registry,
)
from onionlab.yamlfile.model import Model, key

FOLDER = "libtorrent-patches"
OBSERVER = "observer"


class _Entry(VariantDisplay):
    series: tuple[Name, ...] = key(strict=False, description="folders of patches")
    rule: Annotated[str, Field(pattern=r"^[a-z-]+$")] = key(
        description="what a peer names as its request rule"
    )


class _File(Model):
    variants: dict[Name, _Entry] = Field(min_length=1, description="variants")


class PeerVariant(_Entry):
    """One variant of libtorrent, with its name."""

    name: str


def load_peer_variants(root: Path) -> dict[str, PeerVariant]:
    """Return the variants by name, in the file's order.

    Raises UserError if the file or a series is missing, or if the file has errors, which are all
    listed.
    """
    content = read_registry(
        root,
        root / FOLDER / "variants.yaml",
        _File,
        lambda file, tree: find_indistinguishable_styles(file.variants, tree),
    )
    variants = {
        name: PeerVariant(name=name, **entry.model_dump())
        for name, entry in content.variants.items()
    }
    for variant in variants.values():
        load_variant_series(root, variant)
    return variants


def base_series(root: Path) -> Series:
    """Return the patches of the observer, which every variant has."""
    return load_series(root, OBSERVER, FOLDER)


def load_variant_series(root: Path, variant: PeerVariant) -> tuple[Series, ...]:
    """Return a variant's own patches. Raises UserError if a folder or a patch is missing."""
    return tuple(load_series(root, name, FOLDER) for name in variant.series)
