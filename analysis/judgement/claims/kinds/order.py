"""Claims that something is lower, or higher, than something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.judgement.claims.claim import Claim, Point
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import (
    Answering,
    Contrast,
    Direction,
    Statement,
    one_sided,
    sign,
    wanted_sign,
)
from analysis.judgement.verdicts import Paired, Verdict


@dataclass(frozen=True)
class Order(Statement):
    """``left`` is lower, or higher, than ``right``."""

    left: Point
    right: Point
    lower: bool

    @property
    def points(self) -> tuple[Point, ...]:
        """The two points."""
        return self.left, self.right

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The two points, if they are at one level."""
        return ((self.left, self.right),) if self.left.level == self.right.level else ()

    def text(self, evidence: Evidence) -> str:
        """Return two variants at one level, or one variant at two, as text."""
        level, variant = evidence.labels.level, evidence.labels.variant
        left, right, word = self.left, self.right, "below" if self.lower else "above"
        if left.level == right.level:
            return f"{level(left.level)}: {variant(left.variant)} {word} {variant(right.variant)}"
        return f"{variant(left.variant)}: {level(left.level)} {word} {level(right.level)}"

    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Compare left with right."""
        left, right = evidence.arrays(self.points)
        return (evidence.paired(self.points, left, right),)

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """Decide by the sign of the difference."""
        del beyond
        seen, wanted = sign(verdicts[0]), wanted_sign(self.lower)
        nothing = "no more than the margin apart"
        return one_sided(seen == wanted, seen == -wanted, verdicts, nothing)


StatementFactory = Callable[[Claim], Iterator[Statement]]


def _extreme(lower: bool) -> StatementFactory:
    def statements(claim: Claim) -> Iterator[Statement]:
        first, *others = claim.variants
        for level in claim.levels:
            for other in others:
                yield Order(Point(level, first), Point(level, other), lower)

    return statements


def _chain(lower: bool) -> StatementFactory:
    def statements(claim: Claim) -> Iterator[Statement]:
        for level in claim.levels:
            for one, next_one in pairwise(claim.variants):
                yield Order(Point(level, one), Point(level, next_one), lower)

    return statements


def _trend(lower: bool) -> StatementFactory:
    def statements(claim: Claim) -> Iterator[Statement]:
        for variant in claim.variants:
            for before, after in pairwise(claim.levels):
                yield Order(Point(after, variant), Point(before, variant), lower)

    return statements


LOWEST = Direction(
    "lowest", "the first variant is lower than each other one", 1, 2, _extreme(lower=True)
)
HIGHEST = Direction(
    "highest", "the first variant is higher than each other one", 1, 2, _extreme(lower=False)
)
ASCENDING = Direction(
    "ascending", "each variant is lower than the next one", 1, 2, _chain(lower=True)
)
DESCENDING = Direction(
    "descending", "each variant is higher than the next one", 1, 2, _chain(lower=False)
)
FALLS = Direction(
    "falls", "each variant is lower than at the level before", 2, 1, _trend(lower=True)
)
RISES = Direction(
    "rises", "each variant is higher than at the level before", 2, 1, _trend(lower=False)
)
