"""All directions (kinds) of claims by name, and the statements into which each divides a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

from analysis.judgement.claims.claim import Claim, Point
from analysis.judgement.claims.statement import Rule, Statement

Points = tuple[Point, ...]


@dataclass(frozen=True)
class Direction:
    """A kind of claim.

    Attributes:
        name: name in files of claims.
        meaning: one line for the documentation.
        min_levels: minimum number of levels.
        min_variants: minimum number of variants.
        points: function that returns the points of each statement of a claim.
        rule: the rule of the statements.
    """

    name: str
    meaning: str
    min_levels: int
    min_variants: int
    points: Callable[[Claim], Iterator[Points]]
    rule: Rule

    @property
    def takes_value(self) -> bool:
        """True if the variants are compared with a value that the paper states."""
        return self.points is _each

    def statements(self, claim: Claim) -> Iterator[Statement]:
        """Return the statements of a claim, for one metric."""
        return (Statement(self.rule, points, claim.value or 0.0) for points in self.points(claim))


def _each(claim: Claim) -> Iterator[Points]:
    return ((Point(level, variant),) for level in claim.levels for variant in claim.variants)


def _first(claim: Claim) -> Iterator[Points]:
    first, *others = claim.variants
    return _at_each_level(claim, ((first, other) for other in others))


def _chain(claim: Claim) -> Iterator[Points]:
    return _at_each_level(claim, pairwise(claim.variants))


def _any_two(claim: Claim) -> Iterator[Points]:
    return _at_each_level(claim, combinations(claim.variants, 2))


def _at_each_level(claim: Claim, pairs: Iterable[tuple[str, str]]) -> Iterator[Points]:
    pairs = tuple(pairs)
    return ((Point(level, a), Point(level, b)) for level in claim.levels for a, b in pairs)


def _trend(claim: Claim) -> Iterator[Points]:
    for variant in claim.variants:
        for before, after in pairwise(claim.levels):
            yield Point(after, variant), Point(before, variant)


def _gap(claim: Claim) -> Iterator[Points]:
    first, *others = claim.variants
    for other in others:
        for levels in pairwise(claim.levels):
            yield tuple(Point(level, variant) for level in levels for variant in (first, other))


_ALL = (
    Direction("lowest", "the first variant is lower than each other one", 1, 2, _first, Rule.LOWER),
    Direction("ascending", "each variant is lower than the next one", 1, 2, _chain, Rule.LOWER),
    Direction("falls", "each variant is lower than at the level before", 2, 1, _trend, Rule.LOWER),
    Direction(
        "falls-against",
        "from level to level, the first variant becomes lower against each other one",
        *(2, 2, _gap, Rule.LOWER),
    ),
    Direction(
        "highest", "the first variant is higher than each other one", 1, 2, _first, Rule.HIGHER
    ),
    Direction("descending", "each variant is higher than the next one", 1, 2, _chain, Rule.HIGHER),
    Direction(
        "rises", "each variant is higher than at the level before", 2, 1, _trend, Rule.HIGHER
    ),
    Direction(
        "rises-against",
        "from level to level, the first variant becomes higher against each other one",
        *(2, 2, _gap, Rule.HIGHER),
    ),
    Direction("alike", "any two of the variants are the same", 1, 2, _any_two, Rule.SAME),
    Direction(
        "converges",
        "from level to level, the first variant and each other one come closer",
        *(2, 2, _gap, Rule.CLOSER),
    ),
    Direction("below", "each variant is below the value", 1, 1, _each, Rule.LOWER),
    Direction("above", "each variant is above the value", 1, 1, _each, Rule.HIGHER),
    Direction("about", "each variant is within the margin of the value", 1, 1, _each, Rule.SAME),
)

DIRECTIONS: Mapping[str, Direction] = {direction.name: direction for direction in _ALL}
