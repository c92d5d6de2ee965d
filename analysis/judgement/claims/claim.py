"""A claim, and what the runs say to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from analysis.inference.intervals import Interval
from analysis.judgement.verdicts import Grade, exposure
from analysis.measures.metric import Metric


class Answer(StrEnum):
    """What the runs say to a claim, or to a part of it."""

    SUPPORTED = "supported"
    OPPOSITE = "opposite"
    """The other direction is shown; or a difference beyond the margin where none is claimed."""
    NO_DIFFERENCE = "no relevant difference"
    """It is shown to be smaller than the margin where one is claimed, whatever its direction."""
    UNTESTABLE = "cannot be tested here"
    """These runs cannot show it, whatever is true: see ``testable``."""
    OPEN = "open"
    """None of these; ``Part.grade`` says where something is suggested."""


class Obstacle(StrEnum):
    """Why runs cannot answer a claim."""

    AT_A_BOUND = "0% or 100%"
    SAME_STREAMS = "same streams"
    SATURATED = "saturated"


@dataclass(frozen=True)
class Untestable:
    """Why runs cannot answer a part.

    Attributes:
        obstacle: which rule says so.
        head: the reason, the same for all parts that it holds for.
        detail: the figures behind it; "" if the head has them.
    """

    obstacle: Obstacle
    head: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.head}: {self.detail}" if self.detail else self.head


@dataclass(frozen=True)
class Point:
    """A variant at a level."""

    level: str
    variant: str


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        id: its name in tables.
        statement: what the paper says, in other words.
        section: where it says so.
        figures: numbers of the paper's figures that it is about.
        metrics: names of ``measures.catalogue.METRICS``; each has to hold.
        class_name: class of clients, or ``measures.data.ALL``.
        levels: one, or several in the order in which a trend goes along them.
        variants: as ``direction`` takes them.
        direction: a name of ``directions.DIRECTIONS``.
        margin: what counts as the same; None: as in ``margins``.
        value: what the paper names, in the metric's unit, where ``direction`` takes one.
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

    @property
    def points(self) -> Iterator[Point]:
        """Each variant at each level."""
        for level in self.levels:
            for variant in self.variants:
                yield Point(level, variant)

    @property
    def named_value(self) -> float:
        """The value that the paper names, of a claim that takes one."""
        assert self.value is not None, f"claim {self.id}: {self.direction} takes a value"
        return self.value


@dataclass(frozen=True)
class Labels:
    """How readers know levels and variants."""

    levels: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    def level(self, name: str) -> str:
        """A level's label."""
        return self.levels.get(name, name)

    def variant(self, name: str) -> str:
        """A variant's label."""
        return self.variants.get(name, name)


@dataclass(frozen=True)
class Part:
    """One comparison of a claim.

    Attributes:
        text: what would have to hold.
        metric: whose values are compared.
        answer: what the runs say to it.
        effect: left against right; for a change of a gap, the gap after against the gap before.
        scale: "ratio" or "difference", as in ``verdicts.Verdict``.
        margin: largest effect that counts as the same on that scale.
        p_different: adjusted within the claim; None without a test.
        p_equivalent: adjusted within the claim; None without a test.
        count: networks with a pair.
        more_networks: about how many more would answer it; None if it is answered, or if more
            networks would not do.
        reason: why it is open, or what else to know.
        untestable: why it cannot be tested, if so.
        p_answer: of the tests that the answer rests on; 1 where it rests on none.
        grade: of the effect, within the claim.
        agreeing: networks in which the effect points in the estimate's direction.
    """

    text: str
    metric: Metric
    answer: Answer
    effect: Interval | None
    scale: str
    margin: float | None
    p_different: float | None
    p_equivalent: float | None
    count: int
    more_networks: int | None
    reason: str
    untestable: Untestable | None = None
    p_answer: float = 1.0
    grade: Grade | None = None
    agreeing: int | None = None

    @property
    def exposure(self) -> float | None:
        """Share of networks in which harm may have been missed; None of what is no rate."""
        return exposure(self.metric, self.count)


@dataclass(frozen=True)
class Answered:
    """A claim and what the runs say to it."""

    claim: Claim
    answer: Answer
    parts: tuple[Part, ...]

    @property
    def deciding(self) -> Part:
        """The part on which the answer rests: the weakest of those it needs.

        Opposite, no difference: the part of which that is surest. Supported: the part that is least
        sure. Cannot be tested: the first such part. Open: a part that has no test, else one
        that needs most networks.
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
        """Pairs behind the part that has fewest."""
        return min(part.count for part in self.parts)

    @property
    def more_networks(self) -> int | None:
        """About how many more would answer the claim; None if none would or that is not known."""
        if self.answer is not Answer.OPEN:
            return None
        needed = [part.more_networks for part in self.parts if part.answer is Answer.OPEN]
        known = [count for count in needed if count is not None]
        return max(known) if len(known) == len(needed) else None
