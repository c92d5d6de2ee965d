"""The interface of statements of a claim, and of directions, which create them."""

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
"""An answer and a note on it."""


Contrast = tuple[Point, Point]
"""Two variants at one level."""


class Statement(ABC):
    """One part of a claim, for one metric."""

    @property
    @abstractmethod
    def points(self) -> tuple[Point, ...]:
        """The points whose values are compared."""

    @abstractmethod
    def text(self, evidence: Evidence) -> str:
        """Return the statement as text for readers."""

    @abstractmethod
    def sides(self, evidence: Evidence) -> tuple[Paired, ...]:
        """Return the comparisons to test; the first one is displayed."""

    def beyond(self, sides: tuple[Paired, ...]) -> tuple[Paired, ...]:
        """Return further tests of these sides, for differences larger than the margin."""
        del sides
        return ()

    untested = 1
    """Number of comparisons that it contributes to its family if values are missing."""

    def why_not(self, evidence: Evidence) -> str:
        """Return why its values, none of which is missing, cannot be compared; "" if they can."""
        del evidence
        return ""

    against_value = False
    """True if the statement is about a value that the paper states."""

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The pairs of variants at one level that must be able to differ for it to be testable."""
        return ()

    @abstractmethod
    def judge(self, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]) -> Answering:
        """Return the answer from verdicts on ``sides`` and ``beyond``, which all have a test."""

    def answer_p_value(
        self, answer: Answer, verdicts: Sequence[Verdict], beyond: Sequence[Verdict]
    ) -> float:
        """Return the p-value behind the answer, the larger one if it needs two tests.

        Returns 1 if the statement is not settled.
        """
        del beyond
        if answer is Answer.NO_DIFFERENCE:
            return min(_known(verdict.p_equivalent) for verdict in verdicts)
        if answer in (Answer.SUPPORTED, Answer.OPPOSITE):
            return max(_known(verdict.p_different) for verdict in verdicts)
        return 1.0


@dataclass(frozen=True)
class Direction:
    """A kind of claim.

    Attributes:
        name: as in the file of claims.
        meaning: one line, for the documentation.
        min_levels: minimum number of levels.
        min_variants: minimum number of variants.
        statements: creates its parts, for one metric.
        takes_value: whether it is about a value that the paper states.
    """

    name: str
    meaning: str
    min_levels: int
    min_variants: int
    statements: Callable[[Claim], Iterator[Statement]]
    takes_value: bool = False


def one_sided(holds: bool, fails: bool, verdicts: Sequence[Verdict], nothing: str) -> Answering:
    """Return the answer to a statement with a direction.

    Args:
        holds: whether a difference in this direction is shown.
        fails: whether one in the opposite direction is shown.
        verdicts: on its sides.
        nothing: the note if the difference is within the margin.
    """
    if any(verdict.grade is Grade.SAME for verdict in verdicts):
        # An equivalent difference refutes the statement, regardless of its direction.
        return Answer.NO_DIFFERENCE, nothing
    if holds or fails:
        return Answer.SUPPORTED if holds else Answer.OPPOSITE, ""
    return Answer.OPEN, ""


def within_margin(shown: Verdict, far: Verdict) -> Answering:
    """Return the answer to a statement of equivalence.

    Args:
        shown: the verdict on the two sides.
        far: the verdict on the sides as shifted by ``beyond_margin``.
    """
    if shown.grade is Grade.SAME:
        return Answer.SUPPORTED, ""
    if sign(shown) and sign(far) == sign(shown):
        return Answer.OPPOSITE, "further apart than the margin"
    if shown.grade is Grade.SHOWN:
        return Answer.OPEN, "they differ, but possibly by less than the margin"
    return Answer.OPEN, ""


def within_margin_p_value(answer: Answer, shown: Verdict, far: Verdict) -> float:
    """Return the p-value behind an answer of ``within_margin``; 1 if it is not settled."""
    if answer is Answer.SUPPORTED:
        return _known(shown.p_equivalent)
    if answer is Answer.OPPOSITE:
        return max(_known(shown.p_different), _known(far.p_different))
    return 1.0


def _known(p: float | None) -> float:
    return 1.0 if p is None else p


def beyond_margin(sides: Paired) -> Paired:
    """Shift a comparison by the margin towards no difference.

    A remaining difference of the same sign is larger than the margin.
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
    """Return the sign of a shown difference; 0 if none is shown."""
    if verdict.p_different is None or verdict.p_different > LEVEL or verdict.effect is None:
        return 0
    neutral = 1.0 if verdict.scale == "ratio" else 0.0
    return 1 if verdict.effect.estimate > neutral else -1


def wanted_sign(lower: bool) -> int:
    """Return the sign of a difference in the claimed direction."""
    return -1 if lower else 1
