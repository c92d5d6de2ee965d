"""From runs to one value for each network, and to means over networks and paired differences.

The metrics of a run become one statistic of its network: the mean of the network's repeats. The
replicate is a network, or a repeat of one network. Streams of a run are not replicates, because
they are not independent. The intervals come from ``inference``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Run, Scope, Study
from analysis.inference.effects import paired_effect
from analysis.inference.intervals import (
    Interval,
    exponential,
    log_ratios,
    positive_interval,
    t_interval,
)
from analysis.measures.catalogue import OWN, run_statistics
from analysis.measures.data import ClassData
from analysis.measures.metric import NO_DATA, Catalogue, Statistic
from analysis.measures.run_data import load_run

Statistics = dict[tuple[str, str], dict[tuple[str, str], dict[int, Statistic]]]
"""(level, class) -> (metric, variant) -> seed of the network -> statistic.

If the study judges a single network (scope "one-network"), the number of the repeat replaces the
seed.
"""

RunStatistics = dict[tuple[str, str], dict[tuple[str, str], dict[tuple[int, int], Statistic]]]
"""(level, class) -> (metric, variant) -> (seed, repeat) of a run -> statistic."""

Key = TypeVar("Key", int, tuple[int, int])


def in_order(study: Study) -> Iterator[Run]:
    """Yield the study's runs, sorted by level, variant, seed and repeat."""
    for level in study.levels:
        for variant in study.variants:
            yield from study.runs_of(level.name, variant.name)


def add_run(statistics: RunStatistics, run: Run, data: Mapping[str, ClassData]) -> None:
    """Compute all metrics of one run and add them to ``statistics``."""
    for (class_name, metric), statistic in run_statistics(data).items():
        by_variant = statistics.setdefault((run.level, class_name), {})
        by_variant.setdefault((metric, run.variant), {})[run.seed, run.repeat] = statistic


def complete(
    statistics: dict[tuple[str, str], dict[tuple[str, str], dict[Key, Statistic]]],
    catalogue: Catalogue = OWN,
) -> dict[tuple[str, str], dict[tuple[str, str], dict[Key, Statistic]]]:
    """Add `NO_DATA` for metrics that a run lacks and another run of its level has.

    For example, a run lacks some metrics of a class if none of the class's downloads ended.
    Excluding the run and its pair would bias the comparison. Nothing is added for a metric if the
    random network determines which runs have it (``Quantity.drawn``). ``statistics`` is changed in
    place and returned.
    """
    read: dict[str, set[tuple[str, Key]]] = {}
    for (level, _), class_statistics in statistics.items():
        for (_, variant), by_run in class_statistics.items():
            read.setdefault(level, set()).update((variant, run) for run in by_run)
    drawn = {quantity.name for quantity in catalogue.quantities if quantity.drawn}
    for (level, _), class_statistics in statistics.items():
        for metric in sorted({name for name, _ in class_statistics} - drawn):
            for variant, run in sorted(read[level]):
                class_statistics.setdefault((metric, variant), {}).setdefault(run, NO_DATA)
    return statistics


def over_networks(runs: RunStatistics, scope: Scope = "networks") -> Statistics:
    """Return one statistic for each network: the mean of its repeats.

    The mean is geometric for metrics that are compared as ratios (metrics with a relative margin
    and only positive values), and arithmetic for other metrics. With the scope "one-network", each
    repeat has its own statistic. ``runs`` is changed in place by ``complete``.
    """
    result: Statistics = {}
    for where, class_statistics in complete(runs).items():
        ratios = _compared_as_ratios(class_statistics)
        result[where] = {}
        for (metric, variant), by_run in class_statistics.items():
            by_network: dict[int, list[Statistic]] = {}
            for (seed, repeat), statistic in sorted(by_run.items(), key=lambda one: one[0]):
                number = repeat if scope == "one-network" else seed
                by_network.setdefault(number, []).append(statistic)
            result[where][metric, variant] = {
                number: _mean_of_repeats(own, metric in ratios)
                for number, own in by_network.items()
            }
    return result


def _compared_as_ratios(
    class_statistics: Mapping[tuple[str, str], Mapping[Any, Statistic]],
) -> set[str]:
    """Return the metrics that have a relative margin and only positive values."""
    relative = {name for name, judged in OWN.judged.items() if judged.margin.relative}
    return relative - {
        metric
        for (metric, _), by_run in class_statistics.items()
        for statistic in by_run.values()
        if statistic.value is not None and statistic.value <= 0
    }


def _mean_of_repeats(repeats: Sequence[Statistic], geometric: bool) -> Statistic:
    """Return the mean of a network's repeats, without a value if any repeat lacks a value.

    Excluding such a repeat would bias the mean.
    """
    if len(repeats) == 1:
        return repeats[0]
    values = tuple(one.value for one in repeats if one.value is not None)
    reasons = list(dict.fromkeys(one.reason for one in repeats if one.reason))
    if len(values) < len(repeats):
        missing = next(one.reason for one in repeats if one.value is None)
        count = len(repeats) - len(values)
        return Statistic(None, f"{missing} in {count} of {len(repeats)} repeats")
    mean = np.exp(np.mean(np.log(values))) if geometric else np.mean(values)
    return Statistic(float(mean), "; ".join(reasons), values)


def read_statistics(study: Study, store: Path) -> Statistics:
    """Return all metrics of a study's networks, from the records of their runs.

    store: directory that the runs' record directories are relative to.

    Raises:
        AnalysisError: records are missing or cannot be read.
    """
    runs: RunStatistics = {}
    for run in in_order(study):
        with study.naming(run):
            add_run(runs, run, load_run(store / run.records, study.level(run.level)))
    return over_networks(runs, study.scope)


ONE_VALUE = "one value: no interval"
ONE_PAIR = "one pair: no interval"
NO_RATIO = "no ratio: a value is zero"


@dataclass(frozen=True)
class Estimate:
    """One metric of a variant over several networks. Numbers that do not exist are None.

    Attributes:
        mean: the arithmetic mean.
        seeds: number of networks, over which the standard deviation and the extremes are.
        note: why there is no mean or no interval.
        geometric: the geometric mean, for display with ratios: the ratio of two geometric means is
            the geometric mean of the pairs' ratios. None if a value is zero or negative.
        left_out: a note on data that are excluded from the values; "" if none are.
    """

    mean: Interval | None
    seeds: int
    sd: float | None
    minimum: float | None
    maximum: float | None
    note: str = ""
    geometric: Interval | None = None
    left_out: str = ""

    def mean_for(self, scale: str) -> Interval | None:
        """Return the mean to display with an effect.

        If ``scale`` is "ratio" and there is a geometric mean, return it, else the arithmetic mean.
        """
        return self.geometric or self.mean if scale == "ratio" else self.mean

    @property
    def notes(self) -> tuple[str, ...]:
        """``note`` and ``left_out``, without empty strings."""
        return tuple(filter(None, (self.note, self.left_out)))


@dataclass(frozen=True)
class AgainstBaseline:
    """A comparison of a variant with the baseline, over their common networks.

    ``difference`` and ``ratio`` are None without a pair, or if a value is missing. If a value is
    not positive, only ``ratio`` is None.
    """

    difference: Interval | None
    ratio: Interval | None
    pairs: int
    notes: tuple[str, ...] = ()


def estimate(statistics: Mapping[int, Statistic]) -> Estimate:
    """Return the mean over networks. Its interval is not negative if no value is negative.

    If a network lacks a value, the mean is None, because a mean without this network is biased.
    """
    if not statistics:
        return Estimate(None, 0, None, None, None, "no run")
    ordered = [statistics[seed] for seed in sorted(statistics)]
    missing = [s.reason for s in ordered if s.value is None]
    if missing:
        where = "" if len(statistics) == 1 else f" in {len(missing)} of {len(statistics)} runs"
        return Estimate(None, len(statistics), None, None, None, f"{missing[0]}{where}")
    values = [s.value for s in statistics.values() if s.value is not None]
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    partial = [s.reason for s in ordered if s.reason]
    left_out = f"{partial[0]} (in {len(partial)} of {len(values)} runs)" if partial else ""
    note = ONE_VALUE if len(values) == 1 else ""
    mean = t_interval(values) if min(values) < 0 else positive_interval(values)
    geometric = exponential(t_interval(np.log(values))) if min(values) > 0 else None
    low, high = min(values), max(values)
    return Estimate(mean, len(values), sd, low, high, note, geometric, left_out)


def against_baseline(
    variant: Mapping[int, Statistic], baseline: Mapping[int, Statistic], resolution: float = 0.0
) -> AgainstBaseline:
    """Return the mean difference (variant - baseline) and mean ratio (variant / baseline).

    The mean ratio is geometric, with the interval of the mean logarithm. Networks on only one side
    are excluded and listed in a note.

    Args:
        variant: network -> statistic.
        baseline: network -> statistic.
        resolution: rounding step of the values, in their unit; 0 if unknown.
    """
    common = sorted(set(variant) & set(baseline))
    alone = sorted(set(variant) ^ set(baseline))
    notes = [f"without a pair: {', '.join(map(str, alone))}"] if alone else []
    if not common:
        return AgainstBaseline(None, None, 0, ("no pair", *notes))
    # None becomes NaN.
    own, base = (
        np.array([side[seed].value for seed in common], np.float64) for side in (variant, baseline)
    )
    if lacking := np.count_nonzero(np.isnan(own + base)):
        notes.append(f"{lacking} of {len(common)} pairs lack a value")
        return AgainstBaseline(None, None, len(common), tuple(notes))
    if len(common) == 1:
        notes.append(ONE_PAIR)
    ratio = None
    if min(*own, *base) > 0:
        step = resolution / float(np.mean(base))
        ratio = exponential(_paired_interval(log_ratios(own, base), step))
    else:
        notes.append(NO_RATIO)
    difference = _paired_interval(own - base, resolution)
    return AgainstBaseline(difference, ratio, len(common), tuple(notes))


def _paired_interval(differences: Floats, resolution: float) -> Interval:
    """Return the mean of paired differences, with the interval that verdicts use.

    The interval has no bounds if there is one pair, or if all differences are equal and the
    resolution is unknown.
    """
    if differences.size == 1 or not (resolution or np.ptp(differences)):
        return Interval(float(differences[0]), None, None)
    return paired_effect(differences, resolution).interval()
