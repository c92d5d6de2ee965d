"""The registry of libtorrent's variants: ``libtorrent-patches/variants.yaml``.

A variant is a build: the observer that all have, and the patch series that it names. The file says
in its own comments what each key means.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from onionlab.programs.patches import Series, load_series
from onionlab.programs.registry import (
    Look,
    LookModel,
    Name,
    read_registry,
    twins,
)
from onionlab.yamlfile.model import Model, key

FOLDER = "libtorrent-patches"
OBSERVER = "observer"


class _Entry(LookModel):
    series: tuple[Name, ...] = key(strict=False, description="folders of patches")
    rule: Annotated[str, Field(pattern=r"^[a-z-]+$")] = key(
        description="what a peer names as its request rule"
    )


class _File(Model):
    variants: dict[Name, _Entry] = Field(min_length=1, description="variants")


@dataclass(frozen=True)
class PeerVariant(Look):
    """One variant of libtorrent.

    Attributes:
        series: Folders of its patches, on top of the observer.
        rule: What a peer of it names as its request rule.
    """

    series: tuple[str, ...]
    rule: str


def load_peer_variants(root: Path) -> dict[str, PeerVariant]:
    """The variants by name, in the file's order.

    Raises:
        UserError: The file is missing, or everything that is wrong with it; or a series is missing.
    """
    content = read_registry(root, FOLDER, _File, lambda file, tree: twins(file.variants, tree))
    variants = {
        name: PeerVariant(name=name, **entry.model_dump())
        for name, entry in content.variants.items()
    }
    for variant in variants.values():
        series_of(root, variant)
    return variants


def base_series(root: Path) -> Series:
    """The patches that every variant has: the observer."""
    return load_series(root, OBSERVER, FOLDER)


def series_of(root: Path, variant: PeerVariant) -> tuple[Series, ...]:
    """The patches of a variant on top of the observer.

    Raises:
        UserError: A folder or a patch is missing.
    """
    return tuple(load_series(root, name, FOLDER) for name in variant.series)
