"""Bias of the distribution of times of finished streams, by class and variant.

The naive distribution of a time uses only the streams in which the event occurred. It omits failed
streams and those censored at the end of the run. docs/reference/metrics.md explains the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas
from numpy.typing import ArrayLike

from analysis.formats.study import Level, Study, Variant
from analysis.measures.data import ALL, ClassData
from analysis.measures.durations import DURATIONS, Duration, duration_observations
from analysis.measures.metric import QUANTILES, rank
from analysis.measures.survival import (
    CENSORED,
    EVENT,
    FAILURE,
    cumulative_incidence,
    kaplan_meier,
)

Quantiles = Mapping[str, tuple[float | None, ...]]
"""Method (naive, incidence or kaplan_meier) -> a value per share; None if it is not reached."""


@dataclass(frozen=True)
class Bias:
    """The naive distribution of a time in one run, compared with two unbiased estimates.

    Attributes:
        streams: number of streams.
        failed: number of streams that failed before the event.
        censored: number of streams censored before the event.
        distance: largest difference between the naive distribution and the cumulative incidence.
        quantiles: of the naive distribution, the cumulative incidence, and the Kaplan-Meier
            estimate, in which failures are treated as censored.
    """

    streams: int
    failed: int
    censored: int
    distance: float
    quantiles: Quantiles


def bias(times_s: ArrayLike, kinds: ArrayLike, shares: Sequence[float]) -> Bias | None:
    """Return the bias of the naive distribution.

    Args:
        times_s: shape (n,), as for ``cumulative_incidence``.
        kinds: shape (n,), as for ``cumulative_incidence``.
        shares: the quantiles to compute, in (0, 1].

    Returns:
        None if there is no EVENT.
    """
    times, kind = np.asarray(times_s, dtype=np.float64), np.asarray(kinds, dtype=np.int64)
    seen = times[kind == EVENT]
    if not seen.size:
        return None
    curves = {
        "naive": cumulative_incidence(seen, np.full(seen.shape, EVENT)),
        "incidence": cumulative_incidence(times, kind),
        "kaplan_meier": kaplan_meier(times, kind),
    }
    # Both curves jump only at the times of EVENT, so comparing them there is sufficient.
    differences = curves["naive"].probability - curves["incidence"].probability
    return Bias(
        streams=int(kind.size),
        failed=int(np.sum(kind == FAILURE)),
        censored=int(np.sum(kind == CENSORED)),
        distance=float(np.abs(differences).max()),
        quantiles={
            name: tuple(curve.quantile(share) for share in shares) for name, curve in curves.items()
        },
    )


@dataclass(frozen=True)
class BiasRow:
    """Means over the runs of one variant; quantiles are None if any run has none."""

    level: Level
    class_name: str
    duration: Duration
    variant: Variant
    runs: int
    failed_share: float
    censored_share: float
    distance: float
    quantiles: Quantiles


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
            for class_name in dict.fromkeys(c for where, c, _ in self.found if where == level.name):
                shown: list[Mapping[str, list[Bias | None]]] = []
                for duration in DURATIONS:
                    by_variant = self.found.get((level.name, class_name, duration.name), {})
                    runs = [one for found in by_variant.values() for one in found if one]
                    # For streams of exactly 320 KiB, two of the times are identical.
                    if by_variant in shown or not any(one.failed + one.censored for one in runs):
                        continue
                    shown.append(by_variant)
                    for variant in study.variants:
                        known = [one for one in by_variant.get(variant.name, []) if one]
                        if known:
                            yield _row(level, class_name, duration, variant, known)


def _row(
    level: Level, class_name: str, duration: Duration, variant: Variant, found: Sequence[Bias]
) -> BiasRow:
    streams = sum(one.streams for one in found)
    return BiasRow(
        level,
        class_name,
        duration,
        variant,
        len(found),
        sum(one.failed for one in found) / streams,
        sum(one.censored for one in found) / streams,
        sum(one.distance for one in found) / len(found),
        {
            method: tuple(map(_mean, zip(*(one.quantiles[method] for one in found), strict=True)))
            for method in found[0].quantiles
        },
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def bias_csv(rows: Sequence[BiasRow]) -> str:
    """Return the rows as the content of censoring.csv."""
    columns = [
        *("level", "class", "time", "variant", "runs"),
        *("failed_share", "censored_share", "largest_difference"),
        *(f"{m}_{rank(q)}_s" for m in ("naive", "incidence", "kaplan_meier") for q in QUANTILES),
    ]
    table = [
        [
            *(row.level.name, row.class_name, row.duration.name, row.variant.name, row.runs),
            *(row.failed_share, row.censored_share, row.distance),
            *(value for values in row.quantiles.values() for value in values),
        ]
        for row in rows
    ]
    frame = pandas.DataFrame(table, columns=columns)
    return frame.to_csv(index=False, float_format="%.9g", lineterminator="\n")
