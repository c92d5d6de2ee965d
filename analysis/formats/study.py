"""study.json: what was planned and run, checked before anything is computed from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from analysis.celltrace.statistics import Summary
from analysis.errors import AnalysisError, problems_of
from analysis.inference.sequential import Looks


class _Model(BaseModel):
    # A newer plan may write more than this package reads.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Variant(_Model):
    """One system under comparison, and how every figure shows it."""

    name: str = Field(min_length=1)
    label: str
    description: str = ""
    color: str
    marker: str
    linestyle: str | tuple[float, tuple[float, ...]]


class ClassLoad(_Model):
    """What one class of clients does. ``None``: no such limit, or not fixed."""

    timeout_s: float | None = None
    stallout_s: float | None = None
    request_bytes: int | None = None
    count: int | None = None


class Level(_Model):
    """One setting of the network; the measured span is [measured_start_s, measured_end_s)."""

    name: str = Field(min_length=1)
    label: str
    measured_start_s: float = Field(ge=0)
    measured_end_s: float
    stop_s: float
    classes: dict[str, ClassLoad]
    coordinates: dict[str, float] = {}
    """Where the level lies among others, for figures that show several: name and unit -> value."""

    @model_validator(mode="after")
    def _in_order(self) -> Level:
        if not self.measured_start_s < self.measured_end_s <= self.stop_s:
            raise ValueError("measured_start_s < measured_end_s <= stop_s does not hold")
        return self

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


class FigureSpec(_Model):
    """One figure to draw; ``paper``: the number of the paper's figure that it repeats."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    kind: str
    level: str
    title: str = ""
    paper: int | None = None


class Run(_Model):
    """One run; directories are relative to the store."""

    run_id: str
    level: str
    variant: str
    seed: int
    directory: str
    records: str


class StudyLooks(_Model):
    """When the runs were looked at while seeds were added; see ``sequential.Looks``."""

    sizes: tuple[int, ...] = Field(min_length=1)
    budget: int

    @model_validator(mode="after")
    def _grow(self) -> StudyLooks:
        Looks(self.sizes, self.budget)
        return self


class PublishedCellTimes(_Model):
    """What others measured of cells; ``levels``: level -> group of circuits -> its numbers."""

    source: str
    role: str
    levels: dict[str, dict[Literal["all", "busiest", "quiet", "busy"], Summary]]


class Study(_Model):
    """The whole of study.json."""

    format: Literal[1]
    name: str
    title: str
    description: str = ""
    baseline: str | None = None
    variants: tuple[Variant, ...] = Field(min_length=1)
    levels: tuple[Level, ...] = Field(min_length=1)
    figures: tuple[FigureSpec, ...] = ()
    runs: tuple[Run, ...]
    margins: dict[str, float] = {}
    published_cell_times: PublishedCellTimes | None = None
    looks: StudyLooks | None = None
    asked: dict[str, Any] = {}
    shrunk: tuple[str, ...] = ()
    provenance: dict[str, Any] = {}

    @model_validator(mode="after")
    def _names_agree(self) -> Study:
        variants = {variant.name for variant in self.variants}
        levels = {level.name for level in self.levels}
        _unique("variant", (variant.name for variant in self.variants))
        _unique("level", (level.name for level in self.levels))
        _unique("figure", (figure.id for figure in self.figures))
        _unique("run of", ((run.level, run.variant, run.seed) for run in self.runs))
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

    def runs_of(self, level: str, variant: str) -> list[Run]:
        """Runs of a variant at a level, by seed."""
        runs = [run for run in self.runs if (run.level, run.variant) == (level, variant)]
        return sorted(runs, key=lambda run: run.seed)


def _unique(what: str, names: Iterable[object]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what} {twice[0]} is there more than once")


def load_study(path: Path) -> Study:
    """Reads and checks a study.json.

    Raises:
        AnalysisError: missing, not JSON, or not a valid study; says which fields.
    """
    try:
        return Study.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", "plan or run the experiment first") from None
    except ValidationError as error:
        problems = "; ".join(problems_of(error, "study"))
        raise AnalysisError(f"{path} is not a valid study: {problems}") from None
