"""Intervals of means and of mean ratios, from a few values (one per run).

This module is independent of runs and metrics. docs/reference/statistics.md describes the methods
and their sources. docs/explanation/statistics-validation.md has their coverage in simulations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from analysis.arrays import Floats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval. The bounds are None if there is no interval."""

    estimate: float
    low: float | None
    high: float | None

    def leaves_out(self, value: float) -> bool:
        """Return whether the value lies outside of the interval; False without bounds."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


def t_quantile(probability: float, df: float) -> float:
    """Return a quantile of Student's t distribution."""
    return float(stdtrit(df, probability))


def t_interval(values: ArrayLike) -> Interval:
    """Return the mean and its t interval, mean +- t(n-1) sd / sqrt(n), with `CONFIDENCE`.

    The bounds are None for a single value.

    Args:
        values: shape (n,), n >= 1, finite.
    """
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if array.size == 1:
        return Interval(mean, None, None)
    half = t_quantile((1 + CONFIDENCE) / 2, array.size - 1.0) * (
        float(array.std(ddof=1)) / np.sqrt(array.size)
    )
    return Interval(mean, mean - half, mean + half)


def positive_interval(values: ArrayLike) -> Interval:
    """Return the mean of nonnegative values, with the t interval of the mean's logarithm.

    By the delta method, the standard error of the logarithm is the standard error of the mean
    divided by the mean. The bounds are converted back from logarithms, so they are never negative.

    Args:
        values: shape (n,), n >= 1, finite, >= 0.

    Returns:
        The interval has no bounds if there is one value, or if all values are equal.
    """
    plain = t_interval(values)
    # The mean of tiny values can underflow to 0, and it is the divisor below.
    if plain.low is None or plain.high is None or np.ptp(values) == 0 or plain.estimate == 0:
        return Interval(plain.estimate, None, None)
    half = (plain.high - plain.low) / 2 / plain.estimate
    low, high = (plain.estimate * _exp(side) for side in (-half, half))
    return Interval(plain.estimate, low, min(high, 1e308))


def log_ratios(variant: ArrayLike, baseline: ArrayLike) -> Floats:
    """Return log(variant / baseline) for each pair, shape (n,)."""
    # Use differences of logarithms, since ratios of extreme numbers overflow.
    ratios: Floats = np.log(variant) - np.log(baseline)
    return ratios


def exponential(interval: Interval) -> Interval:
    """Convert an interval of logarithms to an interval of ratios."""
    low, high = (None if bound is None else _exp(bound) for bound in (interval.low, interval.high))
    return Interval(_exp(interval.estimate), low, high)


def _exp(value: float) -> float:
    # A wide interval from two networks may exceed the largest float.
    return float(np.exp(np.clip(value, -700.0, 700.0)))
