"""A difference with its uncertainty, and the tests on it. Arrays in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from analysis.arrays import Floats
from analysis.inference.intervals import CONFIDENCE, Interval, t_quantile
from analysis.inference.shapes import SIGNED_RANKS_FROM, needed, trusted
from analysis.inference.signed_ranks import lower_bound, p_typical_above

RANKED_FROM = 8
"""Pairs from which on signed ranks are used as well: fewer can reject nothing at a level of 1%."""


@dataclass(frozen=True)
class Effect:
    """An estimated difference with its uncertainty.

    Attributes:
        estimate: the mean difference.
        standard_error: of the estimate; 0 where all differences are the same and the resolution is
            not known.
        df: degrees of freedom of the standard error, > 0.
        count: pairs, or runs of the smaller side.
        any_shape: whether p-values and intervals are of the typical difference and hold for the
            shapes of ``inference.shapes``; else they are those of t, of the mean.
        differences: the pairs' own, shape (count,), where signed ranks are to be asked too.
    """

    estimate: float
    standard_error: float
    df: float
    count: int
    any_shape: bool = False
    differences: Floats | None = field(default=None, compare=False, repr=False)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The interval of the difference: all that a two-sided test does not reject."""
        level = level_of_ranks = (1 - confidence) / 2
        if self.any_shape:
            level = needed(level, self.count, both_sides=True)
        half = t_quantile(1 - level, self.df) * self.standard_error
        low, high = self.estimate - half, self.estimate + half
        if self._ranked is not None and self.standard_error > 0:
            if self.count >= SIGNED_RANKS_FROM:
                level_of_ranks = level
            low = min(low, lower_bound(self._ranked, level_of_ranks))
            high = max(high, -lower_bound(-self._ranked, level_of_ranks))
        return Interval(self.estimate, low, high)

    def t_above(self, bound: float) -> float:
        """One-sided p-value of t for "the difference is at most ``bound``"."""
        distance = self.estimate - bound
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(stdtr(self.df, -distance / self.standard_error))

    def p_above(self, bound: float, *, both_sides: bool = False) -> float:
        """p-value of "the difference is at most ``bound``" against "it is larger".

        both_sides: whether ``p_below`` is asked too, and the smaller of the two is taken.
        """
        p = self.t_above(bound)
        if not self.any_shape or p >= 0.5:
            return p
        if self._ranked is None or self.standard_error == 0:
            return trusted(p, self.count, both_sides=both_sides)
        ranks = p_typical_above(self._ranked, bound)
        if self.count < SIGNED_RANKS_FROM:
            # The table is of t alone here, and ranks need no correction by it.
            worth = max(ranks, trusted(p, self.count, both_sides=both_sides))
        else:
            worth = trusted(max(p, ranks), self.count, both_sides=both_sides)
        if self._ranked.min() > bound:
            t_alone = trusted(p, self.count, both_sides=both_sides, ranks_at_end=True)
            worth = min(worth, t_alone)
        return worth

    def p_below(self, bound: float, *, both_sides: bool = False) -> float:
        """p-value of "the difference is at least ``bound``" against "it is smaller"."""
        return self._mirrored.p_above(-bound, both_sides=both_sides)

    @property
    def p_different(self) -> float:
        """Two-sided p-value of "there is no difference"."""
        sides = (side(0.0, both_sides=True) for side in (self.p_above, self.p_below))
        return min(1.0, 2 * min(sides))

    def p_equivalent(self, margin: float) -> float:
        """p-value of "the difference is at least ``margin`` in size": two one-sided tests.

        Schuirmann (1987), J. Pharmacokinetics and Biopharmaceutics 15(6).
        """
        return max(self.p_above(-margin), self.p_below(margin))

    def with_count(self, count: int) -> Effect:
        """The same estimate and spread, as ``count`` pairs would give them."""
        share = self.count / count
        df = self.df * (count - 1) / (self.count - 1)
        se = self.standard_error * float(np.sqrt(share))
        return Effect(self.estimate, se, df, count, self.any_shape)

    def t_needed(self, level: float, *, both_sides: bool) -> float:
        """The t statistic that a one-sided test at this level asks for."""
        if self.any_shape:
            level = needed(level, self.count, both_sides=both_sides)
        return t_quantile(1 - level, self.df)

    @property
    def _ranked(self) -> Floats | None:
        """The differences, where there are enough of them for signed ranks."""
        return self.differences if self.any_shape and self.count >= RANKED_FROM else None

    @property
    def _mirrored(self) -> Effect:
        mirrored = None if self.differences is None else -self.differences
        return Effect(
            -self.estimate, self.standard_error, self.df, self.count, self.any_shape, mirrored
        )


def paired_effect(differences: ArrayLike, resolution: float = 0.0) -> Effect:
    """The typical paired difference, for differences of any of the shapes of ``inference.shapes``.

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
    sd = max(float(array.std(ddof=1)), resolution / float(np.sqrt(6)))
    se = sd / float(np.sqrt(array.size))
    return Effect(float(array.mean()), se, array.size - 1.0, array.size, True, array)


def welch_effect(variant: ArrayLike, baseline: ArrayLike, resolution: float = 0.0) -> Effect:
    """The difference of two means of unpaired values by t alone; Welch (1947), Biometrika 34.

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
