"""What a study asked and found: for each variant and level the verdicts on its endpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.judgement.claims.claim import Part
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade, Verdict

PILOT_BELOW = 5
"""With fewer networks a study is a pilot: few of them can show any but large differences."""


@dataclass(frozen=True)
class Compared:
    """One variant against the baseline in one place.

    Attributes:
        place: label of the level; "" where there is only one.
        variant: its label.
        baseline: its label.
        judgements: on the endpoints, in their order; those without a grade are not judged.
        key: names of level and variant, which are one thing's own where labels are not.
    """

    place: str
    variant: str
    baseline: str
    judgements: tuple[Judgement, ...]
    key: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """Variant and place, for readers."""
        return f"{self.variant}, {self.place}" if self.place else self.variant

    @property
    def networks(self) -> int:
        """Pairs, or runs of the smaller side, of the endpoint that has most of them."""
        return max((judgement.verdict.count for judgement in self.judgements), default=0)

    @property
    def pilot(self) -> bool:
        """Whether there are so few networks that it is a pilot."""
        return self.networks < PILOT_BELOW

    def of(self, grade: Grade, direction: str | None = None) -> list[Judgement]:
        """Return those of a grade, the largest effect first."""
        found = [
            judgement
            for judgement in self.judgements
            if judgement.verdict.grade is grade and direction in (None, judgement.verdict.direction)
        ]
        return sorted(found, key=lambda judgement: -size_in_margins(judgement.verdict))


def size_in_margins(found: Verdict | Part) -> float:
    """How many times the margin an effect is, so that ratios and differences can be ordered."""
    if found.effect is None or not found.margin:
        return 0.0
    effect = found.effect.estimate
    if found.scale == "ratio":
        return float(abs(np.log(effect)) / np.log(found.margin))
    # A margin that is a share of next to nothing would make it infinite.
    return min(abs(effect) / found.margin, 1e300)
