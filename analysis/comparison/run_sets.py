"""A set of runs as data: the statistics of its networks, and what is known about its inputs.

Such a set is a side of a comparison, the baseline of nightly runs, or an import (the results of
another program, such as tornettools). It is stored as a JSON file. A level is one setting of the
network, and a variant is one of the systems under comparison.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
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
from analysis.formats.study import Endpoint, Looks
from analysis.judgement.estimates import Statistics, complete
from analysis.measures.catalogue import OWN
from analysis.measures.metric import Catalogue, Statistic

CATALOGUES: dict[str, Catalogue] = {"onionlab": OWN, "tornettools": IMPORTED}
"""Value of ``RunSet.definitions`` -> catalogue of the metrics of such a set."""

COMMIT_DIGITS = 12
"""Number of digits of a commit's hash in the history and in texts."""

_COMMIT = re.compile(r"'commit': '([0-9a-f]{40})'")
"""Pattern of the commit in ``TorBuild.source``, if Tor was built from a git repository."""


class TorBuild(FormatModel):
    """One Tor executable."""

    version: str = Field(description="version of Tor")
    sha256: str = Field(description="hash of the executable")
    source: str = Field(default="", description="its source; empty: unknown")

    @property
    def commit(self) -> str:
        """The hash of the commit; empty if Tor was not built from a git repository."""
        found = _COMMIT.search(self.source)
        return found[1] if found else ""

    @property
    def version_and_commit(self) -> str:
        """The version, and the first digits of the commit if there is one."""
        return f"{self.version} {self.commit[:COMMIT_DIGITS]}".rstrip()


class SetRun(FormatModel):
    """One run and its inputs. A field is empty if its value is unknown."""

    run_id: str = Field(description="its name in the store")
    level: str = Field(description="name of its level")
    variant: str = Field(description="name of its variant")
    seed: int = Field(description="runs of one seed are paired, if paired is true")
    repeat: int = Field(default=1, description="number of the run on its network, from 1")
    engine: dict[str, str] = Field(default={}, description="name, version and other facts")
    tor: dict[str, TorBuild] = Field(default={}, description="program -> its build")
    machine: dict[str, str] = Field(
        default={}, description="shared library -> its SHA-256, and aes -> True or False"
    )
    files: dict[str, str] = Field(default={}, description="input file -> its SHA-256")
    records: dict[str, str] = Field(default={}, description="record file -> its SHA-256")
    project: str = Field(
        default="", description="version and commit of the program that performed the run"
    )
    network: str = Field(
        default="", description="in an import: identifies the network across imports"
    )


class Value(FormatModel):
    """A statistic of one network, averaged over its repeats, or the reason why there is none."""

    model_config = ConfigDict(populate_by_name=True)

    level: str = Field(description="as in the run")
    variant: str = Field(description="as in the run")
    seed: int = Field(description="as in the run")
    class_name: str = Field(alias="class", description="class of streams, or all")
    metric: str = Field(description="name of the metric, with its unit")
    value: float | None = Field(strict=True, description="null: no value")
    reason: str = Field(default="", description="why there is no value, or what it excludes")
    repeats: tuple[Annotated[float, Field(strict=True)], ...] = Field(
        default=(), description="values of the network's runs; empty: only one run"
    )


class Span(FormatModel):
    """The measured span of a level, and the load of its classes of clients."""

    measured_start_s: float = Field(description="simulated time from which streams count")
    measured_end_s: float = Field(description="simulated time before which they count")
    stop_s: float = Field(description="simulated time at which runs end")
    load: dict[str, dict[str, float | None]] = Field(
        default={}, description="class -> behaviour of its clients: key -> value"
    )


class RunSet(FormatModel):
    """A set of runs as data, such as a side of a comparison, an import or a nightly baseline."""

    format: Literal[1] = Field(default=1, description="version")
    name: str = Field(description="for readers")
    definitions: str = Field(
        default="onionlab",
        description="origin of the definitions of its metrics: onionlab, tornettools",
    )
    records_format: int = Field(
        default=0, description="version of the records behind its values; 0: unknown"
    )
    paired: bool = Field(default=True, description="whether a seed means the same in another set")
    spans: dict[str, Span] = Field(default={}, description="level -> its measured span")
    margins: dict[str, float] = Field(
        default={}, description="metric -> equivalence margin, instead of the default"
    )
    endpoints: tuple[Endpoint, ...] = Field(
        default=(), description="metrics that decide, the most important first; empty: the default"
    )
    looks: Looks | None = Field(
        default=None, description="interim analyses of its networks; null: there were none"
    )
    scope: str = Field(
        default="", description="scope of the verdicts if all runs are of one network"
    )
    notes: tuple[str, ...] = Field(default=(), description="notes for readers")
    simulated: tuple[str, ...] = Field(
        default=(), description="scale, engine, relays and clients of its levels, as text"
    )
    texts: dict[str, str] = Field(
        default={}, description="SHA-256 -> text of the runs' torrc files, if they were readable"
    )
    runs: tuple[SetRun, ...] = Field(min_length=1, description="its runs")
    values: tuple[Value, ...] = Field(description="the statistics of its runs")
    sha256: str = Field(default="", description="in a nightly baseline: hash of all other fields")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.definitions not in CATALOGUES:
            raise ValueError(f"unknown definitions {self.definitions!r}")
        places = Counter((run.level, run.variant, run.seed, run.repeat) for run in self.runs)
        twice = [place for place, n in places.items() if n > 1]
        if twice:
            raise ValueError(f"the run {' '.join(map(str, twice[0]))} occurs more than once")
        runs = Counter((run.level, run.variant, run.seed) for run in self.runs)
        for value in self.values:
            number_of_runs = runs[value.level, value.variant, value.seed]
            if not number_of_runs:
                raise ValueError(f"a value of {value.metric} does not belong to a run")
            quantity = self.catalogue.quantity(value.metric)
            if quantity is None:
                raise ValueError(f"unknown metric {value.metric!r}")
            if len(value.repeats) > number_of_runs:
                raise ValueError(f"{value.metric} has more repeats than its network has runs")
            if value.repeats and not _is_mean(value.value, value.repeats):
                raise ValueError(f"{value.metric} is {value.value}, not the mean of its repeats")
            low, high = quantity.bounds
            for number in (value.value, *value.repeats):
                if number is not None and not low <= number <= high:
                    raise ValueError(f"{value.metric} is {number}, not {low:g} to {high:g}")
        measured = Counter(
            (v.level, v.variant, v.seed, v.class_name, v.metric) for v in self.values
        )
        if measured and max(measured.values()) > 1:
            raise ValueError(f"the value {measured.most_common(1)[0][0]} occurs more than once")
        return self

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue that defines the statistics of the set."""
        return CATALOGUES[self.definitions]

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels, in the order of the runs."""
        return tuple(dict.fromkeys(run.level for run in self.runs))

    @property
    def variants(self) -> tuple[str, ...]:
        """Variants, in the order of the runs."""
        return tuple(dict.fromkeys(run.variant for run in self.runs))

    def runs_of(self, level: str, variant: str) -> dict[int, tuple[SetRun, ...]]:
        """Return the runs of a level and a variant: seed -> its runs, in order of repeats."""
        found: dict[int, tuple[SetRun, ...]] = {}
        for run in sorted(self.runs, key=lambda run: run.repeat):
            if (run.level, run.variant) == (level, variant):
                found[run.seed] = (*found.get(run.seed, ()), run)
        return found

    def statistics(self) -> Statistics:
        """Return the statistics in the form of ``analysis.judgement.estimates``."""
        result: Statistics = {}
        for v in self.values:
            by_variant = result.setdefault((v.level, v.class_name), {})
            by_seed = by_variant.setdefault((v.metric, v.variant), {})
            reason = v.reason or ("no value" if v.value is None else "")
            by_seed[v.seed] = Statistic(v.value, reason, v.repeats)
        return complete(result, self.catalogue)

    def only(self, variant: str) -> RunSet:
        """Return the set with only the runs of one variant.

        Raises:
            AnalysisError: the set has no runs of this variant.
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
        """Return the set with its field ``sha256`` set to the hash of its other fields."""
        # Exclude defaults, so that a field that a later version adds does not change the hash.
        rest = self.model_dump(
            mode="json", by_alias=True, exclude={"sha256"}, exclude_defaults=True
        )
        digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        return self.model_copy(update={"sha256": digest})

    def text(self) -> str:
        """Return the content of the file; equal sets give equal bytes."""
        return json.dumps(self.content(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _is_mean(value: float | None, repeats: Sequence[float]) -> bool:
    """Return whether a value is the arithmetic or the geometric mean of some numbers."""
    means = [fmean(repeats), *([geometric_mean(repeats)] if min(repeats) > 0 else [])]
    return value is not None and any(math.isclose(value, mean, rel_tol=1e-9) for mean in means)


def values_from_statistics(statistics: Statistics) -> tuple[Value, ...]:
    """Convert statistics to the form in which a set of runs contains them."""
    return tuple(
        Value.model_validate(
            {
                "level": level,
                "variant": variant,
                "seed": seed,
                "class": class_name,
                "metric": metric,
                **vars(statistic),
            }
        )
        for (level, class_name), by_metric in statistics.items()
        for (metric, variant), by_seed in by_metric.items()
        for seed, statistic in by_seed.items()
    )


def read_run_set(path: Path) -> RunSet:
    """Read the file of a set.

    Raises:
        AnalysisError: the file is missing, not JSON, or invalid; the message lists invalid fields.
    """
    return read_as(RunSet, path, "set of runs", wrong="create it again", most=LARGEST_BYTES)
