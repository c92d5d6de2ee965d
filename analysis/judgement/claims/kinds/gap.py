"""Claims that the gap between two variants changes from one level to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

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

SMALL_CHANGE = "it changes by less than the margin"
SMALL_CHANGE_OF_GAP = "the gap changes by less than the margin"


@dataclass(frozen=True)
class _Gap(Statement):
    """The gap of ``variant`` against ``other``, at one level and at the next."""

    variant: str
    other: str
    before: str
    after: str

    @property
    def points(self) -> tuple[Point, ...]:
        """Both variants before, then both after."""
        return tuple(
            Point(level, variant)
            for level in (self.before, self.after)
            for variant in (self.variant, self.other)
        )

    def why_not(self, evidence: Evidence) -> str:
        """Return why a relative gap has no ratio, if a value is zero."""
        found = np.concatenate(evidence.arrays(self.points))
        no_ratio = evidence.margin.relative and found.min() <= 0
        return "no ratio: a value is zero" if no_ratio else ""

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """Both variants before, and after."""
        one, other, one_after, other_after = self.points
        return (one, other), (one_after, other_after)

    def _text(self, evidence: Evidence, word: str) -> str:
        level, variant = evidence.labels.level, evidence.labels.variant
        pair = f"{variant(self.variant)} against {variant(self.other)}"
        return f"{pair}: {word} at {level(self.after)} than at {level(self.before)}"

    def _changes(self, evidence: Evidence) -> tuple[Paired, Paired]:
        """Compare the gap after with the gap before, and with its reverse."""
        one, other, one_after, other_after = evidence.arrays(self.points)
        # Four rounded values have twice the variance of two; see inference.effects.
        step = evidence.resolution(self.points) * np.sqrt(2)
        if evidence.margin.relative:
            # Ratios are compared with ratios, so the gap is dimensionless.
            step /= float(np.mean([one, other, one_after, other_after]))
            before, after = one / other, one_after / other_after
            mirrored = 1 / before
        else:
            before, after = one - other, one_after - other_after
            mirrored = -before
        return (
            Paired(after, before, evidence.margin, None, step),
            Paired(after, mirrored, evidence.margin, None, step),
        )


@dataclass(frozen=True)
class GapOrder(_Gap):
    """From one level to the next, ``variant`` becomes lower, or higher, against ``other``."""

    lower: bool

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """Both variants after. A gap can open at a level after one where they cannot differ."""
        return super().contrasts[1:]

    def text(self, evidence: Evidence) -> str:
        """Return the two variants and levels as text."""
        return self._text(evidence, "lower" if self.lower else "higher")

    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Compare the gap after with the gap before."""
        return self._changes(evidence)[:1]

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """Decide by the sign of the change."""
        del beyond
        seen, wanted = sign(verdicts[0]), wanted_sign(self.lower)
        return one_sided(seen == wanted, seen == -wanted, verdicts, SMALL_CHANGE)


@dataclass(frozen=True)
class GapShrinks(_Gap):
    """From one level to the next, ``variant`` and ``other`` come closer."""

    untested = 2

    def text(self, evidence: Evidence) -> str:
        """Return the two variants and levels as text."""
        return self._text(evidence, "closer")

    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Return both changes."""
        return self._changes(evidence)

    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """Decide by |after| < |before|: their difference and sum have opposite signs."""
        del beyond
        product = sign(verdicts[0]) * sign(verdicts[1])
        return one_sided(product < 0, product > 0, verdicts, SMALL_CHANGE_OF_GAP)


def _against(lower: bool) -> Callable[[Claim], Iterator[Statement]]:
    def statements(claim: Claim) -> Iterator[Statement]:
        first, *others = claim.variants
        for other in others:
            for before, after in pairwise(claim.levels):
                yield GapOrder(first, other, before, after, lower)

    return statements


def _converges(claim: Claim) -> Iterator[Statement]:
    first, *others = claim.variants
    for other in others:
        for before, after in pairwise(claim.levels):
            yield GapShrinks(first, other, before, after)


FALLS_AGAINST = Direction(
    "falls-against",
    "from level to level, the first variant becomes lower against each other one",
    2,
    2,
    _against(lower=True),
)
RISES_AGAINST = Direction(
    "rises-against",
    "from level to level, the first variant becomes higher against each other one",
    2,
    2,
    _against(lower=False),
)
CONVERGES = Direction(
    "converges",
    "from level to level, the first variant and each other one come closer",
    2,
    2,
    _converges,
)
