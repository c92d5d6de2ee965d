"""Table of the bias of naive distributions, by class and variant."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.formats.study import Level, Study, Variant
from analysis.measures.censoring import Bias, bias
from analysis.measures.data import ALL, ClassData
from analysis.measures.durations import DURATIONS, Duration, duration_observations
from analysis.measures.metric import QUANTILES

METHODS = ("naive", "incidence", "kaplan_meier")


@dataclass(frozen=True)
class BiasRow:
    """Means over the runs of one variant.

    Attributes:
        level: the level of the runs.
        class_name: the class of clients.
        duration: the time that is measured.
        variant: the variant of the runs.
        runs: the number of runs.
        failed_share: share of streams that failed before the event.
        censored_share: share of streams censored before the event.
        distance: largest difference between the naive distribution and the cumulative incidence.
        quantiles: method -> a value per quantile in ``QUANTILES``; None if any run has none.
    """

    level: Level
    class_name: str
    duration: Duration
    variant: Variant
    runs: int
    failed_share: float
    censored_share: float
    distance: float
    quantiles: Mapping[str, tuple[float | None, ...]]


@dataclass
class BiasTable:
    """Collected runs: (level, class, duration) -> variant -> an entry per run."""

    found: dict[tuple[str, str, str], dict[str, list[Bias | None]]] = field(default_factory=dict)

    def add(self, level: str, variant: str, data: Mapping[str, ClassData]) -> None:
        """Add one run."""
        for class_name, class_data in data.items():
            for duration in DURATIONS if class_name != ALL else ():
                observed, _ = duration_observations(class_data, duration.name)
                result = None if observed is None else bias(*observed, QUANTILES)
                by_variant = self.found.setdefault((level, class_name, duration.name), {})
                by_variant.setdefault(variant, []).append(result)

    def rows(self, study: Study) -> Iterator[BiasRow]:
        """Yield rows for times with failed or censored streams, in the order of the study."""
        for level in study.levels:
            classes = dict.fromkeys(c for where, c, _ in self.found if where == level.name)
            for class_name in classes:
                shown: list[Mapping[str, list[Bias | None]]] = []
                for duration in DURATIONS:
                    by_variant = self.found.get((level.name, class_name, duration.name), {})
                    # For streams of exactly 320 KiB, two of the times are identical.
                    if by_variant in shown or not _informative(by_variant):
                        continue
                    shown.append(by_variant)
                    for variant in study.variants:
                        known = [b for b in by_variant.get(variant.name, []) if b is not None]
                        if known:
                            yield _row(level, class_name, duration, variant, known)


def _informative(by_variant: Mapping[str, Sequence[Bias | None]]) -> bool:
    return any(b is not None and b.failed + b.censored for bs in by_variant.values() for b in bs)


def _row(
    level: Level, class_name: str, duration: Duration, variant: Variant, found: list[Bias]
) -> BiasRow:
    streams = sum(b.streams for b in found)
    return BiasRow(
        level,
        class_name,
        duration,
        variant,
        len(found),
        sum(b.failed for b in found) / streams,
        sum(b.censored for b in found) / streams,
        sum(b.distance for b in found) / len(found),
        {
            method: tuple(
                _mean([getattr(b, method)[place] for b in found]) for place in range(len(QUANTILES))
            )
            for method in METHODS
        },
    )


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def bias_csv(rows: Sequence[BiasRow]) -> str:
    """Return the rows as the content of censoring.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("level", "class", "time", "variant", "runs"),
            *("failed_share", "censored_share", "largest_difference"),
            *(f"{method}_p{round(100 * q)}_s" for method in METHODS for q in QUANTILES),
        ]
    )
    for row in rows:
        numbers = [row.failed_share, row.censored_share, row.distance]
        quantiles = [value for method in METHODS for value in row.quantiles[method]]
        writer.writerow(
            [
                *(row.level.name, row.class_name, row.duration.name, row.variant.name, row.runs),
                *("" if value is None else f"{value:.9g}" for value in [*numbers, *quantiles]),
            ]
        )
    return text.getvalue()
