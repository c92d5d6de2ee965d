"""Two things are the same but for the margin."""

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
    p_within_margin,
    within_margin,
)
from analysis.judgement.verdicts import Paired, Verdict


@dataclass(frozen=True)
class Alike(Statement):
    """Two variants are the same at a level, but for the margin."""

    left: Point
    right: Point

    @property
    def points(self) -> tuple[Point, ...]:
        """The two."""
        return self.left, self.right

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The two."""
        return ((self.left, self.right),)

    def text(self, evidence: Evidence) -> str:
        """The level and its two variants."""
        level, variant = evidence.labels.level, evidence.labels.variant
        left, right = self.left, self.right
        return f"{level(left.level)}: {variant(left.variant)} like {variant(right.variant)}"

    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Left against right."""
        left, right = evidence.arrays(self.points)
        return (evidence.paired(self.points, left, right),)

    def beyond(self, sides: tuple[Paired, ...]) -> tuple[Paired, ...]:
        """Whether they differ by more than the margin."""
        return (beyond_margin(sides[0]),)

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """By equivalence."""
        return within_margin(verdicts[0], beyond[0])

    def p_behind(
        self, answer: Answer, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]
    ) -> float:
        """Of equivalence, or of a difference beyond the margin."""
        return p_within_margin(answer, verdicts[0], beyond[0])


def _alike(claim: Claim) -> Iterator[Statement]:
    for level in claim.levels:
        for one, other in combinations(claim.variants, 2):
            yield Alike(Point(level, one), Point(level, other))


ALIKE = Direction("alike", "any two of the variants are the same", 1, 2, _alike)
