"""A claim, and its answer from the runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from analysis.judgement.verdicts import Verdict
from analysis.measures.metric import Metric


class Answer(StrEnum):
    """The answer to a claim, or to a part of it."""

    SUPPORTED = "supported"
    OPPOSITE = "opposite"
    """The opposite direction is shown.

    For a claim that there is no difference: a difference larger than the margin is shown.
    """
    NO_DIFFERENCE = "no relevant difference"
    """The claimed difference is shown to be smaller than the margin, in either direction."""
    UNTESTABLE = "cannot be tested here"
    """These runs cannot show the claim, whether or not it is true: see ``testable``."""
    OPEN = "open"
    """None of the above. ``Part.grade`` says whether a difference is suggested."""


class Obstacle(StrEnum):
    """Why runs cannot answer a claim: a member for each of the rules in ``testable``."""

    AT_A_BOUND = "0% or 100%"
    SAME_STREAMS = "same streams"
    SATURATED = "saturated"


@dataclass(frozen=True)
class Untestable:
    """The reason why runs cannot answer a part of a claim.

    Attributes:
        obstacle: the rule that applies.
        head: the reason, in the same words for all parts with this reason.
        detail: the numbers behind the reason; "" if ``head`` includes them.
    """

    obstacle: Obstacle
    head: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.head}: {self.detail}" if self.detail else self.head


@dataclass(frozen=True)
class Point:
    """A variant in one setting of the network, which is called a level."""

    level: str
    variant: str


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        id: name in tables.
        statement: a paraphrase of the paper's statement.
        section: the section of the paper.
        figures: numbers of the paper's figures that show the statement.
        metrics: names of ``measures.catalogue.METRICS``; the claim has to hold for each metric.
        class_name: class of clients, or ``measures.data.ALL``.
        levels: one level, or several in the order of a trend.
        variants: the variants, in the order that ``direction`` requires.
        direction: a name of ``directions.DIRECTIONS``.
        margin: the equivalence margin; None means the margin of the experiments.
        value: the value that the paper states, in the metric's unit; None if ``direction`` does
            not compare with a value.
    """

    id: str
    statement: str
    section: str
    figures: tuple[int, ...]
    metrics: tuple[str, ...]
    class_name: str
    levels: tuple[str, ...]
    variants: tuple[str, ...]
    direction: str
    margin: float | None = None
    value: float | None = None


@dataclass(frozen=True)
class Labels:
    """Labels of levels and variants for readers."""

    levels: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    def level(self, name: str) -> str:
        """Return the label of a level."""
        return self.levels.get(name, name)

    def variant(self, name: str) -> str:
        """Return the label of a variant."""
        return self.variants.get(name, name)


@dataclass(frozen=True, kw_only=True)
class Part(Verdict):
    """One comparison of a claim, with a verdict that is corrected for all parts of the claim.

    If a part is about a gap between two variants, its effect compares the gap at the later level
    with the gap at the earlier level. ``count`` is the number of networks with a pair. ``reason``
    says why the part is open or cannot be tested; with any other answer, it is a note.

    Attributes:
        text: the comparison in words.
        untestable: why the part cannot be tested, or None.
        p_answer: p-value of the tests behind the answer; 1 if there is no test.
    """

    text: str
    metric: Metric
    answer: Answer
    untestable: Untestable | None = None
    p_answer: float = 1.0


@dataclass(frozen=True)
class ClaimResult:
    """A claim and its answer."""

    claim: Claim
    answer: Answer
    parts: tuple[Part, ...]

    @property
    def deciding(self) -> Part:
        """The part that determines the answer, among the parts with the same answer as the claim.

        - opposite or no relevant difference: the part with the smallest p-value
        - supported: the part with the largest p-value
        - cannot be tested: the first part
        - open: preferably a part without a test, then a part that needs an unknown number of
          further networks, then the part that needs the most further networks
        """
        parts = [part for part in self.parts if part.answer is self.answer]
        if self.answer is Answer.OPEN:
            return max(
                parts,
                key=lambda part: (
                    part.p_different is None,
                    part.more_networks is None,
                    part.more_networks or 0,
                ),
            )
        if self.answer is Answer.UNTESTABLE:
            return parts[0]
        pick = max if self.answer is Answer.SUPPORTED else min
        return pick(parts, key=lambda part: part.p_answer)

    @property
    def seeds(self) -> int:
        """The smallest number of pairs of any part."""
        return min(part.count for part in self.parts)

    @property
    def more_networks(self) -> int | None:
        """Approximate number of further networks that would answer the claim.

        None if the claim is not open, or if the number is unknown for an open part.
        """
        if self.answer is not Answer.OPEN:
            return None
        needed = [part.more_networks for part in self.parts if part.answer is Answer.OPEN]
        known = [count for count in needed if count is not None]
        return max(known) if len(known) == len(needed) else None
