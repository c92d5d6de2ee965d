"""Statements of a claim: what each compares, and how its answer follows from verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from analysis.arrays import Floats
from analysis.judgement.claims.claim import Answer, Point
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.verdicts import Grade, Sides, Verdict

Contrast = tuple[Point, Point]
"""Two variants at one level."""


class Rule(StrEnum):
    """The kind of comparison in a statement."""

    LOWER = "lower"
    HIGHER = "higher"
    SAME = "the same within the margin"
    CLOSER = "closer"


@dataclass(frozen=True)
class Statement:
    """One part of a claim, for one metric.

    Attributes:
        rule: the kind of comparison.
        points: one point, whose values are compared with ``value``; two points, which are compared
            with each other; or four points: two variants at one level, then the same variants at
            the next level. The gap between the variants is compared between the two levels.
        value: the value that the paper states; used only if there is one point.
    """

    rule: Rule
    points: tuple[Point, ...]
    value: float = 0.0

    @property
    def untested(self) -> int:
        """Number of comparisons that `sides` returns if no values are missing."""
        return 2 if self.rule is Rule.CLOSER else 1

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The pairs of variants at one level that must be able to differ in the runs.

        If the variants of a pair cannot differ, the statement cannot be tested. The result is empty
        if the statement compares one variant with a value, or at two levels.
        """
        if len(self.points) == 1 or len({point.level for point in self.points[:2]}) == 2:
            return ()
        pairs = tuple(zip(self.points[::2], self.points[1::2], strict=True))
        # CLOSER requires that the variants can differ at both levels. The other rules require it at
        # the last level only: a gap can open after a level at which the variants cannot differ.
        return pairs if self.rule is Rule.CLOSER else pairs[-1:]

    def text(self, evidence: Evidence) -> str:
        """Return the statement as text for readers."""
        level, variant = evidence.labels.level, evidence.labels.variant
        first, *others = self.points
        if len(self.points) == 4:
            second, _, after = others
            pair = f"{variant(first.variant)} against {variant(second.variant)}"
            return f"{pair}: {self.rule} at {level(after.level)} than at {level(first.level)}"
        words = {Rule.LOWER: "below", Rule.HIGHER: "above"}
        if not others:
            unit = "" if evidence.metric.unit == "1" else f" {evidence.metric.unit}"
            named = f"{100 * self.value:g}%" if evidence.policy.bounded else f"{self.value:g}{unit}"
            word = words.get(self.rule, "about")
            return f"{level(first.level)}: {variant(first.variant)} {word} {named}"
        (other,) = others
        word = words.get(self.rule, "like")
        if first.level == other.level:
            return f"{level(first.level)}: {variant(first.variant)} {word} {variant(other.variant)}"
        return f"{variant(first.variant)}: {level(first.level)} {word} {level(other.level)}"

    def why_not(self, evidence: Evidence) -> str:
        """Return why the values cannot be compared; "" if they can be. No value may be missing."""
        if len(self.points) < 4 or not evidence.policy.margin.relative:
            return ""
        found = np.concatenate(evidence.arrays(self.points))
        return "no ratio: a value is zero" if found.min() <= 0 else ""

    def sides(self, evidence: Evidence) -> tuple[Sides, ...]:
        """Return the comparisons to test; the first one is displayed.

        A gap is the difference or ratio of two variants at one level. In a reverse gap, the
        variants are exchanged. The gap at the second level is compared with the gap at the first
        level and, for `Rule.CLOSER`, also with the reverse gap at the first level.
        """
        margin, step = evidence.policy.margin, evidence.resolution(self.points)
        one, *others = evidence.arrays(self.points)
        if len(others) < 3:
            # The paper's value is taken as exact, so it does not add to the spread.
            other = others[0] if others else np.full(one.size, self.value)
            return (Sides(one, other, margin, None, step),)
        other, one_after, other_after = others
        # Four rounded values have twice the rounding variance of two; see inference.effects.
        step *= np.sqrt(2)
        if margin.relative:
            # A gap is a ratio here and has no unit, so divide the step by the mean of the values.
            step /= float(np.mean([one, other, one_after, other_after]))
            before, after = one / other, one_after / other_after
            reverse = 1 / before
        else:
            before, after = one - other, one_after - other_after
            reverse = -before
        gaps = (before, reverse)[: self.untested]
        return tuple(Sides(after, gap, margin, None, step) for gap in gaps)

    def beyond(self, sides: tuple[Sides, ...]) -> tuple[Sides, ...]:
        """Return the test for a difference larger than the margin, which only `Rule.SAME` needs."""
        return (beyond_margin(sides[0]),) if self.rule is Rule.SAME else ()

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> tuple[Answer, str]:
        """Return the answer and a note.

        ``verdicts`` and ``beyond`` are the verdicts on the comparisons that the methods `sides` and
        `beyond` return. All of these have been tested.
        """
        if self.rule is Rule.SAME:
            return _judge_same(verdicts[0], beyond[0])
        if any(verdict.grade is Grade.SAME for verdict in verdicts):
            # A difference within the margin refutes the statement, regardless of its direction.
            if len(self.points) < 4:
                return Answer.NO_DIFFERENCE, "no more than the margin apart"
            what = "the gap" if self.rule is Rule.CLOSER else "it"
            return Answer.NO_DIFFERENCE, f"{what} changes by less than the margin"
        if self.rule is Rule.CLOSER:
            # The two verdicts are on after - before and after + before. If their signs differ, the
            # product, after**2 - before**2, is negative: the gap has become smaller.
            agrees = -verdicts[0].shown_sign() * verdicts[1].shown_sign()
        else:
            agrees = verdicts[0].shown_sign() * (-1 if self.rule is Rule.LOWER else 1)
        if agrees:
            return Answer.SUPPORTED if agrees > 0 else Answer.OPPOSITE, ""
        return Answer.OPEN, ""

    def answer_p_value(
        self, answer: Answer, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]
    ) -> float:
        """Return the p-value behind the answer; 1 if the statement is not settled.

        An answer that needs two tests has the larger one of their p-values. For "no relevant
        difference", one equivalent comparison suffices, so this answer has the smallest p-value.
        """
        if answer is Answer.NO_DIFFERENCE or (
            self.rule is Rule.SAME and answer is Answer.SUPPORTED
        ):
            return min(p_or_one(verdict.p_equivalent) for verdict in verdicts)
        if answer in (Answer.SUPPORTED, Answer.OPPOSITE):
            return max(p_or_one(verdict.p_different) for verdict in (*verdicts, *beyond))
        return 1.0


def _judge_same(shown: Verdict, far: Verdict) -> tuple[Answer, str]:
    """Return the answer to a statement of equivalence.

    far: the verdict on the comparison after ``beyond_margin`` has shifted it.
    """
    if shown.grade is Grade.SAME:
        return Answer.SUPPORTED, ""
    if shown.shown_sign() and far.shown_sign() == shown.shown_sign():
        return Answer.OPPOSITE, "further apart than the margin"
    if shown.grade is Grade.SHOWN:
        return Answer.OPEN, "they differ, but possibly by less than the margin"
    return Answer.OPEN, ""


def p_or_one(p: float | None) -> float:
    """Return a p-value, or 1 if there is none."""
    return 1.0 if p is None else p


def beyond_margin(sides: Sides) -> Sides:
    """Reduce the difference between two sides by the margin.

    If the difference keeps its sign, it was larger than the margin. The result has no values if the
    margin is relative and any value is zero or negative.
    """
    variant, baseline = np.asarray(sides.variant), np.asarray(sides.baseline)
    size = sides.margin.value
    moved: Floats
    if not sides.margin.relative:
        moved = variant - np.sign(np.mean(variant - baseline)) * size
    elif np.all(variant > 0) and np.all(baseline > 0):
        moved = variant * (1 + size) ** -np.sign(np.mean(np.log(variant) - np.log(baseline)))
    else:
        return replace(sides, variant=[], baseline=[])
    return replace(sides, variant=moved)
