"""The keys of a file that are not settings of its runs: title, networks, levels, figures."""

from __future__ import annotations

from typing import Annotated, get_args

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
from onionlab.yamlfile import kinds
from onionlab.yamlfile.model import Model, key

DEFAULT_FIGURE_KINDS = ("throughput-timeouts", "ttfb-320kib", "quantile-ratios")
"""What an experiment that names no figures gets for each level."""

COMPARING_FIGURE_KINDS = ("quantile-ratios",)
"""Those that show nothing where there is one variant only."""

TORNET_FIGURE_KINDS = ("perf-transfer-times", "perf-circuits", "perf-goodput", "relay-goodput")
"""Those of networks of tornettools."""

FIGURE_KINDS = (*DEFAULT_FIGURE_KINDS, "stream-progress", "starvation-map")


SCOPES = get_args(Scope)


class LevelEntry(Model):
    """One level of an experiment: the same comparison under another setting."""

    label: Annotated[str, kinds.text()] = key(description="what figures and tables call it")
    overrides: Settings | None = key(
        None,
        description="keys of `network`, `traffic`, `tor`, `time` and `engine` that differ here",
    )


class Figure(Model):
    """One figure of the report."""

    id: Annotated[str, IDENTIFIER] = key(description="name of its files")
    kind: Annotated[str, kinds.choice(*FIGURE_KINDS)] = key(description="what it shows")
    level: Annotated[str, IDENTIFIER] | None = key(
        None, description="which level it shows; not needed where there is only one"
    )
    title: Annotated[str, kinds.text()] | None = key(
        None, description="its title; without it one made from kind and level"
    )
    paper: Annotated[int, POSITIVE_COUNT] | None = key(
        None, description="number of the paper's figure that it repeats"
    )


MAX_ENDPOINTS = 4
"""All endpoints share one error level, so each more makes the tests of all of them stricter."""


class EndpointEntry(Model):
    """One metric that variants are judged by."""

    class_name: AnyClassName = key(
        alias="class", description="a class of clients, a role of traced relays, or all"
    )
    metric: MetricName = key(description="a metric of docs/reference/metrics.md")


class Header(Model):
    """What an experiment file holds besides the settings of its runs."""

    title: Annotated[str, kinds.text()] = key(description="one line, for lists and reports")
    description: Annotated[str, kinds.text()] = key(description="what it asks, and why")
    paper: Annotated[str, kinds.text()] | None = key(
        None, description="the section or figures it repeats"
    )
    networks: Annotated[tuple[int, ...], values.networks()] = key(
        description="a number n (networks 1 to n) or a list; every variant runs on every network. "
        "A network is the seed of its relays, capacities, places, latencies, keys and weights"
    )
    seeds: Annotated[tuple[int, ...], values.networks()] | None = key(
        None, description="another name of `networks`"
    )
    repeats: Annotated[int, kinds.whole_number(1, values.MAX_REPEATS)] = key(
        1,
        description="runs of each variant on each network, which differ in the clients' starts, "
        "pauses and servers, and in Tor's random numbers",
    )
    scope: Annotated[Scope, kinds.choice(*SCOPES)] = key(
        "networks",
        description="what verdicts are about: `networks` like these (the replicate is a network), "
        "or `one-network` (the replicate is a repeat; one network and two repeats or more)",
    )
    levels: dict[LevelName, LevelEntry] = key(
        {}, description="settings to compare; without it one level, named like the experiment"
    )
    figures: tuple[Figure, ...] = key(
        (), strict=False, description="figures of the report; without it each kind for each level"
    )
    margins: dict[MetricName, Annotated[float, kinds.fraction(positive=True)]] = key(
        {},
        description="what counts as the same, by metric: a share of the baseline, for rates "
        "percentage points; without it as in docs/reference/statistics.md",
    )
    endpoints: tuple[EndpointEntry, ...] = key(
        (),
        strict=False,
        max_length=MAX_ENDPOINTS,
        description="what variants are judged by, the most important first; without it as in "
        "docs/reference/statistics.md",
    )


class CellTimes(Model):
    """A line of numbers on cells, as the report has them: milliseconds from inbuf to flush."""

    cells: Annotated[int, kinds.whole_number(1, 10**12)] = key(description="how many")
    minimum_ms: Annotated[float, kinds.number()] = key(description="the shortest time")
    quartile1_ms: Annotated[float, kinds.number()] = key(description="the first quartile")
    median_ms: Annotated[float, kinds.number()] = key(description="the median")
    mean_ms: Annotated[float, kinds.number()] = key(description="the mean")
    quartile3_ms: Annotated[float, kinds.number()] = key(description="the third quartile")
    maximum_ms: Annotated[float, kinds.number()] = key(description="the longest time")


class CellTimesOfGroups(Model):
    """Numbers on the cells of one level, by circuits."""

    all: CellTimes | None = key(None, description="all circuits")
    busiest: CellTimes | None = key(None, description="the busiest circuit")
    quiet: CellTimes | None = key(None, description="quiet circuits")
    busy: CellTimes | None = key(None, description="busy circuits")


class PublishedCellTimes(Model):
    """What others measured, for the report's table of cell times."""

    source: Annotated[str, kinds.text()] = key(
        description="where the numbers come from, as short as a label"
    )
    role: Annotated[str, kinds.choice(*RELAY_ROLES)] = key(
        description="the table of which relays shows them"
    )
    levels: dict[LevelName, CellTimesOfGroups] = key(
        description="the numbers beside each level; levels that the experiment lacks do no harm"
    )


class TorHeader(Header):
    """The same of an experiment with Tor."""

    published_cell_times: PublishedCellTimes | None = key(
        None, description="what others measured of cells, shown beside the experiment's own"
    )


class ExperimentFile(Settings, TorHeader):
    """A whole experiment file. What it extends may supply any of its keys."""

    extends: Annotated[tuple[str, ...], values.file_names()] = key(
        (),
        validate_default=False,
        description="a file or a list of files, relative to `experiments/` (with `./` or `../` to "
        "this file), whose keys this file adds to or replaces",
    )
