"""From runs to variants: means over seeds, their intervals, and paired differences.

The replicate is a run; streams within a run are not independent. Numbers in, numbers out. Another
method of interval estimation replaces ``interval`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.metrics import Statistic

CONFIDENCE = 0.95

ONE_SEED = "one seed: no interval"
ONE_PAIR = "one pair: no interval"
NO_RATIO = "no ratio: a value is zero"


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; without bounds where there is one value only."""

    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Estimate:
    """One variant's value of one metric, over seeds. None: cannot be given, ``note`` says why."""

    mean: Interval | None
    seeds: int
    sd: float | None
    minimum: float | None
    maximum: float | None
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """One variant against the baseline, over the seeds that both have."""

    difference: Interval | None
    ratio: Interval | None
    pairs: int
    note: str = ""


def interval(values: Sequence[float]) -> Interval:
    """Mean and its t interval at ``CONFIDENCE``: mean +- t(n-1) sd / sqrt(n).

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no values")
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if array.size == 1:
        return Interval(mean, None, None)
    half = float(
        stats.t.ppf((1 + CONFIDENCE) / 2, array.size - 1) * array.std(ddof=1) / np.sqrt(array.size)
    )
    return Interval(mean, mean - half, mean + half)


def estimate(statistics: Mapping[int, Statistic]) -> Estimate:
    """A variant's mean over its seeds.

    If any seed has no value the mean has none either: to leave that run out would be to select.
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
    note = ONE_SEED if len(values) == 1 else ""
    return Estimate(interval(values), len(values), sd, min(values), max(values), note)


def compare(variant: Mapping[int, Statistic], baseline: Mapping[int, Statistic]) -> Comparison:
    """Differences (variant - baseline) and ratios (variant / baseline) over common seeds.

    The ratio is the geometric mean of the pairs' ratios, with the t interval of their logarithms. A
    seed with a run on one side only makes no pair and is named in the note.
    """
    common = sorted(set(variant) & set(baseline))
    notes = []
    alone = sorted(set(variant) ^ set(baseline))
    if alone:
        notes.append(f"seeds without a pair: {', '.join(map(str, alone))}")
    pairs = []
    for seed in common:
        mine, base = variant[seed].value, baseline[seed].value
        if mine is not None and base is not None:
            pairs.append((mine, base))
    if not common:
        return Comparison(None, None, 0, "; ".join(["no common seed", *notes]))
    if len(pairs) < len(common):
        notes.append(f"{len(common) - len(pairs)} of {len(common)} pairs lack a value")
        return Comparison(None, None, len(common), "; ".join(notes))
    if len(pairs) == 1:
        notes.append(ONE_PAIR)
    difference = interval([mine - base for mine, base in pairs])
    ratio = None
    if all(mine > 0 and base > 0 for mine, base in pairs):
        logs = interval([float(np.log(mine / base)) for mine, base in pairs])
        ratio = Interval(
            float(np.exp(logs.estimate)),
            None if logs.low is None else float(np.exp(logs.low)),
            None if logs.high is None else float(np.exp(logs.high)),
        )
    else:
        notes.append(NO_RATIO)
    return Comparison(difference, ratio, len(pairs), "; ".join(notes))
