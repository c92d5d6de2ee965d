"""The list of experiments that a nightly run performs (experiments/nightly.yaml)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from onionlab.experiment.header import MAX_REPEATS, NETWORKS_SCHEMA, parse_networks
from onionlab.experiment.load import TWO_NAMES, experiment_names, is_path
from onionlab.yamlfile.field_types import PositiveNumber, Text
from onionlab.yamlfile.model import Model, display_name, key, read_model
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

MAX_NIGHTS = 100_000
HINT = "a line of experiments is, for instance: {name: quick, variants: [ewma], networks: 10}"

NetworksAsWritten = Annotated[
    int | list[int] | None,
    BeforeValidator(
        lambda value: value if parse_networks(value) else None,
        json_schema_input_type=NETWORKS_SCHEMA,
    ),
]


class NightlyEntry(Model):
    """One experiment of the list."""

    name: Text = key(description="of the experiment, or its file's path")
    variants: tuple[Text, ...] = key(
        (), strict=False, description="some of its variants; without it all"
    )
    networks: NetworksAsWritten = key(
        None,
        validate_default=False,
        description="a number n (networks 1 to n) or a list; without it the experiment's",
    )
    seeds: NetworksAsWritten = key(
        None, validate_default=False, description="another name of `networks`"
    )
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] | None = key(
        None, description="runs on each network; without it the experiment's"
    )
    scale: PositiveNumber | None = key(None, description="SCALE")
    engine: Text = key("auto", description="auto or an engine's name")

    @property
    def experiment(self) -> str:
        """The name of the experiment."""
        return Path(self.name).stem if is_path(self.name) else self.name


class NightlyList(Model):
    """The content of experiments/nightly.yaml."""

    false_alarms_per_year: PositiveNumber = key(
        2.0,
        description="differences without a cause, over all experiments together; half are alarms",
    )
    nights_per_year: Annotated[int, Field(ge=1, le=MAX_NIGHTS)] = key(
        365, description="how often the list runs"
    )
    false_steps_per_year: PositiveNumber = key(
        1.0, description="step changes in the history without a cause"
    )
    experiments: tuple[NightlyEntry, ...] = key(
        strict=False, min_length=1, description="a line for each"
    )

    @property
    def level_per_experiment(self) -> float:
        """Return the accepted probability of a false difference per experiment and nightly run."""
        a_night = min(0.5, self.false_alarms_per_year / self.nights_per_year)
        return a_night / len(self.experiments)


def read_nightly_list(path: Path, *, root: Path) -> NightlyList:
    """Read the list from a file.

    root: the checkout that contains the experiments of the list.

    Raises:
        UserError: the file is missing or has errors, which are all listed, one per line.
    """
    names = experiment_names(root)
    check = functools.partial(_find_problems, known=names)
    return read_model(path, display_name(path, root), NightlyList, HINT, check)[0]


def _find_problems(content: NightlyList, tree: Node, known: list[str]) -> Iterator[Problem]:
    """Yield problems that keep the list from running although each value on its own is valid."""
    before: set[str] = set()
    for position, entry in enumerate(content.experiments):
        where = ("experiments", position, "name")
        if not is_path(entry.name) and entry.name not in known:
            message = f"no experiment {show(entry.name)}{nearest(entry.name, known)}"
            yield tree.locate(where, message)
        if entry.experiment in before:
            message = f"{show(entry.experiment)} is listed twice; name all its variants in one line"
            yield tree.locate(where, message)
        before.add(entry.experiment)
        if entry.networks is not None and entry.seeds is not None:
            yield tree.locate(("experiments", position, "seeds"), TWO_NAMES)
