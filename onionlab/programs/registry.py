"""What registries of variants share: how a variant looks, and how such a file is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from onionlab.errors import UserError
from onionlab.yamlfile.field_types import Color, Text, one_of
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.reading import AnyModel, as_user_error, display_name, in_order, read_model
from onionlab.yamlfile.tree import Node, Problem

HINT = "the comments at the top of the file explain every key"
LINESTYLES = ("-", "--", "-.", ":")

Name = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$"),
]
"""Of a variant, or of a series of patches."""


class LookModel(Model):
    """What tables and figures show of a variant."""

    description: Text = key(description="one line for tables")
    label: Text = key(description="name in figures")
    color: Color = key(description="colour in figures")
    marker: Text = key(description="matplotlib marker")
    linestyle: Annotated[str, one_of(*LINESTYLES)] = key(description="matplotlib line style")


@dataclass(frozen=True)
class Look:
    """A variant as tables and figures show it.

    Attributes:
        name: What experiments call it.
        description: One line for tables.
        label: Its name in figures.
        color: ``#rrggbb``.
        marker: Matplotlib's marker.
        linestyle: Matplotlib's line style.
    """

    name: str
    description: str
    label: str
    color: str
    marker: str
    linestyle: str


def read_registry(
    root: Path,
    folder: str,
    model: type[AnyModel],
    impossible: Callable[[AnyModel, Node], Iterable[Problem]],
) -> AnyModel:
    """What ``variants.yaml`` in a folder of the checkout holds.

    Args:
        root: The checkout.
        folder: The one with the patches.
        model: The whole file's.
        impossible: What is wrong with it though each value is well formed.

    Raises:
        UserError: The file is missing, or everything that is wrong with it, one line each.
    """
    path = root / f"{folder}/variants.yaml"
    if not path.is_file():
        raise UserError(f"there is no {path}")
    file = display_name(path, root)
    content, tree, problems = read_model(path, file, model)
    if content is not None and tree is not None:
        problems += impossible(content, tree)
    if problems or content is None:
        raise as_user_error(file, in_order(problems, [file]), HINT)
    return content


def twins(looks: Mapping[str, LookModel], tree: Node) -> Iterable[Problem]:
    """Variants that no reader of a figure could tell apart; ``tree``: the whole file's."""
    seen: dict[tuple[str, str, str], str] = {}
    for name, look in looks.items():
        twin = seen.setdefault((look.color.lower(), look.marker, look.linestyle), name)
        if twin != name:
            yield tree.locate(
                ("variants", name),
                f"looks like {twin}: color, marker and linestyle are all the same",
            )
