"""A paper's claims, each answered on the runs: supported, contradicted, or not settled.

A claim says in data what a paper says in words: which metric, at which levels, of which variants,
in which direction. It is taken apart into comparisons of two values that each seed gives a pair of;
``verdicts`` judges those together, with Holm's correction over one claim. A claim is supported if
every part of it is, contradicted if any part is, and otherwise not settled. The rules in
words: docs/reference/claims.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations, pairwise

import numpy as np

from analysis.arrays import Floats
from analysis.inference.intervals import Interval
from analysis.judgement.judging import Statistics, resolution_of
from analysis.judgement.margins import with_margins
from analysis.judgement.verdicts import LEVEL, Paired, State, Verdict, decide
from analysis.measures.catalogue import METRICS
from analysis.measures.metric import Metric, Statistic


class Answer(StrEnum):
    """What the runs say to a claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    OPEN = "not settled"


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        id: its name in tables.
        statement: what the paper says, in other words.
        section: where it says so.
        figures: numbers of the paper's figures that it is about.
        metrics: names of ``metrics.METRICS``; each has to hold.
        class_name: class of clients, or ``metrics.ALL``.
        levels: one, or several in the order in which a trend goes along them.
        variants: as ``direction`` takes them.
        direction: a name of ``DIRECTIONS``.
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


@dataclass(frozen=True)
class Point:
    """A variant at a level."""

    level: str
    variant: str


@dataclass(frozen=True)
class Order:
    """``left`` is lower than ``right``, or higher."""

    left: Point
    right: Point
    lower: bool


@dataclass(frozen=True)
class Alike:
    """The two are the same but for the margin."""

    left: Point
    right: Point


@dataclass(frozen=True)
class GapOrder:
    """From one level to the next, ``variant`` against ``other`` becomes lower, or higher."""

    variant: str
    other: str
    before: str
    after: str
    lower: bool


@dataclass(frozen=True)
class GapShrinks:
    """From one level to the next, ``variant`` and ``other`` come closer."""

    variant: str
    other: str
    before: str
    after: str


@dataclass(frozen=True)
class Bound:
    """``left`` is lower than a value, or higher."""

    left: Point
    value: float
    lower: bool


@dataclass(frozen=True)
class Near:
    """``left`` is a value but for the margin."""

    left: Point
    value: float


Statement = Order | Alike | GapOrder | GapShrinks | Bound | Near


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


def _bound(lower: bool) -> Callable[[Claim], Iterator[Statement]]:
    def statements(claim: Claim) -> Iterator[Statement]:
        for point in _points_of(claim):
            yield Bound(point, _value_of(claim), lower)

    return statements


def _near(claim: Claim) -> Iterator[Statement]:
    for point in _points_of(claim):
        yield Near(point, _value_of(claim))


def _points_of(claim: Claim) -> Iterator[Point]:
    for level in claim.levels:
        for variant in claim.variants:
            yield Point(level, variant)


def _value_of(claim: Claim) -> float:
    assert claim.value is not None, f"claim {claim.id}: {claim.direction} takes a value"
    return claim.value


def _extreme(lower: bool) -> Callable[[Claim], Iterator[Statement]]:
    def statements(claim: Claim) -> Iterator[Statement]:
        first, *others = claim.variants
        for level in claim.levels:
            for other in others:
                yield Order(Point(level, first), Point(level, other), lower)

    return statements


def _chain(lower: bool) -> Callable[[Claim], Iterator[Statement]]:
    def statements(claim: Claim) -> Iterator[Statement]:
        for level in claim.levels:
            for one, next_one in pairwise(claim.variants):
                yield Order(Point(level, one), Point(level, next_one), lower)

    return statements


def _alike(claim: Claim) -> Iterator[Statement]:
    for level in claim.levels:
        for one, other in combinations(claim.variants, 2):
            yield Alike(Point(level, one), Point(level, other))


def _trend(lower: bool) -> Callable[[Claim], Iterator[Statement]]:
    def statements(claim: Claim) -> Iterator[Statement]:
        for variant in claim.variants:
            for before, after in pairwise(claim.levels):
                yield Order(Point(after, variant), Point(before, variant), lower)

    return statements


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


def _directions() -> Iterator[Direction]:
    closer = "from level to level, the first variant and each other one come closer"
    for lower, extreme, along, trend, low in (
        (True, "lowest", "ascending", "falls", "lower"),
        (False, "highest", "descending", "rises", "higher"),
    ):
        than = f"{low} than"
        yield Direction(
            extreme, f"the first variant is {than} each other one", 1, 2, _extreme(lower)
        )
        yield Direction(along, f"each variant is {than} the next one", 1, 2, _chain(lower))
        yield Direction(trend, f"each variant is {than} at the level before", 2, 1, _trend(lower))
        yield Direction(
            f"{trend}-against",
            f"from level to level, the first variant becomes {low} against each other one",
            2,
            2,
            _against(lower),
        )
    yield Direction("alike", "any two of the variants are the same", 1, 2, _alike)
    yield Direction("converges", closer, 2, 2, _converges)
    for name, lower in (("below", True), ("above", False)):
        yield Direction(name, f"each variant is {name} the value", 1, 1, _bound(lower), True)
    yield Direction("about", "each variant is the value but for the margin", 1, 1, _near, True)


DIRECTIONS: Mapping[str, Direction] = {direction.name: direction for direction in _directions()}

_METRIC = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Names:
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
        p_different: corrected within the claim; None without a test.
        p_equivalent: likewise.
        count: seeds with a pair.
        more_seeds: how many more would settle it; None if settled or if that cannot be told.
        reason: why it is not settled, or what else to know.
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
    more_seeds: int | None
    reason: str


@dataclass(frozen=True)
class Answered:
    """A claim and what the runs say to it."""

    claim: Claim
    answer: Answer
    parts: tuple[Part, ...]

    @property
    def deciding(self) -> Part:
        """The part on which the answer rests: the weakest of those it needs.

        Contradicted: the part that is contradicted most surely. Supported: the part that is least
        sure. Not settled: a part that has no test, else one that takes most seeds.
        """
        parts = [part for part in self.parts if part.answer is self.answer]
        if self.answer is Answer.OPEN:
            return max(
                parts,
                key=lambda part: (
                    part.p_different is None,
                    part.more_seeds is None,
                    part.more_seeds or 0,
                ),
            )
        pick = min if self.answer is Answer.CONTRADICTED else max
        return pick(parts, key=_surest)

    @property
    def seeds(self) -> int:
        """Pairs behind the part that has fewest."""
        return min(part.count for part in self.parts)

    @property
    def more_seeds(self) -> int | None:
        """How many more would settle the claim; None if it is settled or that cannot be told."""
        if self.answer is not Answer.OPEN:
            return None
        needed = [part.more_seeds for part in self.parts if part.answer is Answer.OPEN]
        known = [seeds for seeds in needed if seeds is not None]
        return max(known) if len(known) == len(needed) else None


def _surest(part: Part) -> float:
    tests = [p for p in (part.p_different, part.p_equivalent) if p is not None]
    return min(tests, default=1.0)


def answer_claims(
    claims: Iterable[Claim],
    statistics: Statistics,
    margins: Mapping[str, float] | None = None,
    names: Names | None = None,
) -> list[Answered]:
    """Answers to all claims, in their order; each claim is a family of its own.

    Args:
        claims: their metrics are known and have a margin.
        statistics: of all runs; what is missing there leaves a claim not settled.
        margins: of the experiments, as in ``study.Study.margins``.
        names: labels for the parts' texts.

    Raises:
        AnalysisError: a margin that fits no metric.
    """
    return [_answer(claim, statistics, margins or {}, names or Names()) for claim in claims]


def _answer(
    claim: Claim, statistics: Statistics, margins: Mapping[str, float], names: Names
) -> Answered:
    questions = []
    for metric in claim.metrics:
        data = _Data(claim, metric, statistics, margins, names)
        for statement in DIRECTIONS[claim.direction].statements(claim):
            questions.append(data.question(statement))
    verdicts = _decide(sides for question in questions for sides in question.sides)
    beyond = _decide(sides for question in questions for sides in question.beyond)
    parts = tuple(
        _part(
            question,
            [next(verdicts) for _ in question.sides],
            [next(beyond) for _ in question.beyond],
        )
        for question in questions
    )
    answers = {part.answer for part in parts}
    answer = Answer.OPEN
    if Answer.CONTRADICTED in answers:
        answer = Answer.CONTRADICTED
    elif answers == {Answer.SUPPORTED}:
        answer = Answer.SUPPORTED
    return Answered(claim, answer, parts)


def _decide(family: Iterable[Paired]) -> Iterator[Verdict]:
    """Verdicts on one family, in its order."""
    return iter(decide((str(number), sides) for number, sides in enumerate(family)).values())


@dataclass(frozen=True)
class _Question:
    """A statement with the values that answer it.

    Attributes:
        statement: what would have to hold.
        text: the same for readers.
        metric: whose values they are.
        sides: what is compared with what; the first is the one that is shown.
        beyond: further tests, whether a difference is larger than the margin.
        seeds: how many have a run at all points.
        reason: why nothing can be compared; "" if something can.
    """

    statement: Statement
    text: str
    metric: Metric
    sides: tuple[Paired, ...]
    beyond: tuple[Paired, ...]
    seeds: int
    reason: str


class _Data:
    """The values of one metric for one claim."""

    def __init__(
        self,
        claim: Claim,
        metric: str,
        statistics: Statistics,
        margins: Mapping[str, float],
        names: Names,
    ) -> None:
        own = {} if claim.margin is None else {metric: claim.margin}
        self._judged = with_margins({**margins, **own})[metric]
        self._claim = claim
        self._metric = _METRIC[metric]
        self._statistics = statistics
        self._names = names

    def question(self, statement: Statement) -> _Question:
        """A statement with its values."""
        text = self._text(statement)
        if len(self._claim.metrics) > 1:
            text = f"{self._metric.label}, {text}"
        points = _points(statement)
        seeds = len(self._seeds(points))
        reason = self._why_not(points, against_value=isinstance(statement, Bound | Near))
        if reason:
            # Without values it stays in the family, so that the others are corrected for it.
            empty = Paired([], [], self._judged.margin)
            untested = (empty,) * (1 + isinstance(statement, GapShrinks))
            return _Question(statement, text, self._metric, untested, (), seeds, reason)
        sides = self._sides(statement, self._resolution(points))
        beyond = (_beyond(sides[0]),) if isinstance(statement, Alike | Near) else ()
        return _Question(statement, text, self._metric, sides, beyond, seeds, "")

    def _of(self, point: Point) -> Mapping[int, Statistic]:
        of_class = self._statistics.get((point.level, self._claim.class_name), {})
        return of_class.get((self._metric.name, point.variant), {})

    def _seeds(self, points: Sequence[Point]) -> list[int]:
        return sorted(set.intersection(*(set(self._of(point)) for point in points)))

    def _why_not(self, points: Sequence[Point], *, against_value: bool) -> str:
        for point in points:
            if not self._of(point):
                return f"no runs of {self._name(point)}"
        seeds = self._seeds(points)
        if not seeds:
            return "no common seed"
        for point in points:
            without = [s for s in seeds if self._of(point)[s].value is None]
            if without:
                # To leave those seeds out would be to select.
                return (
                    f"{self._name(point)} lacks a value in {len(without)} of {len(seeds)} runs: "
                    f"{self._of(point)[without[0]].reason}"
                )
        values = np.concatenate([self._values(point, seeds) for point in points])
        same = values.min() == values.max()
        if self._metric.unit == "1" and same and values[0] in (0.0, 1.0) and not against_value:
            # A network without congestion, or with nothing else: no place to see the claim in.
            return f"{self._metric.label.lower()} is {100 * values[0]:g}% in all of these runs"
        if len(points) > 2 and self._judged.margin.relative and values.min() <= 0:
            return "no ratio: a value is zero"
        return ""

    def _resolution(self, points: Sequence[Point]) -> float:
        return max(
            resolution_of(
                self._metric.name,
                self._judged,
                self._statistics[point.level, self._claim.class_name],
                (point.variant,),
            )
            for point in points
        )

    def _values(self, point: Point, seeds: Iterable[int]) -> Floats:
        return np.array([self._of(point)[seed].value for seed in seeds], dtype=np.float64)

    def _sides(self, statement: Statement, resolution: float) -> tuple[Paired, ...]:
        margin = self._judged.margin
        seeds = self._seeds(_points(statement))
        if isinstance(statement, Bound | Near):
            left = self._values(statement.left, seeds)
            # The value is known exactly, and so adds nothing to the spread.
            return (Paired(left, np.full(left.size, statement.value), margin, None, resolution),)
        if isinstance(statement, Order | Alike):
            left, right = (self._values(p, seeds) for p in (statement.left, statement.right))
            return (Paired(left, right, margin, None, resolution),)
        one, other, one_after, other_after = (self._values(p, seeds) for p in _points(statement))
        # Four rounded values have twice the variance of two; see inference.paired_effect.
        step = resolution * np.sqrt(2)
        if margin.relative:
            # Ratios are compared with ratios, so the gap has no unit.
            step /= float(np.mean([one, other, one_after, other_after]))
            before, after = one / other, one_after / other_after
            mirrored = 1 / before
        else:
            before, after = one - other, one_after - other_after
            mirrored = -before
        change = Paired(after, before, margin, None, step)
        if isinstance(statement, GapOrder):
            return (change,)
        return change, Paired(after, mirrored, margin, None, step)

    def _name(self, point: Point) -> str:
        return f"{self._names.variant(point.variant)} at {self._names.level(point.level)}"

    def _text(self, statement: Statement) -> str:
        level, variant = self._names.level, self._names.variant
        if isinstance(statement, GapOrder | GapShrinks):
            pair = f"{variant(statement.variant)} against {variant(statement.other)}"
            if isinstance(statement, GapShrinks):
                word = "closer"
            else:
                word = "lower" if statement.lower else "higher"
            return f"{pair}: {word} at {level(statement.after)} than at {level(statement.before)}"
        if isinstance(statement, Bound | Near):
            word = "about" if isinstance(statement, Near) else "below"
            if isinstance(statement, Bound) and not statement.lower:
                word = "above"
            place, unit = statement.left, self._metric.unit
            named = f"{100 * statement.value:g}%" if unit == "1" else f"{statement.value:g} {unit}"
            return f"{level(place.level)}: {variant(place.variant)} {word} {named}"
        left, right = statement.left, statement.right
        if isinstance(statement, Alike):
            return f"{level(left.level)}: {variant(left.variant)} like {variant(right.variant)}"
        word = "below" if statement.lower else "above"
        if left.level == right.level:
            return f"{level(left.level)}: {variant(left.variant)} {word} {variant(right.variant)}"
        return f"{variant(left.variant)}: {level(left.level)} {word} {level(right.level)}"


def _points(statement: Statement) -> tuple[Point, ...]:
    """What has to be known: one point, two, or four, those before the change first."""
    if isinstance(statement, Bound | Near):
        return (statement.left,)
    if isinstance(statement, Order | Alike):
        return statement.left, statement.right
    return tuple(
        Point(level, variant)
        for level in (statement.before, statement.after)
        for variant in (statement.variant, statement.other)
    )


def _beyond(sides: Paired) -> Paired:
    """The comparison moved by the margin towards no difference.

    A difference that is left on the same side of zero is one larger than the margin.
    """
    variant, baseline = np.asarray(sides.variant), np.asarray(sides.baseline)
    size = sides.margin.value
    if not sides.margin.relative:
        moved = variant - np.sign(np.mean(variant - baseline)) * size
    elif np.all(variant > 0) and np.all(baseline > 0):
        moved = variant * (1 + size) ** -np.sign(np.mean(np.log(variant) - np.log(baseline)))
    else:
        return replace(sides, variant=[], baseline=[])
    return replace(sides, variant=moved)


def _part(question: _Question, verdicts: list[Verdict], beyond: list[Verdict]) -> Part:
    shown = verdicts[0]
    if question.reason:
        answer, reason = Answer.OPEN, question.reason
    elif any(verdict.p_different is None for verdict in verdicts):
        answer, reason = Answer.OPEN, shown.reason
    else:
        answer, reason = _judge(question.statement, verdicts, beyond)
    more = None
    if answer is Answer.OPEN:
        needed = [v.more_seeds for v in verdicts if not v.settled]
        more = max((n for n in needed if n is not None), default=None)
        reason = reason or next((v.reason for v in verdicts if v.reason), "")
    return Part(
        question.text,
        question.metric,
        answer,
        shown.effect,
        shown.scale,
        shown.margin,
        shown.p_different,
        shown.p_equivalent,
        question.seeds,
        None if reason else more,
        reason,
    )


SMALL = "by less than the margin"
NONE = "no more than the margin apart"


def _judge(
    statement: Statement, verdicts: list[Verdict], beyond: list[Verdict]
) -> tuple[Answer, str]:
    shown = verdicts[0]
    if isinstance(statement, Alike | Near):
        if shown.state is State.EQUIVALENT:
            return Answer.SUPPORTED, ""
        (far,) = beyond
        if _sign(shown) and _sign(far) == _sign(shown):
            return Answer.CONTRADICTED, ""
        if shown.state is State.DIFFERENT:
            return Answer.OPEN, "they differ, but it may be by less than the margin"
        return Answer.OPEN, ""
    small = any(verdict.state is State.EQUIVALENT for verdict in verdicts)
    if isinstance(statement, GapShrinks):
        # |after| < |before| just where their difference and their sum have opposite signs.
        product = _sign(verdicts[0]) * _sign(verdicts[1])
        holds, fails = product < 0, product > 0
        nothing = "the gap changes by less than the margin"
    else:
        wanted = -1 if statement.lower else 1
        holds, fails = _sign(shown) == wanted, _sign(shown) == -wanted
        nothing = (
            NONE if isinstance(statement, Order | Bound) else "it changes by less than the margin"
        )
    if holds:
        return Answer.SUPPORTED, SMALL if small else ""
    if fails:
        return Answer.CONTRADICTED, SMALL if small else ""
    return (Answer.CONTRADICTED, nothing) if small else (Answer.OPEN, "")


def _sign(verdict: Verdict) -> int:
    """The sign of a difference that is shown; 0 where none is."""
    if verdict.p_different is None or verdict.p_different > LEVEL or verdict.effect is None:
        return 0
    neutral = 1.0 if verdict.scale == "ratio" else 0.0
    return 1 if verdict.effect.estimate > neutral else -1
