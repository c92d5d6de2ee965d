"""A set of runs as data: each run's statistics, and all that is known of what determined it.

The two sides of a comparison, a nightly baseline and an import are all such sets. Its file is JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from analysis.comparison.imported_metrics import IMPORTED
from analysis.errors import AnalysisError, problems_of
from analysis.judgement.judging import Statistics
from analysis.measures.catalogue import OWN
from analysis.measures.metric import Catalogue, Statistic

CATALOGUES: dict[str, Catalogue] = {"onionlab": OWN, "tornettools": IMPORTED}
"""By the name that a set gives its definitions."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class TorBuild(_Model):
    """One Tor executable. sha256: of the executable."""

    version: str
    sha256: str
    source: str = ""


class SetRun(_Model):
    """One run and what determined it; empty where that is not known.

    Attributes:
        run_id: its name where it is stored.
        engine: name, version and the like.
        tor: program -> build.
        files: input file -> SHA-256.
        records: record file -> SHA-256.
        project: version and commit of the program that made the run.
    """

    run_id: str
    level: str
    variant: str
    seed: int
    engine: dict[str, str] = {}
    tor: dict[str, TorBuild] = {}
    files: dict[str, str] = {}
    records: dict[str, str] = {}
    project: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Level, variant and seed."""
        return self.level, self.variant, self.seed


class Value(_Model):
    """One statistic of one run, or why there is none."""

    level: str
    variant: str
    seed: int
    class_name: str = Field(alias="class")
    metric: str
    value: float | None
    reason: str = ""

    model_config = ConfigDict(
        extra="ignore", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


class Span(_Model):
    """When a level's streams count, and what its classes of clients do: class -> key -> value."""

    measured_start_s: float
    measured_end_s: float
    stop_s: float
    load: dict[str, dict[str, float | None]] = {}


class RunSet(_Model):
    """A set of runs.

    Attributes:
        name: for readers.
        definitions: of its statistics, see ``CATALOGUES``.
        records_format: of the records that they come from; 0: not known.
        paired: whether a seed means the same in another set.
        spans: level -> measured span.
        margins: metric -> what counts as the same, instead of the usual.
        notes: what a reader has to know of it.
    """

    format: Literal[1] = 1
    name: str
    definitions: str = "onionlab"
    records_format: int = 0
    paired: bool = True
    spans: dict[str, Span] = {}
    margins: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    runs: tuple[SetRun, ...] = Field(min_length=1)
    values: tuple[Value, ...]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.definitions not in CATALOGUES:
            raise ValueError(f"unknown definitions {self.definitions!r}")
        twice = [key for key, n in Counter(run.key for run in self.runs).items() if n > 1]
        if twice:
            raise ValueError(f"the run {' '.join(map(str, twice[0]))} is there more than once")
        keys = {run.key for run in self.runs}
        known = {quantity.name for quantity in self.catalogue.quantities}
        for value in self.values:
            if (value.level, value.variant, value.seed) not in keys:
                raise ValueError(f"a value of {value.metric} belongs to no run")
            if value.metric not in known:
                raise ValueError(f"unknown metric {value.metric!r}")
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

    def runs_of(self, level: str, variant: str) -> dict[int, SetRun]:
        """Seed -> run."""
        return {r.seed: r for r in self.runs if (r.level, r.variant) == (level, variant)}

    def statistics(self) -> Statistics:
        """As ``judging`` takes them."""
        made: Statistics = {}
        for v in self.values:
            by_variant = made.setdefault((v.level, v.class_name), {})
            by_seed = by_variant.setdefault((v.metric, v.variant), {})
            reason = "" if v.value is not None else v.reason or "no value"
            by_seed[v.seed] = Statistic(v.value, reason)
        return made

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

    def json_text(self) -> str:
        """The file's content; the same set gives the same bytes."""
        content = self.model_dump(mode="json", by_alias=True)
        return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


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
    try:
        return RunSet.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing") from None
    except OSError as error:
        raise AnalysisError(f"{path} cannot be read: {error}") from None
    except ValidationError as error:
        problems = "; ".join(problems_of(error, "set"))
        raise AnalysisError(
            f"{path} is not a valid set of runs: {problems}", "make it again"
        ) from None
