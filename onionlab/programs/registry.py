"""What registries of variants share: how a variant looks, and the patches it is built with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from onionlab.errors import UserError
from onionlab.paths import shipped
from onionlab.yamlfile import kinds
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.reading import AnyModel, as_user_error, display_name, in_order, read_model
from onionlab.yamlfile.tree import Node, Problem

HINT = "the comments at the top of the file explain every key"
LINESTYLES = ("-", "--", "-.", ":")

Name = Annotated[
    str,
    kinds.name(r"[a-z0-9]+(?:-[a-z0-9]+)*", "lower-case letters, digits and single hyphens"),
]
"""Of a variant, or of a series of patches."""

TextValue = Annotated[str, kinds.text()]


class LookModel(Model):
    """What tables and figures show of a variant."""

    description: TextValue = key(description="one line for tables")
    label: TextValue = key(description="name in figures")
    color: Annotated[str, kinds.color()] = key(description="colour in figures")
    marker: TextValue = key(description="matplotlib marker")
    linestyle: Annotated[str, kinds.choice(*LINESTYLES)] = key(description="matplotlib line style")


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
    path = shipped(root, f"{folder}/variants.yaml")
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


@dataclass(frozen=True)
class Patch:
    """One patch: its file and the file's bytes."""

    path: Path
    content: bytes

    @property
    def sha256(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Series:
    """A patch series, in the order in which the patches apply."""

    name: str
    patches: tuple[Patch, ...]

    @property
    def provenance(self) -> list[dict[str, str]]:
        """The patches, as JSON."""
        return [{"name": patch.path.name, "sha256": patch.sha256} for patch in self.patches]


def load_series(root: Path, name: str, collection: str) -> Series:
    """The patches of one series, in the order of its file ``series``.

    Without such a file the patches apply in the order of their names. A name such as ``a+b`` stands
    for the patches of ``a`` and then those of ``b``. ``collection`` is the folder of the checkout
    that holds the series.

    Raises:
        UserError: The folder or a patch is missing, or a patch is left out of the order.
    """
    if "+" in name:
        parts = [load_series(root, part, collection) for part in name.split("+")]
        return Series(name, tuple(patch for part in parts for patch in part.patches))
    folder = shipped(root, f"{collection}/{name}")
    if not folder.is_dir():
        raise UserError(f"patch series {name}: there is no folder {collection}/{name}")
    present = sorted(path.name for path in folder.glob("*.patch"))
    order = folder / "series"
    if order.is_file():
        lines = (line.split("#", 1)[0].strip() for line in order.read_text("utf-8").splitlines())
        listed = [line for line in lines if line]
        for problem, names in (
            ("names a missing patch", sorted(set(listed) - set(present))),
            ("leaves out a patch", sorted(set(present) - set(listed))),
            ("names a patch twice", sorted({one for one in listed if listed.count(one) > 1})),
        ):
            if names:
                raise UserError(f"patch series {name}: its file `series` {problem}: {names[0]}")
    else:
        listed = present
    if not listed:
        raise UserError(f"patch series {name}: {collection}/{name} holds no *.patch")
    return Series(
        name, tuple(Patch(folder / entry, (folder / entry).read_bytes()) for entry in listed)
    )
