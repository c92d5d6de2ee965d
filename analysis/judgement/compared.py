"""What a study asked and found: for each variant and level the verdicts on its primary metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
    """

    place: str
    variant: str
    baseline: str
    judgements: tuple[Judgement, ...]

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


def size_in_margins(verdict: Verdict) -> float:
    """How many times the margin an effect is, so that ratios and differences can be ordered."""
    if verdict.effect is None or not verdict.margin:
        return 0.0
    effect = verdict.effect.estimate
    if verdict.scale == "ratio":
        return float(abs(np.log(effect)) / np.log(verdict.margin))
    return abs(effect) / verdict.margin


def seeds_wanted(compared: Sequence[Compared]) -> tuple[int | None, int | None]:
    """About how many more seeds settle half of what is open, and all of it that can be settled.

    (None, None) where nothing is open, or no number of seeds settles any of it. The two are the
    same where they would differ by little: estimates are no more exact than that.
    """
    wanted = sorted(
        judgement.verdict.more_seeds
        for one in compared
        for judgement in one.of(State.UNKNOWN)
        if judgement.verdict.more_seeds is not None
    )
    if not wanted:
        return None, None
    half, most = wanted[(len(wanted) - 1) // 2], wanted[-1]
    return (most, most) if most <= 1.5 * half else (half, most)
