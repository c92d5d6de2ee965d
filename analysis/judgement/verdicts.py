"""Graded verdicts on comparisons: shown, same, suggested or open.

Endpoints that are judged together are a family, and share one error level.
docs/reference/statistics.md has the definitions and sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np

from analysis.arrays import Bools, Floats
from analysis.formats.study import Looks, Replicate
from analysis.inference.corrections import adjusted
from analysis.inference.effects import Effect, paired_effect, welch_effect
from analysis.inference.intervals import Interval, exponential, log_ratios
from analysis.inference.sample_size import count_to_settle, rounded_more, shown_from, unseen_share
from analysis.inference.sequential import Spending, sequential_p, spending
from analysis.inference.shapes import looks_skewed
from analysis.inference.signed_ranks import typical_value
from analysis.measures.metric import Margin, Quantity

LEVEL = 0.05
"""Probability of any false "shown" in a family, and of any false "same"."""

MAX_LOG = 100.0
"""Maximum logarithm of a factor in output, to avoid overflow."""

Better = Literal["lower", "higher"]
Values = Sequence[float | None] | Floats


class Grade(StrEnum):
    """The strength of the evidence in a comparison."""

    SHOWN = "shown"
    """A difference whose adjusted p-value is at most the level."""
    SAME = "same"
    """The difference is shown to be smaller than the margin, even if it is not zero."""
    SUGGESTED = "suggested"
    """The unadjusted 95% interval excludes zero. This is not sufficient for a decision."""
    OPEN = "open"


@dataclass(frozen=True)
class Sides:
    """The values of a variant and of the baseline; None or NaN for runs without a value.

    Attributes:
        variant: one value per network, or per repeat of one network. If the values are paired, the
            two values of a pair have the same index.
        baseline: one value per network or repeat.
        margin: the equivalence margin.
        better: the preferred direction, or None.
        resolution: rounding step of the values, >= 0, in the metric's unit.
        replicate: the unit of replication: "network", or "repeat" if all values are of one network.
        paired: whether the values are of the same networks or repeats; otherwise the sides are
            independent sets of runs, such as results of other groups.
    """

    variant: Values
    baseline: Values
    margin: Margin
    better: Better | None = None
    resolution: float = 0.0
    replicate: Replicate = "network"
    paired: bool = True


@dataclass(frozen=True)
class Verdict:
    """The result of one comparison.

    Attributes:
        grade: strength of the evidence; None if this is not an endpoint and only has an estimate.
        direction: direction of a shown or suggested difference; "" without one, or if neither
            direction is better.
        effect: estimate with its unadjusted 95% interval; None if there is no estimate.
        scale: "ratio": the effect is variant / baseline (geometric means); "difference": variant -
            baseline.
        margin: largest equivalent effect on the scale ``scale`` (a ratio of 1.05, or a difference);
            None if it cannot be computed.
        p_different: p-value of "no difference", adjusted for the family; None without a test.
        p_equivalent: p-value of "not equivalent", adjusted for the family; None without a test or
            a margin.
        count: number of pairs; for unpaired data, the smaller of the two numbers of runs.
        agreeing: number of pairs whose difference has the sign of the estimate; None without pairs
            or without an estimate.
        more_networks: approximate number of further networks for "shown" or "same", rounded; None
            if the verdict is settled, if more than ``MAX_MORE`` are needed, or without a test.
        detectable: the smallest difference that this number of networks detects, on the scale of
            the effect (a factor above 1, or a difference); None without a test or without spread.
        reason: why there is no grade or no test, or a note on the grade; "" otherwise.
        caution: a limitation of the verdict in these data; "" if none was found.
        replicate: as in ``Sides``.
    """

    grade: Grade | None
    direction: Literal["better", "worse", ""]
    effect: Interval | None
    scale: Literal["difference", "ratio"]
    margin: float | None
    p_different: float | None
    p_equivalent: float | None
    count: int
    agreeing: int | None
    more_networks: int | None
    detectable: float | None
    reason: str
    caution: str = ""
    replicate: Replicate = "network"

    @property
    def settled(self) -> bool:
        """True if a difference or equivalence is shown."""
        return self.grade in (Grade.SHOWN, Grade.SAME)

    @property
    def word(self) -> str:
        """Word for tables: the direction of a shown difference, else the grade; "" if ungraded."""
        if self.grade is None:
            return ""
        return (self.grade is Grade.SHOWN and self.direction) or self.grade.value

    @property
    def more(self) -> str:
        """Text on the number of further replicates that would settle the verdict; "" if unknown."""
        if self.more_networks is None:
            return ""
        plural = "" if self.more_networks == 1 else "s"
        return f"about {self.more_networks} more {self.replicate}{plural}"

    def shown_sign(self, level: float = LEVEL) -> int:
        """Return the sign of a difference that is shown at this level; 0 if none is shown."""
        if self.p_different is None or self.p_different > level or self.effect is None:
            return 0
        return 1 if self.effect.estimate > (self.scale == "ratio") else -1


def exposure(metric: Quantity, count: int) -> float | None:
    """Return the largest share of all networks in which harm may occur without being observed.

    A verdict is about the typical network. If harm occurs in this share of all networks, the
    probability that none of the ``count`` networks of a study has it is ``LEVEL``. The result is
    None if the metric is not a rate, or if ``count`` is 0.
    """
    rate = metric.judged is not None and metric.judged.rate
    return unseen_share(count, LEVEL) if rate and count else None


@dataclass(frozen=True)
class _Measured:
    """A comparison, prepared for its tests.

    Attributes:
        comparison: its values and margin.
        variant: values of the variant, NaN if missing; not yet logarithms.
        baseline: values of the baseline, in the same form.
        ratio: whether the tests use logarithms, so that they are about ratios.
        margin: the margin on the scale of the tests, or None.
        reason: why no test is possible, or "".
    """

    comparison: Sides
    variant: Floats
    baseline: Floats
    ratio: bool
    margin: float | None
    reason: str

    def effect(self, first: int | None = None) -> Effect | None:
        """Return the effect in the first ``first`` pairs (None: all); None if there is no test."""
        if self.reason:
            return None
        if self.comparison.paired:
            return paired_effect(self.differences[:first], self.resolution)
        variant, baseline = self.variant, self.baseline
        if self.ratio:
            variant, baseline = np.log(variant), np.log(baseline)
        return welch_effect(variant, baseline, self.resolution)

    @property
    def differences(self) -> Floats:
        """The differences of pairs, or of two single runs, on the scale of the tests.

        The array is empty if there are none, or if a value is missing.
        """
        finite = np.isfinite(self.variant).all() and np.isfinite(self.baseline).all()
        single = self.variant.size == self.baseline.size == 1
        if not finite or not (self.comparison.paired or single):
            return np.empty(0)
        if self.ratio:
            return log_ratios(self.variant, self.baseline)
        return self.variant - self.baseline

    @property
    def resolution(self) -> float:
        """The resolution of the values on the scale of the tests."""
        if not self.ratio or not self.comparison.resolution:
            return self.comparison.resolution
        # A small step s in x is a step of s / x in log x. Logarithms of floats differ by less than
        # 1500, so a larger step adds nothing and could overflow.
        return min(1500.0, self.comparison.resolution / float(np.mean(self.baseline)))

    def p_values(self, effect: Effect, looks: Spending | None) -> tuple[float, float]:
        """Return the p-values of "no difference" and "not equivalent" (1 without a margin).

        With ``looks``, each p-value combines all looks so far. A look at n pairs uses the first n
        pairs.
        """
        effects = [effect]
        if looks is not None:
            effects = [e for size in looks.sizes if (e := self.effect(size)) is not None]

        def joined(one_sided: list[float]) -> float:
            return one_sided[0] if looks is None else sequential_p(one_sided, looks)

        above = joined([effect.p_above(0.0, two_sided=True) for effect in effects])
        below = joined([effect.p_below(0.0, two_sided=True) for effect in effects])
        outside = [1.0 if self.margin is None else e.p_equivalent(self.margin) for e in effects]
        return min(1.0, 2 * min(above, below)), joined(outside)


def decide(
    comparisons: Sequence[Sides],
    level: float = LEVEL,
    looks: Looks | None = None,
    weights: Sequence[float] | None = None,
) -> list[Verdict]:
    """Return graded verdicts on a family of comparisons, in order.

    p-values are adjusted within the family by the graphical procedure of ``corrections.adjusted``,
    once for differences and once for equivalence (two one-sided tests). The probability of any
    false "shown" is at most ``level``, and so is the probability of any false "same". A comparison
    that cannot be tested remains in the family.

    Args:
        comparisons: the comparisons of the family; paired ones if there are looks.
        level: probability of a false verdict of each kind, in (0, 1).
        looks: interim analyses (looks) of the pairs, or None. ``level`` holds over all looks.
        weights: shares of the level; None means equal shares, which is Holm's procedure.
    """
    return [_verdict(test, level) for test in _test(comparisons, level, looks, weights)]


def describe(sides: Sides, reason: str = "") -> Verdict:
    """Return the estimate and interval of a comparison that is not an endpoint, without a grade.

    reason: why the comparison is not judged; "" if this needs no explanation.
    """
    member = _measure(sides, None)
    verdict = _verdict(_Test(member, member.effect()), LEVEL)
    return replace(verdict, reason=reason) if reason else verdict


def grades(
    comparisons: Sequence[Sides],
    level: float = LEVEL,
    looks: Looks | None = None,
    weights: Sequence[float] | None = None,
) -> list[Grade | None]:
    """Return only the grade of each verdict, as ``decide`` determines it; this is faster."""
    return [test.grade for test in _test(comparisons, level, looks, weights)]


@dataclass(frozen=True)
class _Test:
    """A tested comparison. It has no grade if it does not belong to a family.

    Attributes:
        member: the comparison.
        effect: the tested effect; None without a test.
        grade: as in ``Verdict``.
        p_different: as in ``Verdict``; 1 if not tested.
        p_equivalent: as in ``Verdict``; 1 if not tested.
        share: the comparison's part of the error level before any rejection.
        share_different: this part after all rejections of "no difference".
        share_equivalent: this part after all rejections of "not equivalent". Tests for equivalence
            are a separate family: an equivalent comparison may still be tested for a difference.
    """

    member: _Measured
    effect: Effect | None
    grade: Grade | None = None
    p_different: float = 1.0
    p_equivalent: float = 1.0
    share: float = 0.0
    share_different: float = 0.0
    share_equivalent: float = 0.0


def _test(
    comparisons: Sequence[Sides], level: float, looks: Looks | None, weights: Sequence[float] | None
) -> list[_Test]:
    family = [_measure(comparison, looks) for comparison in comparisons]
    shares = np.asarray(weights or [1 / max(1, len(family))] * len(family))
    spent = None if looks is None else spending(looks.plans)
    effects = [member.effect() for member in family]
    p_values = [
        (1.0, 1.0)
        if effect is None
        else member.p_values(effect, None if spent is None else spent.up_to(effect.count))
        for member, effect in zip(family, effects, strict=True)
    ]
    kinds = [adjusted([pair[kind] for pair in p_values], shares) for kind in (0, 1)]
    # A rejected member passes its part of the error level to the other members, in proportion to
    # the shares of the other members.
    left = [level * shares / max(float(shares[p > level].sum()), 1e-12) for p in kinds]
    return [
        _Test(
            member, effect, _grade(effect, p, q, level), float(p), float(q),
            level * float(share), float(share_different), float(share_equivalent),
        )
        for member, effect, p, q, share, share_different, share_equivalent in zip(
            family, effects, *kinds, shares, *left, strict=True
        )
    ]  # fmt: skip


def _grade(effect: Effect | None, p: float, q: float, level: float) -> Grade:
    if effect is None:
        return Grade.OPEN
    if q <= level:
        return Grade.SAME
    if p <= level:
        return Grade.SHOWN
    # Save time if the interval certainly includes zero: each interval is wider than 1.9 standard
    # errors on both sides, because the 97.5% quantile of t is at least 1.96.
    if abs(effect.estimate) <= 1.9 * effect.standard_error:
        return Grade.OPEN
    return Grade.SUGGESTED if effect.interval().leaves_out(0.0) else Grade.OPEN


def _measure(comparison: Sides, looks: Looks | None) -> _Measured:
    variant, baseline = (
        # None becomes NaN.
        np.asarray(side, dtype=np.float64)
        for side in (comparison.variant, comparison.baseline)
    )
    known, known_baseline = (
        side[np.isfinite(side)] for side in (np.concatenate((variant, baseline)), baseline)
    )
    margin = comparison.margin
    ratio = margin.relative and bool(np.all(known > 0))
    size: float | None = margin.value
    if ratio:
        size = float(np.log1p(margin.value))
    elif margin.relative:
        # Here the tests are about differences, so the margin is relative to the mean of the
        # baseline. It is undefined if this mean is 0.
        mean = float(known_baseline.mean()) if known_baseline.size else 0.0
        size = margin.value * abs(mean) if mean else None
    reason = _why_not(comparison, variant, baseline, looks)
    return _Measured(comparison, variant, baseline, ratio, size, reason)


def _agree(comparison: Sides, variant: Floats, baseline: Floats) -> bool:
    """Return whether there is a difference without any spread.

    With pairs, this means that all pairs have the same nonzero difference. Without pairs, it means
    that all runs of a side have the same value, and that the two values differ.
    """
    if comparison.paired:
        differences = variant - baseline
        return bool(differences[0] != 0 and np.ptp(differences) == 0)
    return bool(np.ptp(variant) == 0 and np.ptp(baseline) == 0 and variant[0] != baseline[0])


def _why_not(comparison: Sides, variant: Floats, baseline: Floats, looks: Looks | None) -> str:
    """Return why no test is possible, or ""."""
    paired = comparison.paired
    fewest = min(variant.size, baseline.size)
    if fewest == 0:
        return f"no common {comparison.replicate}" if paired else "no runs on one side"
    lacking: Bools = np.concatenate((~np.isfinite(variant), ~np.isfinite(baseline)))
    missing = lacking[: variant.size] | lacking[variant.size :] if paired else lacking
    if missing.any():
        # Excluding these pairs or runs would bias the result.
        what = "pairs" if paired else "runs"
        return f"{int(missing.sum())} of {missing.size} {what} lack a value"
    if fewest == 1:
        return f"{'one pair' if paired else 'one run on a side'}: no spread to judge by"
    if looks is not None and variant.size < looks.sizes[-1]:
        return f"{variant.size} pairs, fewer than the {looks.sizes[-1]} looked at"
    if not comparison.resolution and _agree(comparison, variant, baseline):
        # With a known resolution, the variance of rounding is a lower limit of the spread, and a
        # test is possible.
        return "all values agree and their resolution is unknown: no spread to judge by"
    return ""


def _verdict(test: _Test, level: float) -> Verdict:
    member, effect, grade = test.member, test.effect, test.grade
    differences = member.differences
    interval = None
    if effect is not None:
        interval = effect.interval()
    elif differences.size == 1:
        interval = Interval(float(differences[0]), None, None)
    more, detectable, reason = None, None, member.reason
    if effect is not None and grade is not None:
        if effect.standard_error > 0:
            detectable = shown_from(effect, test.share)
        if grade in (Grade.OPEN, Grade.SUGGESTED):
            total = count_to_settle(
                effect, member.margin, test.share_different, test.share_equivalent
            )
            more = rounded_more(None if total is None else total - effect.count)
            reason = "" if more else f"more {member.comparison.replicate}s would not settle it"
        if grade is Grade.SAME and test.p_different <= level:
            reason = "a difference smaller than the margin"
    direction: Literal["better", "worse", ""] = ""
    better = member.comparison.better
    if grade in (Grade.SHOWN, Grade.SUGGESTED) and better is not None and effect is not None:
        direction = "better" if (effect.estimate > 0) == (better == "higher") else "worse"
    agreeing = None
    if interval is not None and member.comparison.paired:
        agreeing = int(np.sum(differences * interval.estimate > 0))
    margin = member.margin
    if member.ratio:
        interval = None if interval is None else exponential(interval)
        margin = None if margin is None else float(np.exp(margin))
        detectable = None if detectable is None else float(np.exp(min(detectable, MAX_LOG)))
    tested = effect is not None and grade is not None
    return Verdict(
        grade,
        direction,
        interval,
        "ratio" if member.ratio else "difference",
        margin,
        test.p_different if tested else None,
        test.p_equivalent if tested and member.margin is not None else None,
        int(min(member.variant.size, member.baseline.size)),
        agreeing,
        more,
        detectable,
        reason,
        _caution(member, effect),
        member.comparison.replicate,
    )


def _caution(member: _Measured, effect: Effect | None) -> str:
    """Return a warning if outliers limit the meaning of the estimate, else ""."""
    if effect is None:
        return ""
    values, one = member.differences, member.comparison.replicate
    if not looks_skewed(values, member.resolution):
        return ""
    numbers = ""
    if member.ratio:
        typical = np.exp(typical_value(values))
        times, mean = "\N{MULTIPLICATION SIGN}", np.exp(effect.estimate)
        numbers = f" ({times}{typical:.3f}; mean {times}{mean:.3f})"
    return f"a few {one}s are outliers: this is about the typical {one}{numbers}, not the mean"
