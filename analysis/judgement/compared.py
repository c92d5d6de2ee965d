"""What a study asked and found: for each variant and level the verdicts on its primary metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.judgement.claims.claim import Part
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import State, Verdict


@dataclass(frozen=True)
class Compared:
    """One variant against the baseline in one place.

    Attributes:
        place: label of the level; "" where there is only one.
        variant: its label.
        baseline: its label.
        judgements: on the primary metrics, in the order of the tables.
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

    def of(self, state: State, direction: str | None = None) -> list[Judgement]:
        """Those with a verdict, the largest effect first."""
        found = [
            judgement
            for judgement in self.judgements
            if judgement.verdict.state is state and direction in (None, judgement.verdict.direction)
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
