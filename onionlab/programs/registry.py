"""Shared parts of both registries of variants (Tor's and libtorrent's): models and reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from onionlab.errors import UserError
from onionlab.yamlfile.field_types import Color, Text, one_of
from onionlab.yamlfile.model import AnyModel, Model, display_name, key, read_model
from onionlab.yamlfile.tree import Node, Problem

HINT = "the comments of the shipped file, such as tor-patches/variants.yaml, explain every key"
LINESTYLES = ("-", "--", "-.", ":")

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$")]
"""The name of a variant or of a patch series."""


class VariantDisplay(Model):
    """A variant's display properties in tables and figures."""

    description: Text = key(description="one line for tables")
    label: Text = key(description="name in figures")
    color: Color = key(description="colour in figures")
    marker: Text = key(description="matplotlib marker")
    linestyle: Annotated[str, one_of(*LINESTYLES)] = key(description="matplotlib line style")


def read_registry(
    root: Path,
    path: Path,
    model: type[AnyModel],
    inconsistencies: Callable[[AnyModel, Node], Iterable[Problem]],
) -> AnyModel:
    """Read a registry of the checkout ``root``.

    model: the model of the whole file. inconsistencies: a function that returns the errors of a
    file whose single values are valid. Raises UserError if the file is missing or has errors, which
    are all listed, one per line.
    """
    if not path.is_file():
        raise UserError(f"{path} not found")
    return read_model(path, display_name(path, root), model, HINT, inconsistencies)[0]


def require_known(names: Iterable[str], variants: Mapping[str, object], folder: str) -> None:
    """Raise UserError for a name that is not in the registry in ``folder``."""
    for name in names:
        if name not in variants:
            raise UserError(
                f"unknown variant {name!r}",
                f"Variants in {folder}/variants.yaml: {', '.join(variants)}.",
            )


def find_indistinguishable_styles(
    variants: Mapping[str, VariantDisplay], tree: Node
) -> Iterable[Problem]:
    """Yield a problem for each variant that looks like an earlier one in figures.

    ``tree``: the whole file, with line numbers.
    """
    seen: dict[tuple[str, str, str], str] = {}
    for name, variant in variants.items():
        same = seen.setdefault((variant.color.lower(), variant.marker, variant.linestyle), name)
        if same != name:
            yield tree.locate(
                ("variants", name),
                f"looks like {same}: color, marker and linestyle are all the same",
            )
