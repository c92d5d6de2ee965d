"""Claims that variants are equivalent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from analysis.judgement.claims.claim import Answer, Claim, Point
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import (
    Answering,
    Contrast,
    Direction,
    Statement,
    beyond_margin,
    within_margin,
    within_margin_p_value,
)
from analysis.judgement.verdicts import Paired, Verdict


@dataclass(frozen=True)
class Equivalent(Statement):
    """Two variants are equivalent at a level."""

    left: Point
    right: Point

    @property
    def points(self) -> tuple[Point, ...]:
        """The two points."""
        return self.left, self.right

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The two points."""
        return ((self.left, self.right),)

    def text(self, evidence: Evidence) -> str:
        """Return the level and the two variants as text."""
        level, variant = evidence.labels.level, evidence.labels.variant
        left, right = self.left, self.right
        return f"{level(left.level)}: {variant(left.variant)} like {variant(right.variant)}"

    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Compare left with right."""
        left, right = evidence.arrays(self.points)
        return (evidence.paired(self.points, left, right),)

    def beyond(self, sides: tuple[Paired, ...]) -> tuple[Paired, ...]:
        """Test whether they differ by more than the margin."""
        return (beyond_margin(sides[0]),)

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """Decide by equivalence."""
        return within_margin(verdicts[0], beyond[0])

    def answer_p_value(
        self, answer: Answer, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]
    ) -> float:
        """Return the p-value of equivalence, or of a difference beyond the margin."""
        return within_margin_p_value(answer, verdicts[0], beyond[0])


def _equivalent(claim: Claim) -> Iterator[Statement]:
    for level in claim.levels:
        for one, other in combinations(claim.variants, 2):
            yield Equivalent(Point(level, one), Point(level, other))


EQUIVALENT = Direction("alike", "any two of the variants are the same", 1, 2, _equivalent)
