"""An estimated difference with its uncertainty and tests. Arrays in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from analysis.arrays import Floats
from analysis.inference.intervals import CONFIDENCE, Interval, t_quantile
from analysis.inference.shapes import SIGNED_RANKS_FROM, nominal_p_for, shape_corrected_p
from analysis.inference.signed_ranks import lower_bound, p_typical_above

RANKED_FROM = 8
"""Minimum number of pairs for the signed-rank test.

With fewer pairs, the two-sided test cannot reject at 1%.
"""


@dataclass(frozen=True)
class Effect:
    """An estimated difference with its uncertainty.

    Attributes:
        estimate: the mean difference.
        standard_error: standard error of the estimate; 0 if all differences are equal and the
            resolution is unknown.
        df: degrees of freedom of the standard error, > 0.
        count: number of pairs; for unpaired data, the smaller of the two numbers of runs.
        robust: whether p-values and intervals are about the typical difference (the pseudomedian,
            see ``signed_ranks``) and hold for the distributions in ``shapes``. Otherwise, they come
            from a t test of the mean.
        differences: the paired differences, shape (count,), for signed ranks; None if they are
            unknown or unpaired.
    """

    estimate: float
    standard_error: float
    df: float
    count: int
    robust: bool = False
    differences: Floats | None = field(default=None, compare=False, repr=False)

    def interval(self) -> Interval:
        """Return the ``CONFIDENCE`` interval: what a two-sided test does not reject."""
        level = level_of_ranks = (1 - CONFIDENCE) / 2
        if self.robust:
            level = nominal_p_for(level, self.count, two_sided=True)
        half = t_quantile(1 - level, self.df) * self.standard_error
        low, high = self.estimate - half, self.estimate + half
        if self._ranked is not None and self.standard_error > 0:
            if self.count >= SIGNED_RANKS_FROM:
                level_of_ranks = level
            low = min(low, lower_bound(self._ranked, level_of_ranks))
            high = max(high, -lower_bound(-self._ranked, level_of_ranks))
        return Interval(self.estimate, low, high)

    def t_above(self, bound: float) -> float:
        """Return the one-sided p-value of the t test of "the difference is at most ``bound``"."""
        distance = self.estimate - bound
        if self.standard_error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(stdtr(self.df, -distance / self.standard_error))

    def p_above(self, bound: float, *, two_sided: bool = False) -> float:
        """Return the p-value of "the difference is at most ``bound``" against "it is larger".

        two_sided: whether the caller uses the smaller one of the results of this method and of
            ``p_below``.
        """
        p = self.t_above(bound)
        if not self.robust or p >= 0.5:
            return p
        if self._ranked is None or self.standard_error == 0:
            return shape_corrected_p(p, self.count, two_sided=two_sided)
        ranks = p_typical_above(self._ranked, bound)
        # Below SIGNED_RANKS_FROM pairs, the table is for the t test alone. The p-value of the
        # signed-rank test needs no correction.
        t_alone = shape_corrected_p(p, min(self.count, SIGNED_RANKS_FROM - 1), two_sided=two_sided)
        if self.count < SIGNED_RANKS_FROM:
            both = max(ranks, t_alone)
        else:
            both = shape_corrected_p(max(p, ranks), self.count, two_sided=two_sided)
        # If all differences are above the bound, signed ranks cannot give a smaller p-value.
        return min(both, t_alone) if self._ranked.min() > bound else both

    def p_below(self, bound: float, *, two_sided: bool = False) -> float:
        """Return the p-value of "the difference is at least ``bound``" against "it is smaller"."""
        differences = None if self.differences is None else -self.differences
        mirrored = replace(self, estimate=-self.estimate, differences=differences)
        return mirrored.p_above(-bound, two_sided=two_sided)

    @property
    def p_different(self) -> float:
        """Two-sided p-value of "there is no difference"."""
        return min(
            1.0, 2 * min(self.p_above(0.0, two_sided=True), self.p_below(0.0, two_sided=True))
        )

    def p_equivalent(self, margin: float) -> float:
        """Return the p-value of "the difference is at least ``margin`` in size".

        This combines two one-sided tests: Schuirmann (1987), J. Pharmacokinetics and
        Biopharmaceutics 15(6).
        """
        return max(self.p_above(-margin), self.p_below(margin))

    def with_count(self, count: int) -> Effect:
        """Return the effect with the same estimate and spread for ``count`` pairs."""
        df = self.df * (count - 1) / (self.count - 1)
        se = self.standard_error * float(np.sqrt(self.count / count))
        return Effect(self.estimate, se, df, count, self.robust)

    def t_needed(self, level: float, *, two_sided: bool) -> float:
        """Return the t statistic at which a one-sided test at this level rejects.

        two_sided: whether a second test at the same level covers the other side.
        """
        if self.robust:
            level = nominal_p_for(level, self.count, two_sided=two_sided)
        return t_quantile(1 - level, self.df)

    @property
    def _ranked(self) -> Floats | None:
        """The differences if there are enough for signed ranks, otherwise None."""
        return self.differences if self.robust and self.count >= RANKED_FROM else None


def paired_effect(differences: ArrayLike, resolution: float = 0.0) -> Effect:
    """Return the effect of paired differences, with tests that correct for non-normal data.

    Args:
        differences: shape (n,), n >= 2, finite.
        resolution: rounding step of the values. The difference of two rounded values has at least
            the variance of rounding, resolution^2 / 6. A smaller variance of the differences is
            raised to this value, so that a few equal counts do not suggest certainty.
    """
    array = np.asarray(differences, dtype=np.float64)
    sd = max(float(array.std(ddof=1)), resolution / float(np.sqrt(6)))
    se = sd / float(np.sqrt(array.size))
    return Effect(float(array.mean()), se, array.size - 1.0, array.size, True, array)


def welch_effect(variant: ArrayLike, baseline: ArrayLike, resolution: float = 0.0) -> Effect:
    """Return the difference of two unpaired means with a t test; Welch (1947), Biometrika 34.

    Args:
        variant: shape (n,), n >= 2, finite.
        baseline: shape (m,), m >= 2, finite.
        resolution: rounding step of the values. The variance of each side is at least the variance
            of rounding, resolution^2 / 12.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (variant, baseline)]
    squares = [max(float(side.var(ddof=1)), resolution**2 / 12) / side.size for side in sides]
    total = sum(squares)
    count = min(side.size for side in sides)
    df = float(count - 1)
    if total > 0:
        shares = [square / total for square in squares]
        df = 1 / sum(share**2 / (side.size - 1) for share, side in zip(shares, sides, strict=True))
    difference = float(sides[0].mean()) - float(sides[1].mean())
    return Effect(difference, float(np.sqrt(total)), df, count)
