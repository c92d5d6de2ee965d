"""What every statement of a claim answers for itself, and what a direction makes of a claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.arrays import Floats
from analysis.judgement.claims.claim import Answer, Claim, Point
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.verdicts import LEVEL, Grade, Paired, Verdict

Answering = tuple[Answer, str]
"""What the runs say, and what else to know."""


Contrast = tuple[Point, Point]
"""Two variants at one level."""


class Statement(ABC):
    """One part of a claim, for one metric."""

    @property
    @abstractmethod
    def points(self) -> tuple[Point, ...]:
        """Whose values it takes."""

    @abstractmethod
    def text(self, evidence: Evidence) -> str:
        """What would have to hold, for readers."""

    @abstractmethod
    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """What is compared with what; the first comparison is the one that is shown."""

    def beyond(self, sides: tuple[Paired, ...]) -> tuple[Paired, ...]:
        """Further tests of these sides, whether a difference is larger than the margin."""
        del sides
        return ()

    untested = 1
    """How many comparisons it is in its family without values."""

    def why_not(self, evidence: Evidence) -> str:
        """Why its values, which are all there, cannot be compared; "" if they can."""
        del evidence
        return ""

    against_value = False
    """Whether it is about a value that the paper names."""

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The pairs of variants at one level that have to be able to differ for it to be tested."""
        return ()

    @abstractmethod
    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """The answer from the verdicts on ``sides`` and on ``beyond``, all of them with a test."""

    def p_behind(
        self, answer: Answer, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]
    ) -> float:
        """The p-value that the answer rests on, the larger one where that takes two tests.

        1 for what is not settled.
        """
        del beyond
        if answer is Answer.NO_DIFFERENCE:
            return min(_known(verdict.p_equivalent) for verdict in verdicts)
        if answer in (Answer.SUPPORTED, Answer.OPPOSITE):
            return max(_known(verdict.p_different) for verdict in verdicts)
        return 1.0


@dataclass(frozen=True)
class Direction:
    """What a claim can say.

    Attributes:
        name: in the file of claims.
        meaning: one line, for the documentation.
        least_levels: how many levels it takes at least.
        least_variants: how many variants it takes at least.
        statements: its parts, for one metric.
        takes_value: whether it is about a value that the paper names.
    """

    name: str
    meaning: str
    least_levels: int
    least_variants: int
    statements: Callable[[Claim], Iterator[Statement]]
    takes_value: bool = False


def one_sided(holds: bool, fails: bool, verdicts: Sequence[Verdict], nothing: str) -> Answering:
    """The answer to a statement that goes one way.

    Args:
        holds: whether a difference that way is shown.
        fails: whether one the other way is.
        verdicts: on its sides.
        nothing: what to say where there is no more than the margin between them.
    """
    if any(verdict.grade is Grade.SAME for verdict in verdicts):
        # A difference that does not matter answers nothing, whichever way it goes.
        return Answer.NO_DIFFERENCE, nothing
    if holds or fails:
        return Answer.SUPPORTED if holds else Answer.OPPOSITE, ""
    return Answer.OPEN, ""


def within_margin(shown: Verdict, far: Verdict) -> Answering:
    """The answer to a statement that two things are the same but for the margin.

    Args:
        shown: the verdict on the two.
        far: the verdict on them as ``beyond_margin`` moves them.
    """
    if shown.grade is Grade.SAME:
        return Answer.SUPPORTED, ""
    if sign(shown) and sign(far) == sign(shown):
        return Answer.OPPOSITE, "further apart than the margin"
    if shown.grade is Grade.SHOWN:
        return Answer.OPEN, "they differ, but it may be by less than the margin"
    return Answer.OPEN, ""


def p_within_margin(answer: Answer, shown: Verdict, far: Verdict) -> float:
    """The p-value behind an answer of ``within_margin``; 1 for what is not settled."""
    if answer is Answer.SUPPORTED:
        return _known(shown.p_equivalent)
    if answer is Answer.OPPOSITE:
        return max(_known(shown.p_different), _known(far.p_different))
    return 1.0


def _known(p: float | None) -> float:
    return 1.0 if p is None else p


def beyond_margin(sides: Paired) -> Paired:
    """The comparison moved by the margin towards no difference.

    A difference that is left on the same side of zero is one larger than the margin.
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


def sign(verdict: Verdict) -> int:
    """The sign of a difference that is shown; 0 where none is."""
    if verdict.p_different is None or verdict.p_different > LEVEL or verdict.effect is None:
        return 0
    neutral = 1.0 if verdict.scale == "ratio" else 0.0
    return 1 if verdict.effect.estimate > neutral else -1


def wanted_sign(lower: bool) -> int:
    """The sign of a difference that goes the way that is claimed."""
    return -1 if lower else 1
