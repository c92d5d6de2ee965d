"""Graded verdicts on comparisons: shown, the same, suggested or open. Arrays in, verdicts out.

A family of comparisons, the endpoints, shares one error level. Definitions and sources:
docs/reference/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Looks, Replicate
from analysis.inference.corrections import adjusted
from analysis.inference.effects import Effect, paired_effect, welch_effect
from analysis.inference.intervals import CONFIDENCE, Interval, exponential, log_ratios
from analysis.inference.rare import unseen_share
from analysis.inference.sample_size import count_to_settle, rounded_more, shown_from
from analysis.inference.sequential import Spending, sequential_p, spending
from analysis.inference.signed_ranks import typical_value
from analysis.inference.skewness import looks_skewed
from analysis.measures.metric import Margin, Quantity

LEVEL = 0.05
"""Chance of any false "shown" in a family, and of any false "the same"."""

LARGEST_LOG = 100.0
"""Of a factor; a larger one has no number for readers."""

Better = Literal["lower", "higher"]
Values = Sequence[float | None] | Floats


class Grade(StrEnum):
    """How far a comparison is known."""

    SHOWN = "shown"
    """A difference: its adjusted p-value is at most the level."""
    SAME = "same"
    """The difference is shown to be smaller than the margin, even if there is one."""
    SUGGESTED = "suggested"
    """Its own 95% interval leaves out no difference; no decision may rest on it."""
    OPEN = "open"


@dataclass(frozen=True)
class _Comparison:
    """A variant's values against the baseline's; None or NaN: this run has no value.

    Attributes:
        variant: one value per network, or per repeat of one network.
        baseline: one value for each, too.
        margin: what counts as the same.
        better: which direction is the better one, or None.
        resolution: step in which values are known, >= 0, in the metric's unit.
        replicate: what has one value: "network", or in the scope of one network "repeat".
    """

    variant: Values
    baseline: Values
    margin: Margin
    better: Better | None = None
    resolution: float = 0.0
    replicate: Replicate = "network"


@dataclass(frozen=True)
class Paired(_Comparison):
    """The same networks or repeats on both sides, in the same order."""

    def __post_init__(self) -> None:
        if len(self.variant) != len(self.baseline):
            raise ValueError("paired values need the same length")


@dataclass(frozen=True)
class Unpaired(_Comparison):
    """Two independent sets of runs, as other people's results are."""


Sides = Paired | Unpaired


@dataclass(frozen=True)
class Verdict:
    """What is known about one comparison.

    Attributes:
        grade: how far it is known; None: no endpoint, so that only the estimate counts.
        direction: of a difference that is shown or suggested; "" where there is none or neither
            direction is better.
        effect: with its interval at 95 %, for this comparison alone; None if there is no value.
        scale: "ratio": the effect is variant / baseline (geometric means); "difference": variant -
            baseline.
        margin: largest effect that counts as the same on that scale (a ratio of 1.05, or a
            difference); None where it has no size.
        p_different: adjusted for the family; None without a test.
        p_equivalent: adjusted for the family; None without a test.
        count: pairs, or runs of the smaller side.
        agreeing: pairs whose difference points in the estimate's direction; None where there are
            no pairs or no estimate.
        more_networks: about how many more would lead to "shown" or "the same", rounded; None if
            it is known already, if more than ``MAX_MORE`` would be needed, or if there is no test.
        detectable: the smallest difference that so many networks show, on the scale of the effect
            (a factor above 1, or a difference); None without a test, or without any spread.
        reason: why there is no grade or no test, or what else to know; "" if plain.
        caution: what the verdict does not cover in these data; "" if nothing was seen.
        replicate: as in the comparison.
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
        """Whether a difference, or the lack of one, is shown."""
        return self.grade in (Grade.SHOWN, Grade.SAME)

    @property
    def word(self) -> str:
        """The grade in a word for tables, of a difference that is shown its direction."""
        if self.grade is None:
            return ""
        return (self.grade is Grade.SHOWN and self.direction) or self.grade.value

    @property
    def more(self) -> str:
        """How many more replicates would lead to an answer, in words; "" if not known."""
        if self.more_networks is None:
            return ""
        plural = "" if self.more_networks == 1 else "s"
        return f"about {self.more_networks} more {self.replicate}{plural}"


def exposure(metric: Quantity, count: int) -> float | None:
    """Return in which share of networks ``count`` of them may have missed harm, for a rate.

    A verdict is of the typical network; harm to few others may be missed with the chance ``LEVEL``.
    None of what is no rate.
    """
    rate = metric.judged is not None and metric.judged.rate
    return unseen_share(count, LEVEL) if rate and count else None


@dataclass(frozen=True)
class _Measured:
    """A comparison turned into what the tests take, all on one scale."""

    comparison: Sides
    variant: Floats
    baseline: Floats
    ratio: bool
    margin: float | None
    reason: str

    @property
    def count(self) -> int:
        return int(min(self.variant.size, self.baseline.size))

    def effect(self, first: int | None = None) -> Effect | None:
        """Of all pairs, or of the first few; None where there is no test."""
        if self.reason:
            return None
        variant, baseline = self.variant[:first], self.baseline[:first]
        paired = isinstance(self.comparison, Paired)
        if self.ratio and paired:
            return paired_effect(log_ratios(variant, baseline), self.resolution)
        if self.ratio:
            return welch_effect(np.log(variant), np.log(baseline), self.resolution)
        if paired:
            return paired_effect(variant - baseline, self.resolution)
        return welch_effect(variant, baseline, self.resolution)

    @property
    def resolution(self) -> float:
        """The step of the values on the scale of the tests."""
        if not self.ratio or not self.comparison.resolution:
            return self.comparison.resolution
        # A small step of x is the step / x of log x.
        # Logarithms of floats differ by less than 1500: a longer step says no more, and overflows.
        return min(1500.0, self.comparison.resolution / float(np.mean(self.baseline)))

    def p_values(self, effect: Effect, looks: Spending | None) -> tuple[float, float]:
        """Of "no difference", two-sided, and of "not equivalent" (1 without a margin).

        With looks: over all of them so far, each at its own part of the pairs.
        """
        effects = [effect]
        if looks is not None:
            effects = [e for size in looks.sizes if (e := self.effect(size)) is not None]

        def joined(one_sided: list[float]) -> float:
            return one_sided[0] if looks is None else sequential_p(one_sided, looks)

        above = joined([effect.p_above(0.0, both_sides=True) for effect in effects])
        below = joined([effect.p_below(0.0, both_sides=True) for effect in effects])
        inside = joined([self._p_outside(effect) for effect in effects])
        return min(1.0, 2 * min(above, below)), inside

    def _p_outside(self, effect: Effect) -> float:
        return 1.0 if self.margin is None else effect.p_equivalent(self.margin)

    @property
    def scaled(self) -> Floats:
        """The pairs' differences on the scale of the tests; empty where there are none."""
        finite = np.isfinite(self.variant).all() and np.isfinite(self.baseline).all()
        if not finite or not isinstance(self.comparison, Paired):
            return np.empty(0)
        if self.ratio:
            return log_ratios(self.variant, self.baseline)
        return self.variant - self.baseline

    @property
    def lone_estimate(self) -> float | None:
        """The effect of the only pair."""
        if self.variant.size != 1 or self.baseline.size != 1:
            return None
        if not np.isfinite([self.variant[0], self.baseline[0]]).all():
            return None
        if self.ratio:
            return float(log_ratios(self.variant, self.baseline)[0])
        return float(self.variant[0] - self.baseline[0])


def decide(
    comparisons: Mapping[str, Sides] | Iterable[tuple[str, Sides]],
    level: float = LEVEL,
    looks: Looks | None = None,
    weights: Sequence[float] | None = None,
) -> dict[str, Verdict]:
    """Return graded verdicts on a family of comparisons, by name.

    p-values are adjusted within the family by the graphical procedure of
    ``corrections.adjusted``, once for differences (paired or Welch t test) and once for equivalence
    (two one-sided tests): the chance of any false "shown" is at most ``level``, and so is that of
    any false "same". A comparison that cannot be tested stays in the family.

    Args:
        comparisons: the family, by name, in its order.
        level: chance of a false verdict of each kind.
        looks: when the pairs were looked at while they grew; the level then holds over all looks.
        weights: shares of the level; None: all the same, which is Holm's procedure.

    Raises:
        ValueError: a name twice, a level outside of (0, 1), or looks at unpaired data.
    """
    return {
        name: _verdict(test, level)
        for name, test in _test(comparisons, level, looks, weights).items()
    }


def describe(sides: Sides, reason: str = "") -> Verdict:
    """Return the estimate and interval of a comparison that is no endpoint, without a grade.

    reason: why it is not judged, if that has to be said.
    """
    member = _measure(sides, None)
    verdict = _verdict(_Test(member, member.effect(), None, 1.0, 1.0, 0.0, 0.0, 0.0), LEVEL)
    return replace(verdict, reason=reason) if reason else verdict


def grades(
    comparisons: Mapping[str, Sides] | Iterable[tuple[str, Sides]],
    level: float = LEVEL,
    looks: Looks | None = None,
    weights: Sequence[float] | None = None,
) -> dict[str, Grade | None]:
    """Return only the grade of each verdict, as ``decide`` finds it; quicker."""
    return {name: test.grade for name, test in _test(comparisons, level, looks, weights).items()}


@dataclass(frozen=True)
class _Test:
    """A comparison, tested; without a grade where it is no member of a family.

    Attributes:
        member: the comparison.
        effect: what is tested; None without a test.
        grade: as in ``Verdict``.
        p_different: adjusted for the family; 1 where not tested.
        p_equivalent: adjusted for the family; 1 where not tested.
        share: its part of the level before anything is rejected.
        share_different: its part after all rejections of "no difference".
        share_equivalent: its part after all rejections of "not equivalent", which is a family of
            its own: what is shown to be the same is still open as to whether it differs at all.
    """

    member: _Measured
    effect: Effect | None
    grade: Grade | None
    p_different: float
    p_equivalent: float
    share: float
    share_different: float
    share_equivalent: float


def _test(
    comparisons: Mapping[str, Sides] | Iterable[tuple[str, Sides]],
    level: float,
    looks: Looks | None,
    weights: Sequence[float] | None,
) -> dict[str, _Test]:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, got {level}")
    named = list(comparisons.items() if isinstance(comparisons, Mapping) else comparisons)
    if len(dict(named)) < len(named):
        raise ValueError("two comparisons have the same name")
    family = [_measure(comparison, looks) for _, comparison in named]
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
    # A member that is not rejected has its part of the weight of all that are not.
    left = [level * shares / max(float(shares[p > level].sum()), 1e-12) for p in kinds]
    return {
        name: _Test(
            member, effect, _grade(effect, p, q, level), float(p), float(q),
            level * float(share), float(of_different), float(of_equivalent),
        )
        for (name, _), member, effect, p, q, share, of_different, of_equivalent in zip(
            named, family, effects, *kinds, shares, *left, strict=True
        )
    }  # fmt: skip


def _grade(effect: Effect | None, p: float, q: float, level: float) -> Grade:
    if effect is None:
        return Grade.OPEN
    if q <= level:
        return Grade.SAME
    if p <= level:
        return Grade.SHOWN
    # No interval is narrower than that of t with many degrees of freedom; this is only quicker.
    if abs(effect.estimate) <= 1.9 * effect.standard_error:
        return Grade.OPEN
    return Grade.SUGGESTED if effect.interval(CONFIDENCE).leaves_out(0.0) else Grade.OPEN


def _measure(comparison: Sides, looks: Looks | None) -> _Measured:
    variant, baseline = (
        # None becomes NaN.
        np.asarray(side, dtype=np.float64)
        for side in (comparison.variant, comparison.baseline)
    )
    known = np.concatenate((variant, baseline))
    known = known[np.isfinite(known)]
    margin = comparison.margin
    ratio = margin.relative and bool(np.all(known > 0))
    size: float | None = margin.value
    if ratio:
        size = float(np.log1p(margin.value))
    elif margin.relative:
        # A share of a baseline around zero: there are no ratios, and no margin either if it is 0.
        of = baseline[np.isfinite(baseline)]
        size = margin.value * abs(float(of.mean())) if of.size and of.mean() != 0 else None
    reason = _why_not(comparison, variant, baseline)
    if looks is not None and not reason:
        if not isinstance(comparison, Paired):
            raise ValueError("looks are for paired data")
        if variant.size < looks.sizes[-1]:
            reason = f"{variant.size} pairs, fewer than the {looks.sizes[-1]} looked at"
    if not reason and not comparison.resolution and _agree(comparison, variant, baseline):
        # With a known step they would have its spread at least.
        reason = "all agree exactly, and their step is not known: no spread to judge by"
    return _Measured(comparison, variant, baseline, ratio, size, reason)


def _agree(comparison: Sides, variant: Floats, baseline: Floats) -> bool:
    """Whether the values differ without any spread."""
    if isinstance(comparison, Paired):
        differences = variant - baseline
        return bool(differences[0] != 0 and np.ptp(differences) == 0)
    return bool(np.ptp(variant) == 0 and np.ptp(baseline) == 0 and variant[0] != baseline[0])


def _why_not(comparison: Sides, variant: Floats, baseline: Floats) -> str:
    """Why there is no test; "" if there is one."""
    paired = isinstance(comparison, Paired)
    if min(variant.size, baseline.size) == 0:
        return f"no common {comparison.replicate}" if paired else "no runs on one side"
    if paired:
        missing = int(np.sum(~np.isfinite(variant) | ~np.isfinite(baseline)))
        if missing:
            # To leave those pairs out would be to select.
            return f"{missing} of {variant.size} pairs lack a value"
        return "one pair: no spread to judge by" if variant.size == 1 else ""
    missing = int(np.sum(~np.isfinite(variant)) + np.sum(~np.isfinite(baseline)))
    if missing:
        return f"{missing} of {variant.size + baseline.size} runs lack a value"
    return (
        "one run on a side: no spread to judge by" if min(variant.size, baseline.size) == 1 else ""
    )


def _verdict(test: _Test, level: float) -> Verdict:
    member, effect, grade = test.member, test.effect, test.grade
    interval = None
    if effect is not None:
        interval = effect.interval(CONFIDENCE)
    elif member.lone_estimate is not None:
        interval = Interval(member.lone_estimate, None, None)
    more, detectable, reason = None, None, member.reason
    if effect is not None and grade is not None:
        if effect.standard_error > 0:
            detectable = shown_from(effect, test.share)
        if grade in (Grade.OPEN, Grade.SUGGESTED):
            total = count_to_settle(
                effect, member.margin, test.share_different, test.share_equivalent
            )
            more = rounded_more(None if total is None else total - effect.count)
            reason = "" if more is not None else f"not by more {member.comparison.replicate}s"
        if grade is Grade.SAME and test.p_different <= level:
            reason = "a difference smaller than the margin"
    direction: Literal["better", "worse", ""] = ""
    better = member.comparison.better
    if grade in (Grade.SHOWN, Grade.SUGGESTED) and better is not None and effect is not None:
        direction = "better" if (effect.estimate > 0) == (better == "higher") else "worse"
    agreeing = None
    if interval is not None and member.scaled.size:
        agreeing = int(np.sum(member.scaled * interval.estimate > 0))
    margin = member.margin
    if member.ratio:
        interval = None if interval is None else exponential(interval)
        margin = None if margin is None else float(np.exp(margin))
        detectable = None if detectable is None else float(np.exp(min(detectable, LARGEST_LOG)))
    tested = effect is not None and grade is not None
    return Verdict(
        grade,
        direction,
        interval,
        "ratio" if member.ratio else "difference",
        margin,
        test.p_different if tested else None,
        test.p_equivalent if tested and member.margin is not None else None,
        member.count,
        agreeing,
        more,
        detectable,
        reason,
        _caution(member, effect),
        member.comparison.replicate,
    )


def _caution(member: _Measured, effect: Effect | None) -> str:
    """Return what an estimate does not cover in these data; "" if nothing was seen."""
    if effect is None:
        return ""
    values, one = member.scaled, member.comparison.replicate
    if not looks_skewed(values, member.resolution):
        return ""
    numbers = ""
    if member.ratio:
        typical = np.exp(typical_value(values))
        numbers = f" (x {typical:.3f}; mean x {np.exp(effect.estimate):.3f})"
    return f"a few {one}s are far off: this is about the typical {one}{numbers}, not the mean"
