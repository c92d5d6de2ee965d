"""The bias of a distribution of times that omits failed and unfinished streams.

The naive distribution of a time to an event, such as the first byte, uses only the streams in which
the event occurred. It omits streams that failed before the event, and streams censored at the end
of the run. docs/reference/metrics.md explains the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from analysis.formats.study import Study
from analysis.measures.data import ALL, ClassData
from analysis.measures.families.durations import DURATIONS, duration_observations
from analysis.measures.metric import QUANTILES, rank
from analysis.measures.survival import CENSORED, EVENT, FAILURE, cumulative_incidence, kaplan_meier

METHODS = ("naive", "incidence", "kaplan_meier")

CENSORING_COLUMNS = (
    *("level", "class", "time", "variant", "runs"),
    *("failed_share", "censored_share", "largest_difference"),
    *(f"{method}_{rank(q)}_s" for method in METHODS for q in QUANTILES),
)
"""The columns of censoring.csv."""

Row = dict[str, Any]
"""A row of censoring.csv as column -> value.

The report also needs the key ``label``, the name of the time for readers, which is not a column.
"""


@dataclass(frozen=True)
class Bias:
    """Three distributions of one time in one run: the naive one and two estimates.

    The time is from the start of a stream to an event, such as the first byte. The naive
    distribution uses only the streams in which the event occurred. The estimates, cumulative
    incidence and Kaplan-Meier, use all streams. The Kaplan-Meier estimate treats failures as
    censored.

    Attributes:
        failed: number of streams that failed before the event.
        censored: number of streams censored before the event.
        distance: largest difference between the naive distribution and the cumulative incidence.
        quantiles: name of a distribution, from ``METHODS`` -> its quantiles in seconds, one for
            each share passed to `bias`. A quantile is None if the distribution does not reach the
            share.
    """

    streams: int
    failed: int
    censored: int
    distance: float
    quantiles: Mapping[str, tuple[float | None, ...]]


def bias(times_s: ArrayLike, kinds: ArrayLike, shares: Sequence[float]) -> Bias | None:
    """Return the bias of the naive distribution, or None if there is no EVENT.

    ``times_s`` and ``kinds`` are as for ``cumulative_incidence``. Quantiles are computed for
    ``shares``, each in (0, 1].
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
    # The naive curve and the incidence jump only at times of EVENT, so compare them at these times.
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


@dataclass
class BiasTable:
    """The biases of runs, for censoring.csv.

    ``found`` maps (level, class, duration) -> variant -> the bias in each run. The bias is None if
    the time is unknown or no stream reached the event.
    """

    found: dict[tuple[str, str, str], dict[str, list[Bias | None]]] = field(default_factory=dict)

    def add(self, level: str, variant: str, data: Mapping[str, ClassData]) -> None:
        """Add the classes of one run, except for ``ALL``."""
        for class_name, class_data in data.items():
            for duration in DURATIONS if class_name != ALL else ():
                observed, _ = duration_observations(class_data, duration)
                result = None if observed is None else bias(*observed, QUANTILES)
                by_variant = self.found.setdefault((level, class_name, duration.name), {})
                by_variant.setdefault(variant, []).append(result)

    def rows(self, study: Study) -> Iterator[Row]:
        """Yield a row for each level, class, time and variant, in the order of the study.

        A time (``Duration``) is omitted if every stream reached its event, or if it equals an
        earlier time of the class.
        """
        for level in study.levels:
            for class_name in dict.fromkeys(c for where, c, _ in self.found if where == level.name):
                shown: list[Mapping[str, list[Bias | None]]] = []
                for duration in DURATIONS:
                    by_variant = self.found.get((level.name, class_name, duration.name), {})
                    runs = [one for found in by_variant.values() for one in found if one]
                    # If each stream transfers as many bytes as a mark (for example 320 KiB), the
                    # time to the mark is the time to last byte, so omit the time to last byte.
                    if by_variant in shown or not any(one.failed + one.censored for one in runs):
                        continue
                    shown.append(by_variant)
                    for variant in study.variants:
                        known = [one for one in by_variant.get(variant.name, []) if one]
                        if known:
                            yield {
                                "level": level.name,
                                "class": class_name,
                                "time": duration.name,
                                "label": duration.label,
                                "variant": variant.name,
                                **_means(known),
                            }


def _means(runs: Sequence[Bias]) -> Row:
    """Return the row's numbers for the runs of one variant.

    The shares are over the streams of all runs together. The other numbers are means over the runs.
    A quantile is None if any run lacks it.
    """
    streams = sum(one.streams for one in runs)
    return {
        "runs": len(runs),
        "failed_share": sum(one.failed for one in runs) / streams,
        "censored_share": sum(one.censored for one in runs) / streams,
        "largest_difference": sum(one.distance for one in runs) / len(runs),
        **{
            f"{method}_{rank(q)}_s": _mean([one.quantiles[method][place] for one in runs])
            for method in METHODS
            for place, q in enumerate(QUANTILES)
        },
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
