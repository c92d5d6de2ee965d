"""Read the claims of a paper from `experiments/claims/*.yaml`.

Every claim is checked against the table of metrics and against the experiments whose runs answer
it. So a misspelt name of a variant, or of a level (one of the conditions under which an experiment
compares its variants), is found before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from analysis.judgement.claims.claim import Claim
from analysis.judgement.claims.directions import DIRECTIONS
from analysis.measures.catalogue import METRICS, OWN
from analysis.measures.data import ALL
from onionlab.errors import UserError
from onionlab.experiment.endpoints import classes_with_metrics
from onionlab.experiment.experiment import Experiment
from onionlab.experiment.header import EXPERIMENTS, SUFFIX
from onionlab.experiment.load import experiment_names, is_path, load
from onionlab.experiment.network_settings import AnyClassName, LevelName, MetricName
from onionlab.paths import is_file
from onionlab.yamlfile.field_types import PositiveFraction, PositiveNumber, Text, one_of
from onionlab.yamlfile.model import Model, display_name, read_model
from onionlab.yamlfile.tree import Location, Node, Problem
from onionlab.yamlfile.units import nearest, show

HINT = "docs/reference/claims.md explains every key"
MAX_FIGURE = 1000
FOLDER = f"{EXPERIMENTS}/claims"

Name = LevelName
"""The type of the names of claims, experiments and variants."""

_SCOPE = {metric.name: metric.scope for metric in METRICS}


class ClaimEntry(Model):
    """One claim of a file."""

    id: Name = Field(description="name of the claim in tables")
    statement: Text = Field(description="a paraphrase of the paper's statement")
    section: Text = Field(description="section of the paper that has the statement; in quotes")
    figures: tuple[Annotated[int, Field(ge=1, le=MAX_FIGURE)], ...] = Field(
        (), strict=False, description="numbers of the paper's figures that show it"
    )
    metrics: tuple[MetricName, ...] = Field(
        strict=False,
        min_length=1,
        description="metrics of docs/reference/metrics.md; the claim has to hold for each",
    )
    class_name: AnyClassName = Field(
        alias="class", description="a class of clients, a role of traced relays, or all"
    )
    levels: tuple[LevelName, ...] = Field(
        strict=False,
        min_length=1,
        description="levels at which it has to hold; a trend goes from the first to the last",
    )
    variants: tuple[Name, ...] = Field(
        strict=False,
        min_length=1,
        description="variants to compare, in the order that the direction needs",
    )
    direction: Annotated[str, one_of(*DIRECTIONS)] = Field(description="kind of the claim")
    margin: PositiveFraction | None = Field(
        None,
        description="equivalence margin: a share, or percentage points for rates; by default as in "
        "the experiments",
    )
    value: PositiveNumber | None = Field(
        None, description="the paper's value, in the metric's unit; only for below, above and about"
    )


class ClaimsFile(Model):
    """A whole file of claims."""

    paper: Text = Field(description="reference of the paper")
    experiments: tuple[Name, ...] = Field(
        strict=False,
        min_length=1,
        description="the experiments that repeat it; their figures with a number in the paper are "
        "drawn",
    )
    claims: tuple[ClaimEntry, ...] = Field(
        strict=False, min_length=1, description="claims of the paper, in the order of the tables"
    )


@dataclass(frozen=True)
class ClaimSet:
    """A paper's claims and the experiments that repeat it, by name; both in the file's order."""

    name: str
    paper: str
    experiments: dict[str, Experiment]
    claims: tuple[Claim, ...]


def claim_files(root: Path) -> list[str]:
    """Return the names of all files of claims, without suffix, sorted."""
    return sorted(path.stem for path in (root / FOLDER).glob(f"*{SUFFIX}"))


def load_claims(name_or_path: str, *, root: Path) -> ClaimSet:
    """Return the claims of a file in `experiments/claims/`, or of a path that ends in ``.yaml``.

    Raises:
        UserError: the file is missing or has errors, which are all listed, one per line; or one of
            its experiments cannot be loaded.
    """
    path = _find(name_or_path, root)
    experiments: dict[str, Experiment] = {}

    def check(content: ClaimsFile, tree: Node) -> Iterator[Problem]:
        known = experiment_names(root)
        for position, name in enumerate(content.experiments):
            if name in known:
                experiments[name] = load(name, root=root)
            else:
                message = f"no experiment {show(name)}{nearest(name, known)}"
                yield tree.locate(("experiments", position), message)
        if len(experiments) == len({*content.experiments}):
            yield from (tree.locate(*one) for one in _find_problems(content, experiments))

    content, _ = read_model(path, display_name(path, root), ClaimsFile, HINT, check)
    claims = tuple(Claim(**entry.model_dump()) for entry in content.claims)
    return ClaimSet(path.stem, content.paper, experiments, claims)


def _find(name_or_path: str, root: Path) -> Path:
    if is_path(name_or_path):
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


Found = Iterator[tuple[Location, str]]
"""Pairs of a location in the file and the problem there."""


def _find_problems(content: ClaimsFile, experiments: dict[str, Experiment]) -> Found:
    """Yield the problems that checks of single values cannot find.

    Examples are an entry that is listed twice, and a claim that no run of the experiments answers.
    """
    yield from _find_repeated(("experiments",), content.experiments)
    ids = [entry.id for entry in content.claims]
    for position, entry in enumerate(content.claims):
        if entry.id in ids[:position]:
            yield ("claims", position, "id"), f"{show(entry.id)} is listed twice"
        for location, message in _check_claim(entry, experiments):
            yield ("claims", position, *location), message


def _check_claim(entry: ClaimEntry, experiments: dict[str, Experiment]) -> Found:
    for key in ("figures", "metrics", "levels", "variants"):
        yield from _find_repeated((key,), getattr(entry, key))
    yield from _check_metrics(entry)
    runs = {
        (level, name)
        for one in experiments.values()
        for level in one.levels
        for name in one.variants
    }
    levels, variants = ({run[part] for run in runs} for part in (0, 1))
    yield from _check_known("levels", entry.levels, levels)
    yield from _check_known("variants", entry.variants, variants)
    for level in entry.levels:
        for position, name in enumerate(entry.variants):
            if level in levels and name in variants and (level, name) not in runs:
                yield ("variants", position), f"no experiment runs {name} at the level {level}"
    known_classes = [
        classes_with_metrics(level.settings)
        for one in experiments.values()
        for level in one.levels.values()
    ]
    # Claims can be answered from the runs in a pack, without the networks of the runs.
    if None not in known_classes:
        known = {name for names in known_classes for name in names or ()}
        yield from _check_known("class", (entry.class_name,), known | {ALL})
    numbers = {figure.paper for one in experiments.values() for figure in one.figures}
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


def _check_metrics(entry: ClaimEntry) -> Found:
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


def _check_known(key: str, names: Sequence[str], known: Collection[str]) -> Found:
    for position, name in enumerate(names):
        if name not in known:
            place: Location = (key,) if key == "class" else (key, position)
            words = ", ".join(sorted(known))
            yield place, f"expected one of {words}, got {show(name)}{nearest(name, known)}"


def _find_repeated(place: Location, names: Sequence[object]) -> Found:
    for position, name in enumerate(names):
        if names[:position].count(name) == 1:
            yield (*place, position), f"{show(name)} is listed twice"
