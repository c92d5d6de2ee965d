"""study.json: what was planned and run, checked before anything is computed from it."""

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
from analysis.formats.json_files import read_as, write_json
from analysis.formats.plan_file import PlannedRun, network_words
from analysis.formats.public_tor import PublicTor

Scope = Literal["networks", "one-network"]
"""What the verdicts of a study are about."""

Replicate = Literal["network", "repeat"]
"""What has one value of a metric in each scope."""

LARGEST_SCALE = 1e6
"""No network is so many times its full size."""

LONGEST_S = 366 * 86_400.0
"""No run takes longer: as long as a time in an experiment's file may be."""


class Variant(FormatModel):
    """One system under comparison, and how every figure shows it."""

    name: str = Field(min_length=1, description="what runs and figures call it")
    label: str = Field(description="its name in figures")
    description: str = Field(default="", description="one line for tables")
    color: str = Field(description="its colour, #rrggbb")
    marker: str = Field(description="Matplotlib's marker")
    linestyle: str | tuple[FiniteFloat, tuple[FiniteFloat, ...]] = Field(
        description="Matplotlib's line style: its name, or offset and lengths of the dashes"
    )


class ClassLoad(FormatModel):
    """What one class of clients does. ``None``: no such limit, or not fixed."""

    timeout_s: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="a stream that takes longer is given up; null: none is",
    )
    stallout_s: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="a stream without a byte for so long is given up; null: none is",
    )
    request_bytes: int | None = Field(
        default=None, description="payload of each stream; null: not fixed"
    )
    count: int | None = Field(default=None, description="clients of the class; null: not known")
    load: bool = Field(
        default=False,
        description="whether they are there for the load alone: what they carry is told, and no "
        "times of their streams",
    )


class Level(FormatModel):
    """One setting of the network; the measured span is [measured_start_s, measured_end_s)."""

    name: str = Field(min_length=1, description="what runs and figures call it")
    label: str = Field(description="its name in tables and figures")
    measured_start_s: float = Field(
        ge=0, description="simulated time from which streams that start count"
    )
    measured_end_s: float = Field(description="simulated time before which they count")
    stop_s: float = Field(le=LONGEST_S, description="simulated time at which runs end")
    classes: dict[str, ClassLoad] = Field(description="class of clients -> what they do")
    relays: dict[str, int] = Field(
        default={}, description="role -> relays that are simulated; empty: none, or not known"
    )
    capacities_bytes_per_s: dict[str, float] = Field(
        default={},
        description="role -> what its relays can carry together, headers and all, by their links "
        "or their own limits; empty: not known",
    )
    coordinates: dict[str, float] = Field(
        default={},
        description="where the level lies among others, for figures that show several: name and "
        "unit -> value",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Level:
        if not self.measured_start_s < self.measured_end_s <= self.stop_s:
            raise ValueError("measured_start_s < measured_end_s <= stop_s does not hold")
        return self

    def same_as(self, other: Level) -> bool:
        """Return whether both describe one setting. What only one of them records is ignored."""
        untold: dict[str, dict[str, float]] = {
            name: {}
            for name in ("relays", "capacities_bytes_per_s")
            if not (getattr(self, name) and getattr(other, name))
        }
        return self.model_copy(update=untold) == other.model_copy(update=untold)

    @property
    def measured_s(self) -> float:
        """Length of the measured span."""
        return self.measured_end_s - self.measured_start_s

    def horizon_s(self, class_name: str) -> float:
        """How long every stream started in the span is watched at least, unless it ends earlier.

        The class's timeout, or the time from the end of the span to the end of the run where that
        is shorter or there is no timeout.
        """
        after = self.stop_s - self.measured_end_s
        timeout = self.classes[class_name].timeout_s if class_name in self.classes else None
        return min(timeout, after) if timeout else after


class Endpoint(FormatModel):
    """A metric of one class that variants are judged by."""

    model_config = ConfigDict(populate_by_name=True)

    class_name: str = Field(alias="class", description="class of clients, or all")
    metric: str = Field(description="name of the metric")

    @property
    def key(self) -> tuple[str, str]:
        """Class and metric."""
        return self.class_name, self.metric


class RoleCapacity(FormatModel):
    """How the capacity of a role's relays is divided in one network."""

    limited: float = Field(
        ge=0, le=1, description="share that relays have which BandwidthRate limits, not their link"
    )
    largest: float = Field(ge=0, le=1, description="share that the largest relay has")


class FigureSpec(FormatModel):
    """One figure to draw; ``paper``: the number of the paper's figure that it repeats."""

    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of its file, without ending"
    )
    kind: str = Field(description="what it shows, a kind that analysis.figures knows")
    level: str = Field(description="name of the level that it shows")
    title: str = Field(default="", description="what stands above it; empty: what its kind says")
    paper: int | None = Field(
        default=None, description="number of the paper's figure that it repeats"
    )


class Run(FormatModel):
    """One run; directories are relative to the store."""

    run_id: str = Field(description="its name in the store")
    level: str = Field(description="name of its level")
    variant: str = Field(description="name of its variant")
    seed: int = Field(description="its network; runs of one level and network are paired")
    repeat: int = Field(default=1, description="which of the runs on its network it is, from 1 on")
    directory: str = Field(description="its directory, below the store")
    records: str = Field(description="its records, below the store")


@dataclass(frozen=True)
class PlannedLooks:
    """When the data was, or will be, looked at by one plan: a budget, or a number of seeds."""

    sizes: Annotated[
        tuple[int, ...], Field(description="pairs of runs at each look so far, increasing")
    ]
    budget: Annotated[int, Field(description="the most pairs that there may ever be")]

    def __post_init__(self) -> None:
        increasing = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        if not self.sizes or not increasing or self.sizes[0] < 1 or self.sizes[-1] > self.budget:
            raise ValueError(f"looks need to grow from 1 to at most {self.budget}: {self.sizes}")

    @property
    def plan(self) -> tuple[tuple[int, ...], int]:
        """Sizes and budget, as ``inference.sequential`` takes them."""
        return self.sizes, self.budget

    @property
    def judges(self) -> bool:
        """Return whether the last look can judge: one pair of runs has no spread."""
        return self.sizes[-1] > 1


@dataclass(frozen=True)
class Looks(PlannedLooks):
    """All looks at the data: those of the present plan, and those of plans before it."""

    earlier: Annotated[
        tuple[PlannedLooks, ...],
        Field(description="looks at the same runs under plans before this one, in their order"),
    ] = ()

    @property
    def fractions(self) -> tuple[float, ...]:
        """Share of this plan's budget used at each of its looks."""
        return tuple(size / self.budget for size in self.sizes)

    @property
    def telling(self) -> tuple[PlannedLooks, ...]:
        """Those before that told something of these runs: not one pair, nor of more runs only."""
        return tuple(
            past for past in self.earlier if past.judges and past.sizes[0] <= self.sizes[-1]
        )

    @property
    def several(self) -> bool:
        """Return whether more than one look could judge."""
        return bool(self.telling) or sum(size > 1 for size in self.sizes) > 1

    @property
    def plans(self) -> list[tuple[tuple[int, ...], int]]:
        """Sizes and budget of each plan that told something, this one last."""
        return [*(past.plan for past in self.telling), self.plan]


@dataclass(frozen=True)
class CellTimes:
    """Times in milliseconds, of ``count`` cells. All NaN without any."""

    count: Annotated[int, Field(description="cells")]
    minimum_ms: Annotated[float, Field(description="the shortest time")]
    quartile1_ms: Annotated[float, Field(description="a quarter of the cells took at most that")]
    median_ms: Annotated[float, Field(description="half of the cells took at most that")]
    mean_ms: Annotated[float, Field(description="mean time")]
    quartile3_ms: Annotated[float, Field(description="three quarters took at most that")]
    maximum_ms: Annotated[float, Field(description="the longest time")]


class PublishedCellTimes(FormatModel):
    """What others measured of cells."""

    source: str = Field(description="where the numbers stand")
    role: str = Field(description="role of the relays that they are of")
    levels: dict[str, dict[Literal["all", "busiest", "quiet", "busy"], CellTimes]] = Field(
        description="level -> group of circuits -> its numbers"
    )


class Study(FormatModel):
    """study.json: what was planned and run, for the analysis."""

    format: Literal[1] = Field(description="version")
    name: str = Field(description="name of the experiment")
    title: str = Field(description="what stands above the report")
    description: str = Field(default="", description="what the experiment asks, for the report")
    baseline: str | None = Field(
        default=None, description="name of the variant that others are compared with; null: none is"
    )
    variants: tuple[Variant, ...] = Field(min_length=1, description="the systems under comparison")
    levels: tuple[Level, ...] = Field(min_length=1, description="the settings of the network")
    figures: tuple[FigureSpec, ...] = Field(default=(), description="the figures to draw")
    runs: tuple[Run, ...] = Field(description="all runs, also those that are not made yet")
    networks: dict[str, dict[int, dict[str, RoleCapacity]]] = Field(
        default={},
        description="level -> seed of a network -> role -> how the relays' capacity is divided; "
        "empty: not known",
    )
    margins: dict[str, float] = Field(
        default={}, description="metric -> what counts as the same, instead of the usual"
    )
    endpoints: tuple[Endpoint, ...] = Field(
        default=(),
        description="what variants are judged by, the most important first; empty: the usual",
    )
    published_cell_times: PublishedCellTimes | None = Field(
        default=None, description="what others measured of cells, for the report's table"
    )
    public_tor: PublicTor | None = Field(
        default=None, description="what was measured of the public Tor, for lines in figures"
    )
    scope: Scope = Field(
        default="networks",
        description="what verdicts are about: networks like these, where the replicate is a "
        "network, or one network, where it is a repeat",
    )
    looks: Looks | None = Field(
        default=None,
        description="when the runs were looked at while seeds were added; null: once",
    )
    asked: dict[str, Any] = Field(
        default={}, description="what was asked for: experiment, scale, seeds and the like"
    )
    shrunk: tuple[str, ...] = Field(
        default=(), description="what the scale made smaller, a sentence each"
    )
    provenance: dict[str, Any] = Field(
        default={},
        description="what made the runs: engine, tor (programs), machine, and runs: what each of "
        "the finished runs took",
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
        """The level of that name."""
        return next(level for level in self.levels if level.name == name)

    @property
    def scale(self) -> float:
        """Share of the full size at which the networks are simulated; 1 where it is not known."""
        scale = self.asked.get("scale")
        if isinstance(scale, int | float) and 0 < scale <= LARGEST_SCALE:
            return float(scale)
        return 1.0

    def label(self, level: Level) -> str:
        """A level for readers. At another scale it is not the network that its name speaks of."""
        return level.label if self.scale == 1 else f"{level.label} at scale {self.scale:g}"

    def title_of(self, figure: FigureSpec) -> str:
        """Return the title of a figure, with its level."""
        level = self.level(figure.level)
        title = figure.title or figure.id
        # As words of their own, and the last ones: the level's may stand in other words as well.
        found = [*re.finditer(rf"(?<!\w){re.escape(level.label)}(?!\w)", title)]
        if not found:
            return f"{title}, {self.label(level)}"
        begin, end = found[-1].span()
        return f"{title[:begin]}{self.label(level)}{title[end:]}"

    def runs_of(self, level: str, variant: str) -> list[Run]:
        """Runs of a variant at a level, by seed and repeat."""
        runs = [run for run in self.runs if (run.level, run.variant) == (level, variant)]
        return sorted(runs, key=lambda run: (run.seed, run.repeat))

    def replicate(self, run: Run) -> int:
        """Return what pairs a run: its network, or in the scope of one network its repeat."""
        return run.repeat if self.scope == "one-network" else run.seed

    @property
    def replicate_word(self) -> Replicate:
        """What ``replicate`` numbers."""
        return "repeat" if self.scope == "one-network" else "network"

    @property
    def networks_run(self) -> list[int]:
        """The seeds of the networks that have runs, ascending."""
        return sorted({run.seed for run in self.runs})

    @property
    def repeats(self) -> int:
        """The most runs that a variant has on one network at one level; 0 without runs."""
        return max(Counter((r.level, r.variant, r.seed) for r in self.runs).values(), default=0)

    def words(self, run: Run | PlannedRun) -> str:
        """Return a run for readers: its level where there are several, its variant, its network."""
        level = [run.level] if len(self.levels) > 1 else []
        return ", ".join([*level, run.variant, network_words(run.seed, run.repeat)])

    def listed(self, runs: Sequence[Run]) -> str:
        """Runs for readers; of many the first few."""
        more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
        return "; ".join(map(self.words, runs[:SHOWN])) + more

    @contextmanager
    def naming(self, run: Run | PlannedRun) -> Iterator[None]:
        """While the block lasts, what is wrong with a run's files is told with the run's name."""
        try:
            yield
        except AnalysisError as error:
            where = f"{self.name}, {self.words(run)}"
            raise AnalysisError(f"{where}: {error.message}", error.hint) from error


def _unique(what: str, names: Iterable[object]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what} {twice[0]} is there more than once")


def load_study(path: Path) -> Study:
    """Reads and checks a study.json.

    Raises:
        AnalysisError: missing, not JSON, or not a valid study; says which fields.
    """
    return read_as(Study, path, "study", missing="plan or run the experiment first")


def write_study(path: Path, study: Study) -> None:
    """Writes a study.json so that a reader sees the old one or the whole new one."""
    write_json(path, study.content())
