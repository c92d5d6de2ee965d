"""The list of what runs every night (experiments/nightly.yaml)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from onionlab.experiment import values
from onionlab.experiment.finding import experiment_names, is_path
from onionlab.experiment.seeds import TWO_NAMES
from onionlab.yamlfile.field_types import PositiveNumber, Text
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.reading import (
    MAX_PROBLEMS,
    as_user_error,
    display_name,
    in_order,
    read_model,
)
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

MAX_NIGHTS = 100_000
HINT = "a line of experiments is, for instance: {name: quick, variants: [ewma], networks: 10}"


def _check_networks(value: object) -> object:
    values.parse_networks(value)
    return value


NetworksAsWritten = Annotated[
    int | list[int] | None,
    BeforeValidator(_check_networks, json_schema_input_type=values.NETWORKS_SCHEMA),
]


class NightlyEntry(Model):
    """One experiment of the list, as it is asked for."""

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
    repeats: Annotated[int, Field(ge=1, le=values.MAX_REPEATS)] | None = key(
        None, description="runs on each network; without it the experiment's"
    )
    scale: PositiveNumber | None = key(None, description="SCALE")
    engine: Text = key("auto", description="auto or an engine's name")


class NightlyList(Model):
    """experiments/nightly.yaml."""

    false_alarms_per_year: PositiveNumber = key(
        2.0, description="alarms without a cause, over all experiments together"
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
        """Chance of any false difference in one experiment's comparison of one night."""
        a_night = min(0.5, self.false_alarms_per_year / self.nights_per_year)
        return a_night / len(self.experiments)


def read_nightly_list(path: Path, *, root: Path) -> NightlyList:
    """The list of a file; its experiments are those of a checkout, ``root``.

    Raises:
        UserError: the file is missing, or everything that is wrong with it, one line each.
    """
    file = display_name(path, root)
    content, tree, problems = read_model(path, file, NightlyList)
    if content is not None and tree is not None:
        impossible = _impossible(content, tree, experiment_names(root))
        problems += itertools.islice(impossible, MAX_PROBLEMS)
    if problems or content is None:
        raise as_user_error(file, in_order(problems, [file]), HINT)
    return content


def _impossible(content: NightlyList, tree: Node, known: list[str]) -> Iterator[Problem]:
    """What no night could run though each value is well formed."""
    before: set[str] = set()
    for position, entry in enumerate(content.experiments):
        where = ("experiments", position, "name")
        if not is_path(entry.name) and entry.name not in known:
            message = f"no experiment {show(entry.name)}{nearest(entry.name, known)}"
            yield tree.locate(where, message)
        if entry.name in before:
            message = f"{show(entry.name)} is listed twice; name all its variants in one line"
            yield tree.locate(where, message)
        before.add(entry.name)
        if entry.networks is not None and entry.seeds is not None:
            yield tree.locate(("experiments", position, "seeds"), TWO_NAMES)
