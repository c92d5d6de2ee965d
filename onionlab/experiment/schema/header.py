"""The keys of a file that are not settings of its runs: title, networks, levels, figures."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar, get_args

from pydantic import Field

from analysis.formats.study import Scope
from onionlab.experiment import values
from onionlab.experiment.schema.names import (
    IDENTIFIER,
    POSITIVE_COUNT,
    RELAY_ROLES,
    AnyClassName,
    LevelName,
    MetricName,
)
from onionlab.experiment.schema.settings import Settings
from onionlab.yamlfile.field_types import PositiveFraction, PositiveNumber, Text, one_of
from onionlab.yamlfile.model import Model, key

DefaultFigureKind = Literal["throughput-timeouts", "ttfb-320kib", "quantile-ratios"]
"""Figures of each level of an experiment with Tor that lists none."""
DEFAULT_FIGURE_KINDS: tuple[str, ...] = get_args(DefaultFigureKind)
FigureKind = Literal[DefaultFigureKind, "stream-progress", "starvation-map"]

COMPARING_FIGURE_KINDS = ("quantile-ratios",)
"""Kinds that need at least two variants."""


SettingsT = TypeVar("SettingsT")
FigureKindT = TypeVar("FigureKindT")


class LevelEntry(Model, Generic[SettingsT]):
    """One level of an experiment: the same comparison under another setting."""

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
"""All endpoints share one error rate, so each further one makes the tests of all stricter."""


class EndpointEntry(Model):
    """A metric for the verdicts on variants."""

    class_name: AnyClassName = key(
        alias="class", description="a class of clients, a role of traced relays, or all"
    )
    metric: MetricName = key(description="a metric of docs/reference/metrics.md")


class Header(Model, Generic[SettingsT, FigureKindT]):
    """The keys of an experiment file that are not settings of its runs."""

    extends: values.FileNames = key(
        (),
        validate_default=False,
        description="a file or a list of files, relative to `experiments/` (with `./` or `../` to "
        "this file), whose keys this file adds to or replaces",
    )
    title: Text = key(description="one line, for lists and reports")
    description: Text = key(description="its question, and the reason")
    paper: Text | None = key(None, description="the section or figures that it reproduces")
    networks: values.Networks = key(
        description="a number n (networks 1 to n) or a list; every variant runs on every network. "
        "A network is the seed of its relays, capacities, places, latencies, keys and weights"
    )
    seeds: values.Networks | None = key(None, description="another name of `networks`")
    repeats: Annotated[int, Field(ge=1, le=values.MAX_REPEATS)] = key(
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
    """A row of the report's table of cell times, in milliseconds from inbuf to flush."""

    cells: Annotated[int, Field(ge=1, le=10**12)] = key(description="how many")
    minimum_ms: PositiveNumber = key(description="the shortest time")
    quartile1_ms: PositiveNumber = key(description="the first quartile")
    median_ms: PositiveNumber = key(description="the median")
    mean_ms: PositiveNumber = key(description="the mean")
    quartile3_ms: PositiveNumber = key(description="the third quartile")
    maximum_ms: PositiveNumber = key(description="the longest time")


class CellTimesOfGroups(Model):
    """Numbers on the cells of one level, by circuits."""

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
    """The header of an experiment with Tor."""

    published_cell_times: PublishedCellTimes | None = key(
        None, description="published cell times, which the report shows with the experiment's own"
    )


class ExperimentFile(Settings, TorHeader):
    """A whole experiment file. What it extends may supply any of its keys."""
