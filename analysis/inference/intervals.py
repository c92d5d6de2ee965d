"""Intervals of a mean and of a mean ratio of a few values, one per run.

Nothing here knows of runs or metrics. Methods and their sources: docs/reference/statistics.md.
Their coverage on data with a known truth: docs/explanation/statistics-validation.md.
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
    """An estimate and its interval; without bounds where there is one value only."""

    estimate: float
    low: float | None
    high: float | None

    def leaves_out(self, value: float) -> bool:
        """Whether the value lies outside; never where there are no bounds."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


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
    half = t_quantile((1 + confidence) / 2, array.size - 1.0) * (
        float(array.std(ddof=1)) / np.sqrt(array.size)
    )
    mean = float(array.mean())
    return Interval(mean, mean - half, mean + half)


def positive_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Mean and its interval, of what cannot be negative: the t interval of the mean's logarithm.

    The logarithm of the mean has the standard error of the mean over the mean, by the delta method.
    So the bounds are a factor away from the mean, and never below zero.

    Args:
        values: shape (n,), finite, >= 0.
        confidence: coverage, in (0, 1).

    Returns:
        Without bounds for one value, and for equal ones, which have no spread to judge by.

    Raises:
        ValueError: no values, or a negative one.
    """
    array = np.asarray(values, dtype=np.float64)
    plain = t_interval(array, confidence)
    if array.min() < 0:
        raise ValueError("a value is negative")
    # The mean of next to nothing can be 0 as a float.
    if plain.low is None or plain.high is None or np.ptp(array) == 0 or plain.estimate == 0:
        return Interval(plain.estimate, None, None)
    half = (plain.high - plain.low) / 2 / plain.estimate
    around = exponential(Interval(0.0, -half, half))
    assert around.low is not None
    assert around.high is not None
    return Interval(
        plain.estimate, plain.estimate * around.low, min(plain.estimate * around.high, 1e308)
    )


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
