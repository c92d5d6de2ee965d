"""Claims that a metric is below, above, or about a value that the paper states."""

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
    sign,
    wanted_sign,
    within_margin,
    within_margin_p_value,
)
from analysis.judgement.verdicts import Paired, Verdict


@dataclass(frozen=True)
class _AgainstValue(Statement):
    """A comparison of ``left`` with a value."""

    left: Point
    value: float
    against_value = True

    @property
    def points(self) -> tuple[Point, ...]:
        """The only point."""
        return (self.left,)

    def _text(self, evidence: Evidence, word: str) -> str:
        level, variant = evidence.labels.level(self.left.level), evidence.labels.variant
        unit = "" if evidence.metric.unit == "1" else f" {evidence.metric.unit}"
        named = f"{100 * self.value:g}%" if evidence.bounded else f"{self.value:g}{unit}"
        return f"{level}: {variant(self.left.variant)} {word} {named}"

    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Compare left with the value."""
        (left,) = evidence.arrays(self.points)
        # The value is exact, so it does not add to the spread.
        exactly = np.full(left.size, self.value)
        return (evidence.paired(self.points, left, exactly),)


@dataclass(frozen=True)
class Bound(_AgainstValue):
    """``left`` is lower, or higher, than a value."""

    lower: bool

    def text(self, evidence: Evidence) -> str:
        """Return the level, the variant and the value as text."""
        return self._text(evidence, "below" if self.lower else "above")

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """Decide by the sign of the difference."""
        del beyond
        seen, wanted = sign(verdicts[0]), wanted_sign(self.lower)
        nothing = "no more than the margin apart"
        return one_sided(seen == wanted, seen == -wanted, verdicts, nothing)


@dataclass(frozen=True)
class CloseTo(_AgainstValue):
    """``left`` equals a value, within the margin."""

    def text(self, evidence: Evidence) -> str:
        """Return the level, the variant and the value as text."""
        return self._text(evidence, "about")

    def beyond(self, sides: tuple[Paired, ...]) -> tuple[Paired, ...]:
        """Test whether it differs from the value by more than the margin."""
        return (beyond_margin(sides[0]),)

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """Decide by equivalence."""
        return within_margin(verdicts[0], beyond[0])

    def answer_p_value(
        self, answer: Answer, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]
    ) -> float:
        """Return the p-value of equivalence, or of a difference beyond the margin."""
        return within_margin_p_value(answer, verdicts[0], beyond[0])


def _bound(lower: bool) -> Callable[[Claim], Iterator[Statement]]:
    def statements(claim: Claim) -> Iterator[Statement]:
        for point in claim.points:
            yield Bound(point, claim.named_value, lower)

    return statements


def _close_to(claim: Claim) -> Iterator[Statement]:
    for point in claim.points:
        yield CloseTo(point, claim.named_value)


BELOW = Direction(
    "below", "each variant is below the value", 1, 1, _bound(lower=True), takes_value=True
)
ABOVE = Direction(
    "above", "each variant is above the value", 1, 1, _bound(lower=False), takes_value=True
)
ABOUT = Direction(
    "about", "each variant is the value but for the margin", 1, 1, _close_to, takes_value=True
)
