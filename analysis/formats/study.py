"""study.json: the plan and the runs of an experiment, validated before analysis."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from analysis.errors import SHOWN, AnalysisError
from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import reader, write_json
from analysis.formats.plan_file import PlannedRun, format_network

Scope = Literal["networks", "one-network"]
"""The population that the verdicts of a study are about.

It is either all networks like those of the study, or the one network on which all runs were
repeated.
"""

Replicate = Literal["network", "repeat"]
"""The unit of replication in each scope."""

STEPS = 1000
"""For the public Tor, the quantiles at the probabilities 0, 1/STEPS, ... 1 are stored."""

MAX_SCALE = 1e6
"""Maximum size of a network relative to its full size."""

MAIN_CLASS = "web"
"""The class of clients whose times matter most, as in the SWRR paper; some studies lack it."""

MAX_RUN_S = 366 * 86_400.0
"""Maximum length of a run, equal to the maximum time in an experiment's file."""


class Variant(FormatModel):
    """One system under comparison, and its appearance in figures."""

    name: str = Field(min_length=1, description="name in runs and figures")
    label: str = Field(description="name in figures")
    description: str = Field(default="", description="one line for tables")
    color: str = Field(description="its colour, #rrggbb")
    marker: str = Field(description="Matplotlib's marker")
    linestyle: str | tuple[FiniteFloat, tuple[FiniteFloat, ...]] = Field(
        description="Matplotlib's line style: its name, or offset and lengths of the dashes"
    )


class ClassLoad(FormatModel):
    """The behaviour of one class of clients.

    A value is None if it is unlimited, not fixed, or unknown.
    """

    timeout_s: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="a longer stream is aborted; null: no limit",
    )
    stallout_s: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="a stream without a byte for this long is aborted; null: no limit",
    )
    request_bytes: int | None = Field(
        default=None, description="payload of each stream; null: not fixed"
    )
    count: int | None = Field(default=None, description="clients of the class; null: unknown")
    load: bool = Field(
        default=False,
        description="whether they are only background load: their throughput is reported, but no "
        "times of their streams",
    )


def find_main_class(names: Iterable[str]) -> str:
    """Return the class whose times figures show: ``MAIN_CLASS`` if it exists, or the first name."""
    return min(names, key=lambda name: (name != MAIN_CLASS, name), default=MAIN_CLASS)


class Level(FormatModel):
    """One setting of the network; the measured span is [measured_start_s, measured_end_s)."""

    name: str = Field(min_length=1, description="name in runs and figures")
    label: str = Field(description="its name in tables and figures")
    measured_start_s: float = Field(
        ge=0, description="simulated time from which streams that start count"
    )
    measured_end_s: float = Field(description="simulated time before which they count")
    stop_s: float = Field(le=MAX_RUN_S, description="simulated time at which runs end")
    classes: dict[str, ClassLoad] = Field(description="class of clients -> its behaviour")
    relays: dict[str, int] = Field(
        default={}, description="role -> simulated relays; empty: none, or unknown"
    )
    capacities_bytes_per_s: dict[str, float] = Field(
        default={},
        description="role -> total capacity of its relays, including headers, by their links "
        "or their own limits; empty: unknown",
    )
    coordinates: dict[str, float] = Field(
        default={},
        description="position of the level in figures that show several: name and unit -> value",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Level:
        if not self.measured_start_s < self.measured_end_s <= self.stop_s:
            raise ValueError("measured_start_s < measured_end_s <= stop_s does not hold")
        return self

    def same_as(self, other: Level) -> bool:
        """Return whether both levels are the same setting.

        Numbers and capacities of relays are compared only if both levels have them.
        """
        unrecorded: dict[str, dict[str, float]] = {
            name: {}
            for name in ("relays", "capacities_bytes_per_s")
            if not (getattr(self, name) and getattr(other, name))
        }
        return self.model_copy(update=unrecorded) == other.model_copy(update=unrecorded)

    @property
    def main_class(self) -> str:
        """Return the class whose times figures show."""
        return find_main_class(self.classes)

    def horizon_s(self, class_name: str) -> float:
        """Return the minimum time for which streams that start in the measured span are observed.

        This is the class's timeout or, if it is shorter, the time from the end of the span to the
        end of the run. If the class has no timeout, this is the time to the end of the run.
        """
        after = self.stop_s - self.measured_end_s
        timeout = self.classes[class_name].timeout_s if class_name in self.classes else None
        return min(timeout, after) if timeout else after


class Endpoint(FormatModel):
    """A metric of one class by which variants are judged."""

    model_config = ConfigDict(populate_by_name=True)

    class_name: str = Field(alias="class", description="class of clients, or all")
    metric: str = Field(description="name of the metric")

    @property
    def key(self) -> tuple[str, str]:
        """Class and metric."""
        return self.class_name, self.metric


class RoleCapacity(FormatModel):
    """The distribution of a role's capacity over its relays in one network."""

    limited: float = Field(
        ge=0, le=1, description="share on relays that BandwidthRate limits, not their link"
    )
    largest: float = Field(ge=0, le=1, description="share on the largest relay")


class FigureSpec(FormatModel):
    """One figure to draw."""

    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of its file, without extension"
    )
    kind: str = Field(description="kind of figure, as in analysis.figures")
    level: str = Field(description="name of its level")
    title: str = Field(default="", description="its title; empty: its id")
    paper: int | None = Field(
        default=None, description="number of the figure in the paper that it reproduces"
    )


class Run(FormatModel):
    """One run; directories are relative to the store."""

    run_id: str = Field(description="its name in the store")
    level: str = Field(description="name of its level")
    variant: str = Field(description="name of its variant")
    seed: int = Field(description="its network; runs of one level and network are paired")
    repeat: int = Field(default=1, description="number of the run on its network, from 1")
    directory: str = Field(description="its directory, below the store")
    records: str = Field(description="its records, below the store")


@dataclass(frozen=True)
class PlannedLooks:
    """The interim analyses ("looks") under one plan.

    A plan either limits the number of pairs of runs by a budget, or fixes the number of networks.
    """

    sizes: Annotated[
        tuple[int, ...], Field(description="pairs of runs at each look so far, increasing")
    ]
    budget: Annotated[int, Field(description="maximum number of pairs")]

    def __post_init__(self) -> None:
        increasing = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        if not self.sizes or not increasing or self.sizes[0] < 1 or self.sizes[-1] > self.budget:
            raise ValueError(
                f"looks must increase from at least 1 to at most {self.budget}: {self.sizes}"
            )

    @property
    def plan(self) -> tuple[tuple[int, ...], int]:
        """``sizes`` and ``budget`` as a pair, which ``inference.sequential`` calls a plan."""
        return self.sizes, self.budget

    @property
    def judges(self) -> bool:
        """True if the last look has several pairs, so that a test can estimate their spread."""
        return self.sizes[-1] > 1


@dataclass(frozen=True)
class Looks(PlannedLooks):
    """All looks at the data, under the present plan and under earlier ones."""

    earlier: Annotated[
        tuple[PlannedLooks, ...],
        Field(description="looks at the same runs under earlier plans, in order"),
    ] = ()

    @property
    def judging_plans(self) -> tuple[PlannedLooks, ...]:
        """Earlier plans with tests of pairs that the present plan tests again.

        Such a plan had more than one pair at its last look; a single pair cannot be tested. At its
        first look, it had at most as many pairs as the present plan had at its latest look.
        """
        return tuple(
            past for past in self.earlier if past.judges and past.sizes[0] <= self.sizes[-1]
        )

    @property
    def several(self) -> bool:
        """True if more than one look had enough pairs for a test."""
        return bool(self.judging_plans) or sum(size > 1 for size in self.sizes) > 1

    @property
    def plans(self) -> list[tuple[tuple[int, ...], int]]:
        """The ``plan`` of each of the ``judging_plans``, followed by the present ``plan``."""
        return [*(past.plan for past in self.judging_plans), self.plan]


@dataclass(frozen=True)
class CellTimes:
    """Statistics of the times of ``count`` cells, in milliseconds; NaN if there are no cells."""

    count: Annotated[int, Field(description="cells")]
    minimum_ms: Annotated[float, Field(description="the shortest time")]
    quartile1_ms: Annotated[float, Field(description="first quartile")]
    median_ms: Annotated[float, Field(description="median")]
    mean_ms: Annotated[float, Field(description="mean time")]
    quartile3_ms: Annotated[float, Field(description="third quartile")]
    maximum_ms: Annotated[float, Field(description="the longest time")]


class PublishedCellTimes(FormatModel):
    """Measurements of cells from a publication."""

    source: str = Field(description="source of the numbers")
    role: str = Field(description="role of the measured relays")
    levels: dict[str, dict[Literal["all", "busiest", "quiet", "busy"], CellTimes]] = Field(
        description="level -> group of circuits -> its numbers"
    )


class PublicTor(FormatModel):
    """Quantile functions of measurements of the public Tor, which `tornettools stage` collects."""

    source: str = Field(description="name of their file, tor_metrics_*.json")
    sha256: str = Field(description="of that file")
    network_scale: float | None = Field(
        default=None,
        gt=0,
        description="size of the simulated networks as a share of the public Tor's, by which its "
        "relays' goodput is multiplied; null: unknown, and not shown",
    )
    counts: dict[str, int] = Field(description="quantity -> how many values were measured of it")
    quantiles: dict[str, tuple[float, ...]] = Field(
        description="quantity (of analysis.figures.tornettools) -> its quantiles at the shares 0, "
        "0.001, ... 1, each a measured value: times in s, goodputs in bit/s, error rates "
        "in per cent"
    )
    not_counted: tuple[str, ...] = Field(
        default=(), description="notes on ignored parts of the file"
    )


class Study(FormatModel):
    """study.json: the plan and the runs of an experiment, for the analysis."""

    format: Literal[1] = Field(description="version")
    name: str = Field(description="name of the experiment")
    title: str = Field(description="title of the report")
    description: str = Field(default="", description="question of the experiment, for the report")
    baseline: str | None = Field(
        default=None, description="name of the variant that others are compared with; null: none is"
    )
    variants: tuple[Variant, ...] = Field(min_length=1, description="the systems under comparison")
    levels: tuple[Level, ...] = Field(min_length=1, description="the settings of the network")
    figures: tuple[FigureSpec, ...] = Field(default=(), description="the figures to draw")
    runs: tuple[Run, ...] = Field(description="all runs, including unfinished ones")
    networks: dict[str, dict[int, dict[str, RoleCapacity]]] = Field(
        default={},
        description="level -> seed of a network -> role -> distribution of the relays' capacity; "
        "empty: unknown",
    )
    margins: dict[str, float] = Field(
        default={}, description="metric -> equivalence margin, instead of the default"
    )
    endpoints: tuple[Endpoint, ...] = Field(
        default=(), description="metrics that decide, the most important first; empty: the default"
    )
    published_cell_times: PublishedCellTimes | None = Field(
        default=None, description="published measurements of cells, for the report's table"
    )
    public_tor: PublicTor | None = Field(
        default=None, description="measurements of the public Tor, for lines in figures"
    )
    scope: Scope = Field(
        default="networks",
        description="scope of verdicts: networks like these, with a network as the replicate, "
        "or one network, with a repeat as the replicate",
    )
    looks: Looks | None = Field(
        default=None,
        description="interim looks at the runs while seeds were added; null: only one look",
    )
    asked: dict[str, Any] = Field(
        default={}, description="the request: experiment, scale, seeds and other options"
    )
    shrunk: tuple[str, ...] = Field(
        default=(), description="effects of the scale, one sentence each"
    )
    provenance: dict[str, Any] = Field(
        default={},
        description="origin of the runs: engine, tor (programs), machine, and runs: the costs of "
        "each finished run",
    )

    @model_validator(mode="after")
    def _names_agree(self) -> Study:
        variants = {variant.name for variant in self.variants}
        levels = {level.name for level in self.levels}
        _unique("variant", (variant.name for variant in self.variants))
        _unique("level", (level.name for level in self.levels))
        _unique("figure", (figure.id for figure in self.figures))
        _unique("run of", ((run.level, run.variant, run.seed, run.repeat) for run in self.runs))
        if self.baseline is not None and self.baseline not in variants:
            raise ValueError(f"baseline {self.baseline} is not one of the variants")
        for run in self.runs:
            if run.variant not in variants:
                raise ValueError(f"run {run.run_id} has the unknown variant {run.variant}")
            if run.level not in levels:
                raise ValueError(f"run {run.run_id} has the unknown level {run.level}")
        for figure in self.figures:
            if figure.level not in levels:
                raise ValueError(f"figure {figure.id} has the unknown level {figure.level}")
        return self

    def level(self, name: str) -> Level:
        """Return the level with this name."""
        return next(level for level in self.levels if level.name == name)

    @property
    def scale(self) -> float:
        """Share of the full size at which the networks are simulated; 1 if unknown."""
        scale = self.asked.get("scale")
        if isinstance(scale, int | float) and 0 < scale <= MAX_SCALE:
            return float(scale)
        return 1.0

    def label(self, level: Level) -> str:
        """Return the label of a level, with the scale if the networks do not have full size."""
        return level.label if self.scale == 1 else f"{level.label} at scale {self.scale:g}"

    def figure_title(self, figure: FigureSpec) -> str:
        """Return the title of a figure, with the label and scale of its level."""
        level = self.level(figure.level)
        title = figure.title or figure.id
        # Search for whole words, because the level's label may also be part of other words.
        found = [*re.finditer(rf"(?<!\w){re.escape(level.label)}(?!\w)", title)]
        if not found:
            return f"{title}, {self.label(level)}"
        begin, end = found[-1].span()
        return f"{title[:begin]}{self.label(level)}{title[end:]}"

    def runs_of(self, level: str, variant: str) -> list[Run]:
        """Return the runs of a variant at a level, sorted by seed and repeat."""
        runs = [run for run in self.runs if (run.level, run.variant) == (level, variant)]
        return sorted(runs, key=lambda run: (run.seed, run.repeat))

    def replicate(self, run: Run) -> int:
        """Return the number by which a run is paired.

        This is the seed of its network or, if the scope is one network, the number of its repeat.
        """
        return run.repeat if self.scope == "one-network" else run.seed

    @property
    def replicate_unit(self) -> Replicate:
        """Kind of replicate: "repeat" if the scope is one network, otherwise "network"."""
        return "repeat" if self.scope == "one-network" else "network"

    @property
    def networks_run(self) -> list[int]:
        """The seeds of the networks that have runs, ascending."""
        return sorted({run.seed for run in self.runs})

    @property
    def repeats(self) -> int:
        """Maximum number of runs of a variant on one network at one level; 0 without runs."""
        return max(Counter((r.level, r.variant, r.seed) for r in self.runs).values(), default=0)

    def describe(self, run: Run | PlannedRun) -> str:
        """Return the variant and network of a run, and its level if the study has several."""
        level = [run.level] if len(self.levels) > 1 else []
        return ", ".join([*level, run.variant, format_network(run.seed, run.repeat)])

    def format_runs(self, runs: Sequence[Run]) -> str:
        """Return a text that names the first ``SHOWN`` runs, and the number of others."""
        more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
        return "; ".join(map(self.describe, runs[:SHOWN])) + more

    @contextmanager
    def naming(self, run: Run | PlannedRun) -> Iterator[None]:
        """Add the names of the experiment and the run to an AnalysisError raised in the block."""
        try:
            yield
        except AnalysisError as error:
            where = f"{self.name}, {self.describe(run)}"
            raise AnalysisError(f"{where}: {error.message}", error.hint) from error


def _unique(what: str, names: Iterable[object]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what} {twice[0]} occurs more than once")


load_study = reader(Study, "study", missing="plan or run the experiment first")


def write_study(path: Path, study: Study) -> None:
    """Write a study.json atomically, so that readers see either the old or the new one."""
    write_json(path, study.content())
