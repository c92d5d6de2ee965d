"""The registry of libtorrent's variants: ``libtorrent-patches/variants.yaml``.

A variant is a build: the observer that all have, and the patch series that it names. The file says
in its own comments what each key means.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onionlab.errors import UserError
from onionlab.tor.variants import Series, load_series

__all__ = ["FOLDER", "PeerVariant", "base_series", "load_peer_variants", "series_of"]

FOLDER = "libtorrent-patches"
OBSERVER = "observer"

_Text = Annotated[str, Field(min_length=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    description: _Text
    label: _Text
    color: Annotated[str, Field(pattern=r"^#[0-9A-Fa-f]{6}$")]
    marker: _Text
    linestyle: Annotated[str, Field(pattern=r"^(-|--|-\.|:)$")]
    series: list[_Text]
    rule: Annotated[str, Field(pattern=r"^[a-z-]+$")]


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    variants: Annotated[dict[str, _Entry], Field(min_length=1)]


@dataclass(frozen=True)
class PeerVariant:
    """One variant of libtorrent.

    Attributes:
        name: What experiments call it.
        description: One line for tables.
        label: Its name in figures.
        color: ``#rrggbb``.
        marker: Matplotlib's marker.
        linestyle: Matplotlib's line style.
        series: Folders of its patches, on top of the observer.
        rule: What a peer of it names as its request rule.
    """

    name: str
    description: str
    label: str
    color: str
    marker: str
    linestyle: str
    series: tuple[str, ...]
    rule: str


def load_peer_variants(root: Path) -> dict[str, PeerVariant]:
    """The variants by name, in the file's order.

    Raises:
        UserError: The file is missing, is not YAML, or an entry is wrong; or a series is missing.
    """
    path = root / FOLDER / "variants.yaml"
    try:
        content = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise UserError(f"there is no {path}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path.name}: {where}: {first['msg']}") from error
    variants = {
        name: PeerVariant(name=name, **{**entry.model_dump(), "series": tuple(entry.series)})
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
