"""A difference with its uncertainty, and the t tests on it. Arrays in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from analysis.inference.intervals import CONFIDENCE, Interval, t_quantile


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
