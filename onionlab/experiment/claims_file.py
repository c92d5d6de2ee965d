"""Files of claims (`experiments/claims/*.yaml`): what a paper says, as data, read strictly.

Every claim is checked against the table of metrics and against the experiments whose runs are to
answer it, so that a misspelt level or variant is found before anything runs.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from analysis.judgement.claims.claim import Claim
from analysis.judgement.claims.directions import DIRECTIONS
from analysis.measures.catalogue import METRICS, OWN
from analysis.measures.data import ALL
from onionlab.errors import UserError
from onionlab.experiment.experiment import Experiment
from onionlab.experiment.file_kinds import AnySettings
from onionlab.experiment.finding import EXPERIMENTS, SUFFIX, experiment_names
from onionlab.experiment.load import load
from onionlab.experiment.schema import RELAY_ROLES, AnyClassName, LevelName, MetricName, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.paths import is_file
from onionlab.yamlfile.field_types import PositiveFraction, PositiveNumber, Text, one_of
from onionlab.yamlfile.model import Model
from onionlab.yamlfile.reading import (
    MAX_PROBLEMS,
    as_user_error,
    display_name,
    in_order,
    read_model,
)
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

HINT = "docs/reference/claims.md explains every key"
MAX_FIGURE = 1000
FOLDER = f"{EXPERIMENTS}/claims"

Name = LevelName
"""Everything that has a name in these files is spelt with the same letters."""

_SCOPE = {metric.name: metric.scope for metric in METRICS}


class ClaimEntry(Model):
    """One claim of a file."""

    id: Name = Field(description="its name in tables")
    statement: Text = Field(description="what the paper says, in other words")
    section: Text = Field(description="where it says so; in quotes")
    figures: tuple[Annotated[int, Field(ge=1, le=MAX_FIGURE)], ...] = Field(
        (), strict=False, description="numbers of the paper's figures that it is about"
    )
    metrics: tuple[MetricName, ...] = Field(
        strict=False,
        min_length=1,
        description="metrics of docs/reference/metrics.md; it has to hold in each",
    )
    class_name: AnyClassName = Field(
        alias="class", description="a class of clients, a role of traced relays, or all"
    )
    levels: tuple[LevelName, ...] = Field(
        strict=False,
        min_length=1,
        description="where it has to hold; a trend goes from the first to the last",
    )
    variants: tuple[Name, ...] = Field(
        strict=False, min_length=1, description="of what, as the direction takes them"
    )
    direction: Annotated[str, one_of(*DIRECTIONS)] = Field(description="what is claimed")
    margin: PositiveFraction | None = Field(
        None,
        description="what counts as the same: a share, for rates percentage points; without it as "
        "in the experiments",
    )
    value: PositiveNumber | None = Field(
        None,
        description="what the paper names, in the metric's unit; for below, above and about",
    )


class ClaimsFile(Model):
    """A whole file of claims."""

    paper: Text = Field(description="which paper")
    experiments: tuple[Name, ...] = Field(
        strict=False,
        min_length=1,
        description="the experiments that repeat it; those of their figures that have a number in "
        "the paper are drawn",
    )
    claims: tuple[ClaimEntry, ...] = Field(
        strict=False, min_length=1, description="its claims, in the order of the tables"
    )


@dataclass(frozen=True)
class ClaimSet:
    """A paper's claims and the experiments that repeat it.

    Attributes:
        name: of the file.
        paper: which paper.
        experiments: by name, in the file's order.
        claims: at least one.
    """

    name: str
    paper: str
    experiments: dict[str, Experiment]
    claims: tuple[Claim, ...]


def claim_files(root: Path) -> list[str]:
    """The names of all files of claims, sorted."""
    return sorted(path.stem for path in (root / FOLDER).glob(f"*{SUFFIX}"))


def load_claims(name_or_path: str, *, root: Path) -> ClaimSet:
    """The claims of a file in `experiments/claims/`, or at a path that ends in ``.yaml``.

    Raises:
        UserError: no such file, or everything that is wrong with it, one line each; or an
            experiment that it names cannot be loaded.
    """
    path = _find(name_or_path, root)
    file = display_name(path, root)
    content, tree, problems = read_model(path, file, ClaimsFile)
    experiments: dict[str, Experiment] = {}
    if content is not None and tree is not None:
        missing = [
            tree.locate(
                ("experiments", position), f"no experiment {show(name)}{nearest(name, there)}"
            )
            for there in [experiment_names(root)]
            for position, name in enumerate(content.experiments)
            if name not in there
        ]
        problems += missing
        if not missing:
            experiments = {name: load(name, root=root) for name in content.experiments}
            problems += itertools.islice(_impossible(content, tree, experiments), MAX_PROBLEMS)
    if problems or content is None:
        raise as_user_error(file, in_order(problems, [file]), HINT)
    return ClaimSet(
        path.stem,
        content.paper,
        experiments,
        tuple(Claim(**entry.model_dump()) for entry in content.claims),
    )


def _find(name_or_path: str, root: Path) -> Path:
    if name_or_path.endswith(SUFFIX) or os.sep in name_or_path:
        path = Path(name_or_path)
        if not is_file(path):
            raise UserError(f"no file of claims {show(name_or_path)}")
        return path
    names = claim_files(root)
    if name_or_path not in names:
        raise UserError(
            f"no claims called {show(name_or_path)}{nearest(name_or_path, names)}",
            f"{FOLDER}/ has: {', '.join(names) or 'nothing'}",
        )
    return root / f"{FOLDER}/{name_or_path}{SUFFIX}"


def _impossible(
    content: ClaimsFile, tree: Node, experiments: dict[str, Experiment]
) -> Iterator[Problem]:
    """What no run could answer though each value is well formed."""
    for position, twice in _repeated(content.experiments):
        yield tree.locate(("experiments", position), f"{show(twice)} is listed twice")
    for position, twice in _repeated(entry.id for entry in content.claims):
        yield tree.locate(("claims", position, "id"), f"{show(twice)} is listed twice")
    for position, entry in enumerate(content.claims):
        for location, message in _of_claim(entry, experiments):
            yield tree.locate(("claims", position, *location), message)


Found = Iterator[tuple[tuple[str | int, ...], str]]


def _of_claim(entry: ClaimEntry, experiments: dict[str, Experiment]) -> Found:
    for key in ("figures", "metrics", "levels", "variants"):
        for position, twice in _repeated(getattr(entry, key)):
            yield (key, position), f"{show(twice)} is listed twice"
    yield from _metrics(entry)
    levels = {level for one in experiments.values() for level in one.levels}
    yield from _known("levels", entry.levels, levels)
    variants = {name for one in experiments.values() for name in one.variants}
    yield from _known("variants", entry.variants, variants)
    for level in entry.levels:
        here = {v for one in experiments.values() if level in one.levels for v in one.variants}
        for position, name in enumerate(entry.variants):
            if level in levels and name in variants and name not in here:
                yield ("variants", position), f"no experiment runs {name} at the level {level}"
    known_classes = [
        _classes(level.settings) for one in experiments.values() for level in one.levels.values()
    ]
    if None not in known_classes:
        known = {name for names in known_classes for name in names or ()}
        yield from _known("class", (entry.class_name,), known | {ALL})
    numbers = {f.paper for one in experiments.values() for f in one.figures if f.paper is not None}
    for position, number in enumerate(entry.figures):
        if number not in numbers:
            yield ("figures", position), f"no experiment draws the paper's figure {number}"
    direction = DIRECTIONS[entry.direction]
    if direction.takes_value != (entry.value is not None):
        yield (
            ("direction",) if entry.value is None else ("value",),
            f"{entry.direction} takes {'a value' if direction.takes_value else 'no value'}: "
            f"{direction.meaning}",
        )
    for key, least in (("levels", direction.min_levels), ("variants", direction.min_variants)):
        if len(getattr(entry, key)) < least:
            yield (key,), f"{entry.direction} takes at least {least}: {direction.meaning}"


def _classes(settings: AnySettings) -> tuple[str, ...] | None:
    """None where imported networks would tell them that are not here.

    Packs of runs on such networks are read without them.
    """
    if isinstance(settings, TornetSettings) and settings.network.facts is None:
        return None
    return (*settings.classes, *_traced_roles(settings))


def _traced_roles(settings: AnySettings) -> tuple[str, ...]:
    """Roles whose relays may be traced; they are classes to the analysis."""
    if not isinstance(settings, Settings) or settings.tor.trace.where == "none":
        return ()
    return RELAY_ROLES


def _metrics(entry: ClaimEntry) -> Found:
    for position, name in enumerate(entry.metrics):
        if name not in _SCOPE:
            yield ("metrics", position), f"unknown metric {show(name)}{nearest(name, OWN.judged)}"
        elif name not in OWN.judged:
            yield (
                ("metrics", position),
                f"{name} depends on how many streams were started, so it gets no verdict"
                f"{nearest(name.replace('count', 'rate'), OWN.judged)}",
            )
        elif entry.class_name == ALL and _SCOPE[name] != "both":
            yield ("class",), f"{name} is a metric of single classes, not of all"


def _known(key: str, names: tuple[str, ...], known: set[str]) -> Found:
    for position, name in enumerate(names):
        if name not in known:
            place: tuple[str | int, ...] = (key,) if key == "class" else (key, position)
            yield (
                place,
                f"expected one of {', '.join(sorted(known))}, got {show(name)}"
                f"{nearest(name, known)}",
            )


def _repeated(names: Iterable[object]) -> Iterator[tuple[int, object]]:
    """Positions of names that stood before."""
    seen: Counter[object] = Counter()
    for position, name in enumerate(names):
        seen[name] += 1
        if seen[name] == 2:
            yield position, name
