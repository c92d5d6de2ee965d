"""Three verdicts on a comparison: different, equivalent, or not yet known. Arrays in, verdicts out.

"Different": zero lies outside of what the runs allow. "Equivalent": all that they allow lies inside
a margin stated beforehand; a difference that is there but certainly smaller than the margin is
equivalent too. Everything else is not yet known, with a reason, or with how many more seeds would
settle it. Definitions and sources: docs/reference/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Looks
from analysis.inference.corrections import holm
from analysis.inference.effects import Effect, paired_effect, welch_effect
from analysis.inference.intervals import CONFIDENCE, Interval, exponential, log_ratios
from analysis.inference.rare import p_rare, unseen_share
from analysis.inference.sample_size import MAX_SEEDS_ASKED, count_to_settle
from analysis.inference.sequential import Spending, sequential_p, spending
from analysis.inference.signed_ranks import typical_value
from analysis.inference.skewness import looks_skewed
from analysis.measures.metric import Margin

LEVEL = 0.05
"""Chance of any false "different" in a family, and of any false "equivalent"."""

Better = Literal["lower", "higher"]
Values = Sequence[float | None] | Floats


class State(StrEnum):
    """The three verdicts."""

    DIFFERENT = "different"
    EQUIVALENT = "equivalent"
    UNKNOWN = "not yet known"


@dataclass(frozen=True)
class _Comparison:
    """A variant's values against the baseline's; None or NaN: this run has no value.

    Attributes:
        variant: one value per seed.
        baseline: one value per seed.
        margin: what counts as the same.
        better: which direction is the better one, or None.
        resolution: step in which values are known, >= 0, in the metric's unit.
        unseen: by how much a network that was not seen may be off, in the metric's unit; 0: that is
            not asked. Only differences are asked it, not ratios.
    """

    variant: Values
    baseline: Values
    margin: Margin
    better: Better | None = None
    resolution: float = 0.0
    unseen: float = 0.0


@dataclass(frozen=True)
class Paired(_Comparison):
    """The same seeds on both sides, in the same order."""

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
        state: the verdict.
        direction: of a difference; "" where there is none or neither direction is better.
        effect: with its interval at 95 %, for this comparison alone; None if there is no value.
        scale: "ratio": the effect is variant / baseline (geometric means); "difference": variant -
            baseline.
        margin: largest effect that counts as the same on that scale (a ratio of 1.05, or a
            difference); None where it has no size.
        p_different: corrected for the family; None without a test.
        p_equivalent: likewise.
        count: pairs, or runs of the smaller side.
        more_seeds: how many more would settle it; None if settled or if that cannot be told.
        reason: why it is not known, or what else to know; "" if plain.
        caution: what the verdict does not cover in these data; "" if nothing was seen.
        all_same: no seed told the two apart, so that only what was not seen may differ.
        measured: what the tests took, on the logarithm where the effect is a ratio; None without a
            test.
    """

    state: State
    direction: Literal["better", "worse", ""]
    effect: Interval | None
    scale: Literal["difference", "ratio"]
    margin: float | None
    p_different: float | None
    p_equivalent: float | None
    count: int
    more_seeds: int | None
    reason: str
    caution: str = ""
    all_same: bool = False
    measured: Effect | None = None

    @property
    def settled(self) -> bool:
        """Whether more seeds could only confirm it."""
        return self.state is not State.UNKNOWN


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
        if not self.ratio:
            return self.comparison.resolution
        # A small step of x is the step / x of log x.
        return self.comparison.resolution / float(np.mean(self.baseline))

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
        """p-value of "not equivalent", for these pairs and for networks that were not seen."""
        if self.margin is None:
            return 1.0
        return max(effect.p_equivalent(self.margin), self.p_unseen(effect))

    def p_unseen(self, effect: Effect) -> float:
        """p-value of "networks that were not seen make up for the rest of the margin"."""
        if self.margin is None or not self.unseen:
            return 0.0
        return p_rare(effect.estimate, self.margin, self.unseen, effect.count)

    @property
    def unseen(self) -> float:
        """By how much a network that was not seen may be off: at least as much as one that was."""
        if self.ratio or not self.comparison.unseen:
            return 0.0
        sides = self.variant, self.baseline
        if isinstance(self.comparison, Paired):
            seen = float(np.max(np.abs(self.variant - self.baseline), initial=0.0))
        else:
            seen = max(float(np.ptp(side)) if side.size else 0.0 for side in sides)
        return max(self.comparison.unseen, seen)

    @property
    def scaled(self) -> Floats:
        """The pairs' differences on the scale of the tests; empty where there are no pairs."""
        if self.reason or not isinstance(self.comparison, Paired):
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
) -> dict[str, Verdict]:
    """Verdicts on a family of comparisons, by name.

    Holm's correction runs over the family, once for differences (paired or Welch t test) and once
    for equivalence (two one-sided tests): the chance of any false "different" is at most ``level``,
    and so is that of any false "equivalent". A comparison that cannot be tested stays in the
    family.

    Args:
        comparisons: the family, by name.
        level: chance of a false verdict of each kind.
        looks: when the pairs were looked at while they grew; the level then holds over all looks.

    Raises:
        ValueError: a name twice, a level outside of (0, 1), or looks at unpaired data.
    """
    tested = _test(comparisons, level, looks)
    shares = _Shares(
        *(
            level / max(1, sum(p > level for p in p_values))
            for p_values in (
                [test.p_different for test in tested.values()],
                [test.p_equivalent for test in tested.values()],
            )
        )
    )
    return {name: _verdict(test, level, shares) for name, test in tested.items()}


def states(
    comparisons: Mapping[str, Sides] | Iterable[tuple[str, Sides]],
    level: float = LEVEL,
    looks: Looks | None = None,
) -> dict[str, State]:
    """Only which of the three each verdict is, as ``decide`` finds it; quicker."""
    return {name: test.state for name, test in _test(comparisons, level, looks).items()}


def tally(verdicts: Iterable[Verdict]) -> dict[State, int]:
    """How many verdicts of each kind there are, all three named."""
    states = [verdict.state for verdict in verdicts]
    return {state: states.count(state) for state in State}


@dataclass(frozen=True)
class _Test:
    """A member of a family, tested; p-values corrected for the family, 1 where not tested."""

    member: _Measured
    effect: Effect | None
    state: State
    p_different: float
    p_equivalent: float


@dataclass(frozen=True)
class _Shares:
    """What Holm asks of the next test of each kind: the level over how many are not rejected.

    The two kinds are families of their own: what is shown to be equivalent is still open as to
    whether it differs at all.
    """

    different: float
    equivalent: float


def _test(
    comparisons: Mapping[str, Sides] | Iterable[tuple[str, Sides]],
    level: float,
    looks: Looks | None,
) -> dict[str, _Test]:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, got {level}")
    named = list(comparisons.items() if isinstance(comparisons, Mapping) else comparisons)
    if len(dict(named)) < len(named):
        raise ValueError("two comparisons have the same name")
    family = [_measure(comparison, looks) for _, comparison in named]
    spent = None if looks is None else spending(looks.plans)
    effects = [member.effect() for member in family]
    p_values = [
        (1.0, 1.0)
        if effect is None
        else member.p_values(effect, None if spent is None else spent.up_to(effect.count))
        for member, effect in zip(family, effects, strict=True)
    ]
    different, equivalent = (holm([pair[kind] for pair in p_values]) for kind in (0, 1))
    return {
        name: _Test(member, effect, _state(effect, p, q, level), float(p), float(q))
        for (name, _), member, effect, p, q in zip(
            named, family, effects, different, equivalent, strict=True
        )
    }


def _state(effect: Effect | None, p: float, q: float, level: float) -> State:
    if effect is None:
        return State.UNKNOWN
    if q <= level:
        return State.EQUIVALENT
    return State.DIFFERENT if p <= level else State.UNKNOWN


def _measure(comparison: Sides, looks: Looks | None) -> _Measured:
    variant, baseline = (
        np.array([np.nan if v is None else v for v in side], dtype=np.float64)
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
        return "no common seed" if paired else "no runs on one side"
    if paired:
        missing = int(np.sum(~np.isfinite(variant) | ~np.isfinite(baseline)))
        if missing:
            # To leave those seeds out would be to select.
            return f"{missing} of {variant.size} pairs lack a value"
        return "one pair: no spread to judge by" if variant.size == 1 else ""
    missing = int(np.sum(~np.isfinite(variant)) + np.sum(~np.isfinite(baseline)))
    if missing:
        return f"{missing} of {variant.size + baseline.size} runs lack a value"
    return (
        "one run on a side: no spread to judge by" if min(variant.size, baseline.size) == 1 else ""
    )


def _verdict(test: _Test, level: float, shares: _Shares) -> Verdict:
    member, effect, state = test.member, test.effect, test.state
    interval = None
    if effect is not None:
        interval = effect.interval(CONFIDENCE)
    elif member.lone_estimate is not None:
        interval = Interval(member.lone_estimate, None, None)
    more, reason = None, member.reason
    if effect is not None and state is State.UNKNOWN:
        total = count_to_settle(
            effect,
            member.margin,
            shares.different,
            shares.equivalent,
            largest_unseen=member.unseen,
        )
        more = None if total is None else total - effect.count
        if more is None:
            reason = f"{MAX_SEEDS_ASKED} seeds would not settle it"
    direction: Literal["better", "worse", ""] = ""
    better = member.comparison.better
    if state is State.DIFFERENT and better is not None and effect is not None:
        direction = "better" if (effect.estimate > 0) == (better == "higher") else "worse"
    if state is State.EQUIVALENT and test.p_different <= level and not reason:
        reason = "a difference smaller than the margin"
    margin = member.margin
    if member.ratio:
        interval = None if interval is None else exponential(interval)
        margin = None if margin is None else float(np.exp(margin))
    return Verdict(
        state,
        direction,
        interval,
        "ratio" if member.ratio else "difference",
        margin,
        None if effect is None else test.p_different,
        None if effect is None or member.margin is None else test.p_equivalent,
        member.count,
        more,
        reason,
        _caution(test, shares.equivalent),
        bool(member.scaled.size and not member.scaled.any()),
        effect,
    )


def _caution(test: _Test, share: float) -> str:
    """What the verdict does not cover in these data; "" if nothing was seen.

    share: level that Holm asks of the next test of equivalence.
    """
    member, effect = test.member, test.effect
    if effect is None:
        return ""
    words = []
    if test.state is State.UNKNOWN and member.p_unseen(effect) > share:
        percent = 100 * unseen_share(effect.count, share)
        words.append(
            f"harm to up to {percent:.0f}% of networks would not show in {effect.count} seeds"
        )
    values = member.scaled
    if looks_skewed(values, member.resolution):
        typical = typical_value(values)
        numbers = ""
        if member.ratio:
            numbers = f" (x {np.exp(typical):.3f}; mean x {np.exp(effect.estimate):.3f})"
        words.append(f"a few seeds are far off: of the typical seed{numbers}, not of the mean")
    return "; ".join(words)
