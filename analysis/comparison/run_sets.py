"""A set of runs as data: each run's statistics, and all that is known of what determined it.

The two sides of a comparison, a nightly baseline and an import are all such sets. Its file is JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from analysis.comparison.imported_metrics import IMPORTED
from analysis.errors import AnalysisError
from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import LARGEST_BYTES, read_as
from analysis.formats.study import Endpoint
from analysis.judgement.judging import Statistics, complete
from analysis.measures.catalogue import OWN
from analysis.measures.metric import Catalogue, Statistic

CATALOGUES: dict[str, Catalogue] = {"onionlab": OWN, "tornettools": IMPORTED}
"""By the name that a set gives its definitions."""


class TorBuild(FormatModel):
    """One Tor executable."""

    version: str = Field(description="of Tor")
    sha256: str = Field(description="of the executable")
    source: str = Field(default="", description="what it was built from; empty: not known")


class SetRun(FormatModel):
    """One run and what determined it; empty where that is not known."""

    run_id: str = Field(description="its name where it is stored")
    level: str = Field(description="name of its level")
    variant: str = Field(description="name of its variant")
    seed: int = Field(description="runs of one seed are paired, where paired says so")
    repeat: int = Field(default=1, description="which of the runs on its network it is, from 1 on")
    engine: dict[str, str] = Field(default={}, description="name, version and the like")
    tor: dict[str, TorBuild] = Field(default={}, description="program -> its build")
    files: dict[str, str] = Field(default={}, description="input file -> its SHA-256")
    records: dict[str, str] = Field(default={}, description="record file -> its SHA-256")
    project: str = Field(
        default="", description="version and commit of the program that made the run"
    )
    network: str = Field(
        default="",
        description="of an import: what says that a run of another import is of the same network",
    )

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Level, variant, seed and repeat."""
        return self.level, self.variant, self.seed, self.repeat


class Value(FormatModel):
    """One statistic of one network, the mean of its repeats; or why there is none."""

    model_config = ConfigDict(populate_by_name=True)

    level: str = Field(description="of the run")
    variant: str = Field(description="of the run")
    seed: int = Field(description="of the run")
    class_name: str = Field(alias="class", description="class of streams, or all")
    metric: str = Field(description="name of the metric, with its unit")
    value: float | None = Field(strict=True, description="null: there is none")
    reason: str = Field(default="", description="why there is none, or what it leaves out")
    repeats: tuple[Annotated[float, Field(strict=True)], ...] = Field(
        default=(), description="values of the network's runs; empty: it has one run"
    )


class Span(FormatModel):
    """When a level's streams count, and what its classes of clients do: class -> key -> value."""

    measured_start_s: float = Field(description="simulated time from which streams count")
    measured_end_s: float = Field(description="simulated time before which they count")
    stop_s: float = Field(description="simulated time at which runs end")
    load: dict[str, dict[str, float | None]] = Field(
        default={}, description="class -> what its clients do: key -> value"
    )


class RunSet(FormatModel):
    """A set of runs as data: an import, or a nightly baseline."""

    format: Literal[1] = Field(default=1, description="version")
    name: str = Field(description="for readers")
    definitions: str = Field(
        default="onionlab", description="whose definitions its metrics have: onionlab, tornettools"
    )
    records_format: int = Field(
        default=0, description="version of the records that its values come from; 0: not known"
    )
    paired: bool = Field(default=True, description="whether a seed means the same in another set")
    spans: dict[str, Span] = Field(default={}, description="level -> its measured span")
    margins: dict[str, float] = Field(
        default={}, description="metric -> what counts as the same, instead of the usual"
    )
    endpoints: tuple[Endpoint, ...] = Field(
        default=(), description="what it is judged by, the most important first; empty: the usual"
    )
    scope: str = Field(
        default="", description="what verdicts are about where all runs are of one network"
    )
    notes: tuple[str, ...] = Field(default=(), description="what a reader has to know of it")
    simulated: tuple[str, ...] = Field(
        default=(), description="scale, engine, relays and clients of its levels, in words"
    )
    texts: dict[str, str] = Field(
        default={},
        description="SHA-256 -> text, of those of the runs' torrc files that were there to be read",
    )
    runs: tuple[SetRun, ...] = Field(min_length=1, description="its runs")
    values: tuple[Value, ...] = Field(description="the statistics of its runs")
    sha256: str = Field(default="", description="of a nightly baseline: of all the rest")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.definitions not in CATALOGUES:
            raise ValueError(f"unknown definitions {self.definitions!r}")
        twice = [key for key, n in Counter(run.key for run in self.runs).items() if n > 1]
        if twice:
            raise ValueError(f"the run {' '.join(map(str, twice[0]))} is there more than once")
        runs = Counter((run.level, run.variant, run.seed) for run in self.runs)
        for value in self.values:
            number_of_runs = runs[value.level, value.variant, value.seed]
            if not number_of_runs:
                raise ValueError(f"a value of {value.metric} belongs to no run")
            quantity = self.catalogue.quantity(value.metric)
            if quantity is None:
                raise ValueError(f"unknown metric {value.metric!r}")
            if len(value.repeats) > number_of_runs:
                raise ValueError(f"{value.metric} has more repeats than its network has runs")
            if value.repeats and not _is_mean(value.value, value.repeats):
                raise ValueError(f"{value.metric} is {value.value}, no mean of its repeats")
            low, high = quantity.bounds
            for number in (value.value, *value.repeats):
                if number is not None and not low <= number <= high:
                    raise ValueError(f"{value.metric} is {number}, not {low:g} to {high:g}")
        places = Counter((v.level, v.variant, v.seed, v.class_name, v.metric) for v in self.values)
        if places and max(places.values()) > 1:
            raise ValueError(f"the value {places.most_common(1)[0][0]} is there more than once")
        return self

    @property
    def catalogue(self) -> Catalogue:
        """What its statistics are."""
        return CATALOGUES[self.definitions]

    @property
    def levels(self) -> tuple[str, ...]:
        """In the order of the runs."""
        return tuple(dict.fromkeys(run.level for run in self.runs))

    @property
    def variants(self) -> tuple[str, ...]:
        """In the order of the runs."""
        return tuple(dict.fromkeys(run.variant for run in self.runs))

    def runs_of(self, level: str, variant: str) -> dict[int, tuple[SetRun, ...]]:
        """Seed -> its runs, by repeat."""
        found: dict[int, tuple[SetRun, ...]] = {}
        for run in sorted(self.runs, key=lambda run: run.repeat):
            if (run.level, run.variant) == (level, variant):
                found[run.seed] = (*found.get(run.seed, ()), run)
        return found

    def statistics(self) -> Statistics:
        """As ``judging`` takes them."""
        made: Statistics = {}
        for v in self.values:
            by_variant = made.setdefault((v.level, v.class_name), {})
            by_seed = by_variant.setdefault((v.metric, v.variant), {})
            reason = v.reason or ("no value" if v.value is None else "")
            by_seed[v.seed] = Statistic(v.value, reason, v.repeats)
        return complete(made, self.catalogue)

    def only(self, variant: str) -> RunSet:
        """The runs of one variant.

        Raises:
            AnalysisError: there are none.
        """
        if variant not in self.variants:
            raise AnalysisError(
                f"{self.name} has no runs of {variant!r}",
                f"its variants are: {', '.join(self.variants)}",
            )
        return self.model_copy(
            update={
                "name": f"{self.name}:{variant}",
                "runs": tuple(run for run in self.runs if run.variant == variant),
                "values": tuple(value for value in self.values if value.variant == variant),
            }
        )

    def sealed(self) -> RunSet:
        """Return the set with the SHA-256 of all the rest."""
        # Without defaults, so that a field that is new does not change it.
        rest = self.model_dump(
            mode="json", by_alias=True, exclude={"sha256"}, exclude_defaults=True
        )
        digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        return self.model_copy(update={"sha256": digest})

    def text(self) -> str:
        """The file's content; the same set gives the same bytes."""
        return json.dumps(self.content(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _is_mean(value: float | None, repeats: Sequence[float]) -> bool:
    """Return whether a value is the arithmetic mean of some numbers, or their geometric one."""
    means = [fmean(repeats), *([geometric_mean(repeats)] if min(repeats) > 0 else [])]
    return value is not None and any(math.isclose(value, mean, rel_tol=1e-9) for mean in means)


def values_of(statistics: Statistics) -> tuple[Value, ...]:
    """Statistics as a set holds them."""
    return tuple(
        Value.model_validate(
            {
                "level": level,
                "variant": variant,
                "seed": seed,
                "class": class_name,
                "metric": metric,
                "value": statistic.value,
                "reason": statistic.reason,
                "repeats": statistic.repeats,
            }
        )
        for (level, class_name), by_metric in statistics.items()
        for (metric, variant), by_seed in by_metric.items()
        for seed, statistic in by_seed.items()
    )


def read_run_set(path: Path) -> RunSet:
    """Reads a set's file.

    Raises:
        AnalysisError: missing, not JSON, or not a valid set; says which fields.
    """
    return read_as(RunSet, path, "set of runs", wrong="make it again", most=LARGEST_BYTES)
