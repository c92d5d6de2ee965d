"""Means over networks, their intervals, and paired differences.

The replicate is a network, or a repeat of one network. Streams of a run are not replicates, because
they are not independent. The intervals come from ``inference``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Floats
from analysis.inference.effects import paired_effect
from analysis.inference.intervals import (
    Interval,
    exponential,
    log_ratios,
    positive_interval,
    t_interval,
)
from analysis.measures.metric import Statistic

ONE_VALUE = "one value: no interval"
ONE_PAIR = "one pair: no interval"
NO_RATIO = "no ratio: a value is zero"


@dataclass(frozen=True)
class Estimate:
    """One metric of a variant over several networks. Numbers that do not exist are None.

    Attributes:
        mean: the arithmetic mean.
        seeds: number of networks.
        sd: standard deviation over networks.
        minimum: minimum over networks.
        maximum: maximum over networks.
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
    values = [s.value for s in statistics.values() if s.value is not None]
    missing = {seed: s.reason for seed, s in sorted(statistics.items()) if s.value is None}
    if missing:
        reason = next(iter(missing.values()))
        where = "" if len(statistics) == 1 else f" in {len(missing)} of {len(statistics)} runs"
        return Estimate(None, len(statistics), None, None, None, f"{reason}{where}")
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    partial = [s.reason for _, s in sorted(statistics.items()) if s.reason]
    left_out = f"{partial[0]} (in {len(partial)} of {len(values)} runs)" if partial else ""
    note = ONE_VALUE if len(values) == 1 else ""
    mean = t_interval(values) if min(values) < 0 else positive_interval(values)
    geometric = exponential(t_interval(np.log(values))) if min(values) > 0 else None
    low, high = min(values), max(values)
    return Estimate(mean, len(values), sd, low, high, note, geometric, left_out)


def against_baseline(
    variant: Mapping[int, Statistic],
    baseline: Mapping[int, Statistic],
    resolution: float = 0.0,
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
    notes = []
    alone = sorted(set(variant) ^ set(baseline))
    if alone:
        notes.append(f"without a pair: {', '.join(map(str, alone))}")
    pairs = []
    for seed in common:
        mine, base = variant[seed].value, baseline[seed].value
        if mine is not None and base is not None:
            pairs.append((mine, base))
    if not common:
        return AgainstBaseline(None, None, 0, ("no pair", *notes))
    if len(pairs) < len(common):
        notes.append(f"{len(common) - len(pairs)} of {len(common)} pairs lack a value")
        return AgainstBaseline(None, None, len(common), tuple(notes))
    if len(pairs) == 1:
        notes.append(ONE_PAIR)
    own, base_values = zip(*pairs, strict=True)
    difference = _paired_interval(np.subtract(own, base_values), resolution)
    ratio = None
    if min(own) > 0 and min(base_values) > 0:
        step = resolution / float(np.mean(base_values))
        ratio = exponential(_paired_interval(log_ratios(own, base_values), step))
    else:
        notes.append(NO_RATIO)
    return AgainstBaseline(difference, ratio, len(pairs), tuple(notes))


def _paired_interval(differences: Floats, resolution: float) -> Interval:
    """Return the mean of paired differences, with the interval that verdicts use.

    The interval has no bounds if there is one pair, or if all differences are equal and the
    resolution is unknown.
    """
    if differences.size == 1 or not (resolution or np.ptp(differences)):
        return Interval(float(differences[0]), None, None)
    return paired_effect(differences, resolution).interval()
