"""Something is below a value that the paper names, above it, or about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.judgement.claims.claim import Answer, Claim, Point
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import (
    Answering,
    Direction,
    Statement,
    beyond_margin,
    one_sided,
    p_within_margin,
    sign,
    wanted_sign,
    within_margin,
)
from analysis.judgement.verdicts import Paired, Verdict


@dataclass(frozen=True)
class _AgainstValue(Statement):
    """``left`` is compared with a value."""

    left: Point
    value: float
    against_value = True

    @property
    def points(self) -> tuple[Point, ...]:
        """The one."""
        return (self.left,)

    def _text(self, evidence: Evidence, word: str) -> str:
        level, variant = evidence.labels.level(self.left.level), evidence.labels.variant
        unit = "" if evidence.metric.unit == "1" else f" {evidence.metric.unit}"
        named = f"{100 * self.value:g}%" if evidence.bounded else f"{self.value:g}{unit}"
        return f"{level}: {variant(self.left.variant)} {word} {named}"

    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Left against the value."""
        (left,) = evidence.arrays(self.points)
        # The value is known exactly, and so adds nothing to the spread.
        exactly = np.full(left.size, self.value)
        return (evidence.paired(self.points, left, exactly),)


@dataclass(frozen=True)
class Bound(_AgainstValue):
    """``left`` is lower than a value, or higher."""

    lower: bool

    def text(self, evidence: Evidence) -> str:
        """The level, the variant and the value."""
        return self._text(evidence, "below" if self.lower else "above")

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """By the sign of the difference."""
        del beyond
        seen, wanted = sign(verdicts[0]), wanted_sign(self.lower)
        nothing = "no more than the margin apart"
        return one_sided(seen == wanted, seen == -wanted, verdicts, nothing)


@dataclass(frozen=True)
class Near(_AgainstValue):
    """``left`` is a value but for the margin."""

    def text(self, evidence: Evidence) -> str:
        """The level, the variant and the value."""
        return self._text(evidence, "about")

    def beyond(self, sides: tuple[Paired, ...]) -> tuple[Paired, ...]:
        """Whether it is further than the margin from the value."""
        return (beyond_margin(sides[0]),)

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """By equivalence."""
        return within_margin(verdicts[0], beyond[0])

    def p_behind(
        self, answer: Answer, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]
    ) -> float:
        """Of equivalence, or of a difference beyond the margin."""
        return p_within_margin(answer, verdicts[0], beyond[0])


def _bound(lower: bool) -> Callable[[Claim], Iterator[Statement]]:
    def statements(claim: Claim) -> Iterator[Statement]:
        for point in claim.points:
            yield Bound(point, claim.named_value, lower)

    return statements


def _near(claim: Claim) -> Iterator[Statement]:
    for point in claim.points:
        yield Near(point, claim.named_value)


BELOW = Direction(
    "below", "each variant is below the value", 1, 1, _bound(lower=True), takes_value=True
)
ABOVE = Direction(
    "above", "each variant is above the value", 1, 1, _bound(lower=False), takes_value=True
)
ABOUT = Direction(
    "about", "each variant is the value but for the margin", 1, 1, _near, takes_value=True
)
