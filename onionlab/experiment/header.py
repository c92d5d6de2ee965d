"""The keys of a file that are not settings of its runs, such as title, networks and figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args

from pydantic import BeforeValidator, Field

from analysis.formats.byte_marks import MARK_FIGURES, format_size
from analysis.formats.study import Scope, find_main_class
from onionlab.experiment.network_settings import (
    IDENTIFIER,
    POSITIVE_COUNT,
    AnyClassName,
    LevelName,
    MetricName,
)
from onionlab.experiment.settings import Settings
from onionlab.network.draws import MAX_SEED
from onionlab.network.layout import RELAY_ROLES
from onionlab.yamlfile.field_types import PositiveFraction, PositiveNumber, Text, one_of
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

EXPERIMENTS = "experiments"
SUFFIX = ".yaml"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
RESERVED_NAMES = re.compile(r"figures(?:-.*)?|bisect|compare|nightly|celltrace-live|.*-engines")
"""Names that experiments cannot have, because other commands write to results/NAME."""
MAX_SEEDS = 10_000
MAX_REPEATS = 1_000

_FileName = Annotated[str, Field(min_length=1)]


def parse_networks(value: object) -> tuple[int, ...]:
    """Return the networks 1 to n for a number n, or the networks in a list.

    Raises ValueError for any other value.
    """
    expected = (
        f"expected a number of networks (1 to {MAX_SEEDS}) or a list of different ones such as "
        "[1, 2, 7], got"
    )
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
        return tuple(range(1, value + 1))
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= MAX_SEEDS:
        raise ValueError(f"{expected} {'an empty list' if value == [] else show(value)}")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int):
            raise ValueError(f"{expected} {show(one)} in the list")
        if not 0 <= one <= MAX_SEED:
            raise ValueError(f"{expected} {one}: not from 0 to {MAX_SEED}")
    if len(set(value)) < len(value):
        twice = next(one for one in value if value.count(one) > 1)
        raise ValueError(f"{expected} {twice} twice")
    return tuple(value)


NETWORKS_SCHEMA = (
    Annotated[int, Field(ge=1, le=MAX_SEEDS)]
    | Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_SEED)]],
        Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    ]
)
Networks = Annotated[
    tuple[int, ...], BeforeValidator(parse_networks, json_schema_input_type=NETWORKS_SCHEMA)
]
"""A number n (networks 1 to n) or a list of different networks. A network's number is its seed."""

DefaultFigureKind = Literal["throughput-timeouts", *MARK_FIGURES, "quantile-ratios"]  # type: ignore[valid-type]
FigureKind = Literal[DefaultFigureKind, "stream-progress", "starvation-map"]

COMPARING_FIGURE_KINDS = ("quantile-ratios",)
"""Kinds of figures that need at least two variants."""

SettingsT = TypeVar("SettingsT")
FigureKindT = TypeVar("FigureKindT")


class LevelEntry(Model, Generic[SettingsT]):
    """One level of an experiment: the same comparison under other conditions."""

    label: Text = key(description="its name in figures and tables")
    overrides: SettingsT | None = key(None, description="settings that differ from the file's")


class Figure(Model, Generic[FigureKindT]):
    """One figure of the report."""

    id: Annotated[str, IDENTIFIER] = key(description="name of its files")
    kind: FigureKindT = key(description="what it shows")
    level: Annotated[str, IDENTIFIER] | None = key(
        None, description="its level; not needed if there is only one"
    )
    title: Text | None = key(None, description="its title; by default made from kind and level")
    paper: Annotated[int, POSITIVE_COUNT] | None = key(
        None, description="number of the figure that it reproduces, in the paper"
    )


MAX_ENDPOINTS = 4
"""Maximum number of endpoints. They share an error rate, so each endpoint makes tests stricter."""


class EndpointEntry(Model):
    """A metric of a class, by which variants are judged."""

    class_name: AnyClassName = key(
        alias="class", description="a class of clients, a role of traced relays, or all"
    )
    metric: MetricName = key(description="a metric of docs/reference/metrics.md")


class Header(Model, Generic[SettingsT, FigureKindT]):
    """The keys of an experiment file that are not settings of its runs."""

    default_figures: ClassVar[tuple[str, ...]]
    """The kinds of figures that each level has if the file lists no figures."""

    # Only for the schema: the loader removes this key.
    extends: _FileName | Annotated[list[_FileName], Field(min_length=1)] = key(
        [],
        validate_default=False,
        description="a file or a list of files, relative to `experiments/` (with `./` or `../` to "
        "this file), whose keys this file adds to or replaces",
    )
    title: Text = key(description="one line, for lists and reports")
    description: Text = key(description="its question, and the reason")
    paper: Text | None = key(None, description="the section or figures that it reproduces")
    networks: Networks = key(
        description="a number n (networks 1 to n) or a list; every variant runs on every network. "
        "A network is the seed of its relays, capacities, places, latencies, keys and weights"
    )
    seeds: Networks | None = key(None, description="another name of `networks`")
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = key(
        1,
        description="runs of each variant on each network. They differ in the clients' starts, "
        "pauses and servers, and in Tor's random numbers",
    )
    scope: Scope = key(
        "networks",
        description="what verdicts apply to: `networks` like these (the replicate is a network), "
        "or `one-network` (the replicate is a repeat; needs one network and two repeats or more)",
    )
    levels: dict[LevelName, LevelEntry[SettingsT]] = key(
        {}, description="settings to compare; by default one level with the name of the experiment"
    )
    figures: tuple[Figure[FigureKindT], ...] = key(
        (), strict=False, description="figures of the report; by default each kind for each level"
    )
    margins: dict[MetricName, PositiveFraction] = key(
        {},
        description="equivalence margin of metrics: a share of the baseline, for rates percentage "
        "points; by default as in docs/reference/statistics.md",
    )
    endpoints: tuple[EndpointEntry, ...] = key(
        (),
        strict=False,
        max_length=MAX_ENDPOINTS,
        description="metrics for the verdicts, the most important one first; by default as in "
        "docs/reference/statistics.md",
    )


class CellTimes(Model):
    """A row of the report's table of the times of cells inside relays, in milliseconds.

    A time begins when the cell was read (event inbuf) and ends when it was handed to the kernel
    (event flush).
    """

    cells: Annotated[int, Field(ge=1, le=10**12)] = key(description="how many")
    minimum_ms: PositiveNumber = key(description="the shortest time")
    quartile1_ms: PositiveNumber = key(description="the first quartile")
    median_ms: PositiveNumber = key(description="the median")
    mean_ms: PositiveNumber = key(description="the mean")
    quartile3_ms: PositiveNumber = key(description="the third quartile")
    maximum_ms: PositiveNumber = key(description="the longest time")


class CellTimesOfGroups(Model):
    """Cell times of one level, by group of circuits."""

    all: CellTimes | None = key(None, description="all circuits")
    busiest: CellTimes | None = key(None, description="the busiest circuit")
    quiet: CellTimes | None = key(None, description="quiet circuits")
    busy: CellTimes | None = key(None, description="busy circuits")


class PublishedCellTimes(Model):
    """Cell times from a publication, for the report's table of cell times."""

    source: Text = key(description="source of the numbers, a short label")
    role: Annotated[str, one_of(*RELAY_ROLES)] = key(
        description="role of the relays whose table shows them"
    )
    levels: dict[LevelName, CellTimesOfGroups] = key(
        description="numbers of each level; levels that the experiment does not have are ignored"
    )


class TorHeader(Header[Settings, FigureKind]):
    """The header of an experiment that runs Tor in generated networks and has no key `kind`."""

    default_figures = get_args(DefaultFigureKind)

    published_cell_times: PublishedCellTimes | None = key(
        None, description="published cell times, which the report shows with the experiment's own"
    )


class ExperimentFile(Settings, TorHeader):
    """All keys of an experiment file, for its schema and reference and for suggestions of names.

    No key is required, because the files that the file extends may supply any key.
    """


FIGURE_TITLES = {
    "throughput-timeouts": "Network throughput and timeouts",
    **{
        kind: f"Time to first byte and to {format_size(mark)}"
        for kind, mark in MARK_FIGURES.items()
    },
    "quantile-ratios": "Times as ratios to the baseline's",
    "stream-progress": "Bytes of each stream over time",
    "starvation-map": "Starvation by bottleneck and number of streams",
    "transfer-window": "Congestion window, bytes in flight and requests",
    "perf-transfer-times": "Transfer times",
    "perf-circuits": "Circuits and first bytes",
    "perf-goodput": "Client goodput and errors",
    "relay-goodput": "Goodput of relays",
}


def resolve_figures(
    header: Header[Any, Any], tree: Node, levels: dict[str, Any]
) -> tuple[tuple[Figure[Any], ...], list[Problem]]:
    """Return the figures, each with its level and title, and the problems that they have.

    If the file lists no figures, each level has one figure of each default kind.
    """
    variants = next(iter(levels.values())).settings.compared.variants
    listed = header.figures or tuple(
        Figure[Any].model_construct(id=f"{level}-{kind}", kind=kind, level=level)
        for level in levels
        for kind in header.default_figures
        if len(variants) > 1 or kind not in COMPARING_FIGURE_KINDS
    )
    problems = []
    figures = []
    for position, figure in enumerate(listed):
        where = ("figures", position)
        if any(other.id == figure.id for other in listed[:position]):
            problems.append(tree.locate((*where, "id"), f"{show(figure.id)} is listed twice"))
        level = figure.level
        if level is None and len(levels) == 1:
            level = next(iter(levels))
        if level not in levels:
            names = ", ".join(levels)
            message = f"expected one of the levels {names}, got {show(level)}"
            message += nearest(level or "", levels)
            problems.append(tree.locate((*where, "level"), message))
            continue
        title = figure.title or f"{FIGURE_TITLES[figure.kind]}, {levels[level].label}"
        figures.append(figure.model_copy(update={"level": level, "title": title}))
    return tuple(figures), problems


def figures_without_streams(
    figures: tuple[Figure[Any], ...], tree: Node, levels: dict[str, Any]
) -> Iterator[Problem]:
    """Yield a problem for each figure of a download time, if its level's main class lacks it.

    Such a figure shows the time to a certain number of bytes. TGen logs this time for a stream of
    exactly this size. For a larger stream, TGen logs it only at the log level info.
    """
    for position, figure in enumerate(figures):
        settings = levels[figure.level or ""].settings
        mark = MARK_FIGURES.get(figure.kind)
        name = find_main_class(settings.traffic)
        if mark and not settings.logs_mark(name, mark):
            size = format_size(mark)
            message = f"the figure shows the class {name}, which does not request {size}"
            message += f", so its streams have no time to {size}"
            yield tree.locate(("figures", position, "kind"), message)
