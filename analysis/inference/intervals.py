"""Intervals, tests and corrections for a few values, one per run. Arrays in, numbers out.

Nothing here knows of runs or metrics. Methods and their sources: docs/reference/statistics.md;
how they fare on data with a known truth: ``validation``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from analysis.arrays import Floats, Ints

CONFIDENCE = 0.95

MAX_SEEDS_ASKED = 10_000
"""Where more would be needed, it is no use to say how many."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; without bounds where there is one value only."""

    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Effect:
    """An estimated difference with its uncertainty, as a t test takes it.

    Attributes:
        estimate: the mean difference.
        standard_error: of the estimate; 0 where all differences are the same and the resolution is
            not known.
        df: degrees of freedom of the standard error, > 0.
        count: pairs, or runs of the smaller side.
    """

    estimate: float
    standard_error: float
    df: float
    count: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Student's t interval of the difference."""
        half = t_quantile((1 + confidence) / 2, self.df) * self.standard_error
        return Interval(self.estimate, self.estimate - half, self.estimate + half)

    def p_above(self, bound: float) -> float:
        """p-value of "the difference is at most ``bound``" against "it is larger"."""
        distance = self.estimate - bound
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(stdtr(self.df, -distance / self.standard_error))

    def p_below(self, bound: float) -> float:
        """p-value of "the difference is at least ``bound``" against "it is smaller"."""
        return Effect(-self.estimate, self.standard_error, self.df, self.count).p_above(-bound)

    @property
    def p_different(self) -> float:
        """Two-sided p-value of "there is no difference"."""
        return min(1.0, 2 * min(self.p_above(0.0), self.p_below(0.0)))

    def p_equivalent(self, margin: float) -> float:
        """p-value of "the difference is at least ``margin`` in size": two one-sided tests.

        Schuirmann (1987), J. Pharmacokinetics and Biopharmaceutics 15(6).
        """
        return max(self.p_above(-margin), self.p_below(margin))

    def with_count(self, count: int) -> Effect:
        """The same estimate and spread, as ``count`` pairs would give them."""
        share = self.count / count
        df = self.df * (count - 1) / (self.count - 1)
        return Effect(self.estimate, self.standard_error * np.sqrt(share), df, count)


def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t distribution."""
    return float(stdtrit(df, probability))


def t_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Mean and its t interval: mean +- t(n-1) sd / sqrt(n). One value has no bounds.

    Args:
        values: shape (n,), finite.
        confidence: coverage, in (0, 1).

    Raises:
        ValueError: no values.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError("no values")
    if array.size == 1:
        return Interval(float(array[0]), None, None)
    return paired_effect(array).interval(confidence)


def ratio_interval(
    variant: ArrayLike, baseline: ArrayLike, confidence: float = CONFIDENCE
) -> Interval:
    """Geometric mean of the pairs' ratios, and the t interval of the logarithms, taken back.

    Args:
        variant: shape (n,), > 0.
        baseline: shape (n,), > 0, of the same seeds.
        confidence: coverage, in (0, 1).

    Raises:
        ValueError: no values.
    """
    return exponential(t_interval(log_ratios(variant, baseline), confidence))


def log_ratios(variant: ArrayLike, baseline: ArrayLike) -> Floats:
    """Logarithms of the pairs' ratios, shape (n,)."""
    # The difference of logarithms, since the ratio of extreme numbers leaves the range of floats.
    ratios: Floats = np.log(np.asarray(variant, np.float64)) - np.log(
        np.asarray(baseline, np.float64)
    )
    return ratios


def exponential(interval: Interval) -> Interval:
    """An interval of logarithms as one of ratios."""

    def back(value: float) -> float:
        # A wide interval from two seeds may go beyond the largest float.
        return float(np.exp(np.clip(value, -700.0, 700.0)))

    low, high = interval.low, interval.high
    return Interval(
        back(interval.estimate),
        None if low is None else back(low),
        None if high is None else back(high),
    )


def paired_effect(differences: ArrayLike, resolution: float = 0.0) -> Effect:
    """The mean of paired differences.

    Args:
        differences: shape (n,), n >= 2, finite.
        resolution: step in which the values themselves are known. The difference of two rounded
            values has at least the rounding's own variance, resolution^2 / 6; a smaller sd is
            taken up to it, so that a few equal counts do not pass for certainty.

    Raises:
        ValueError: fewer than two differences.
    """
    array = np.asarray(differences, dtype=np.float64)
    if array.size < 2:
        raise ValueError("a spread takes two differences")
    sd = max(float(array.std(ddof=1)), resolution / np.sqrt(6))
    return Effect(float(array.mean()), sd / np.sqrt(array.size), array.size - 1.0, array.size)


def welch_effect(variant: ArrayLike, baseline: ArrayLike, resolution: float = 0.0) -> Effect:
    """The difference of two means of unpaired values; Welch (1947), Biometrika 34.

    Args:
        variant: shape (n,), n >= 2, finite.
        baseline: shape (m,), m >= 2, finite.
        resolution: as in ``paired_effect``; resolution^2 / 12 for each side.

    Raises:
        ValueError: fewer than two values on a side.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (variant, baseline)]
    if min(side.size for side in sides) < 2:
        raise ValueError("a spread takes two values on each side")
    squares = [max(float(side.var(ddof=1)), resolution**2 / 12) / side.size for side in sides]
    total = sum(squares)
    count = min(side.size for side in sides)
    df = float(count - 1)
    if total > 0:
        shares = [square / total for square in squares]
        df = 1 / sum(share**2 / (side.size - 1) for share, side in zip(shares, sides, strict=True))
    difference = float(sides[0].mean()) - float(sides[1].mean())
    return Effect(difference, float(np.sqrt(total)), df, count)


def bca_interval(
    values: ArrayLike,
    statistic: Callable[[Floats], Floats] | None = None,
    confidence: float = CONFIDENCE,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval, bias-corrected and accelerated: Efron (1987), JASA 82.

    The same values and seed give the same interval.

    Args:
        values: shape (n,), one per replicate, finite.
        statistic: maps shape (..., n) to (...), the last axis reduced; by default the mean.
        confidence: coverage, in (0, 1).
        resamples: bootstrap samples.
        seed: of the resampling.

    Raises:
        ValueError: no values.
    """
    array = np.asarray(values, dtype=np.float64)
    n = array.size
    if n == 0:
        raise ValueError("no values")
    compute = statistic or (lambda samples: samples.mean(axis=-1))
    estimate = float(compute(array))
    if n == 1:
        return Interval(estimate, None, None)
    drawn = compute(array[np.random.default_rng(seed).integers(0, n, (resamples, n))])
    left_out = compute(array[_others(n)])
    return _bca(estimate, drawn, left_out, confidence)


def _others(n: int) -> Ints:
    """Row i: all indices but i, shape (n, n - 1)."""
    rows = np.tile(np.arange(n), (n, 1))
    return rows[~np.eye(n, dtype=bool)].reshape(n, n - 1)


def _bca(estimate: float, drawn: Floats, left_out: Floats, confidence: float) -> Interval:
    # Ties, as with counts, count half; kept inside (0, 1), where the normal quantile is finite.
    below = float(np.mean(drawn < estimate) + 0.5 * np.mean(drawn == estimate))
    edge = 0.5 / drawn.size
    bias = float(ndtri(min(max(below, edge), 1 - edge)))
    pull = left_out.mean() - left_out
    spread = float(np.sum(pull**2)) ** 1.5
    acceleration = float(np.sum(pull**3)) / (6 * spread) if spread > 0 else 0.0

    def bound(probability: float) -> float:
        z = bias + float(ndtri(probability))
        level = float(ndtr(bias + z / max(1 - acceleration * z, 1e-9)))
        return float(np.quantile(drawn, level))

    return Interval(estimate, bound((1 - confidence) / 2), bound((1 + confidence) / 2))


def holm(p_values: ArrayLike) -> Floats:
    """p-values adjusted for their number; Holm (1979), Scandinavian J. of Statistics 6.

    Rejecting where the adjusted value is at most alpha keeps the chance of any false rejection at
    most alpha, whatever the dependence.

    Args:
        p_values: shape (m,), in [0, 1].

    Returns:
        Shape (m,), each at least its p-value and at most 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted


def count_to_settle(
    effect: Effect, margin: float | None, level: float, power: float = 0.8
) -> int | None:
    """How many pairs in all would show a difference, or the lack of one, with this power.

    As if the present estimate and spread were the true ones. A smaller number than there are pairs
    already means that they were unlucky; it is then taken to be one more.

    Args:
        effect: from the pairs that there are.
        margin: what counts as equivalent, or None.
        level: error rate of one test, corrected for the number of tests.
        power: chance to get there.

    Returns:
        None where ``MAX_SEEDS_ASKED`` would not do.
    """

    def settles(count: int) -> bool:
        later = effect.with_count(count)
        sure = t_quantile(power, later.df)
        size = abs(later.estimate)
        needed = t_quantile(1 - level / 2, later.df) + sure
        if size > 0 and size >= needed * later.standard_error:
            return True
        needed = t_quantile(1 - level, later.df) + sure
        return margin is not None and margin - size >= needed * later.standard_error

    low, high = effect.count, MAX_SEEDS_ASKED
    if not settles(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high
