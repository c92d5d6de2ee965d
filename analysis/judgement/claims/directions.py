"""All directions (kinds) of claims by name, and the statements into which each divides a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

from analysis.judgement.claims.claim import Claim, Point
from analysis.judgement.claims.statement import Rule, Statement


@dataclass(frozen=True)
class Direction:
    """A kind of claim.

    Attributes:
        name: name in files of claims.
        meaning: one line for the documentation.
        min_levels: minimum number of levels.
        min_variants: minimum number of variants.
        statements: function that returns the statements of a claim, for one metric.
        takes_value: whether the variants are compared with a value that the paper states.
    """

    name: str
    meaning: str
    min_levels: int
    min_variants: int
    statements: Callable[[Claim], Iterator[Statement]]
    takes_value: bool = False


def _at_value(rule: Rule, claim: Claim) -> Iterator[Statement]:
    for point in claim.points:
        yield Statement(rule, (point,), claim.named_value)


def _first(rule: Rule, claim: Claim) -> Iterator[Statement]:
    first, *others = claim.variants
    for level in claim.levels:
        for other in others:
            yield Statement(rule, (Point(level, first), Point(level, other)))


def _chain(rule: Rule, claim: Claim) -> Iterator[Statement]:
    for level in claim.levels:
        for one, next_one in pairwise(claim.variants):
            yield Statement(rule, (Point(level, one), Point(level, next_one)))


def _any_two(rule: Rule, claim: Claim) -> Iterator[Statement]:
    for level in claim.levels:
        for one, other in combinations(claim.variants, 2):
            yield Statement(rule, (Point(level, one), Point(level, other)))


def _trend(rule: Rule, claim: Claim) -> Iterator[Statement]:
    for variant in claim.variants:
        for before, after in pairwise(claim.levels):
            yield Statement(rule, (Point(after, variant), Point(before, variant)))


def _gap(rule: Rule, claim: Claim) -> Iterator[Statement]:
    first, *others = claim.variants
    for other in others:
        for levels in pairwise(claim.levels):
            points = (Point(level, variant) for level in levels for variant in (first, other))
            yield Statement(rule, tuple(points))


_KINDS: tuple[
    tuple[str, str, int, int, Callable[[Rule, Claim], Iterator[Statement]], Rule], ...
] = (
    ("lowest", "the first variant is lower than each other one", 1, 2, _first, Rule.LOWER),
    ("ascending", "each variant is lower than the next one", 1, 2, _chain, Rule.LOWER),
    ("falls", "each variant is lower than at the level before", 2, 1, _trend, Rule.LOWER),
    (
        "falls-against",
        "from level to level, the first variant becomes lower against each other one",
        *(2, 2, _gap, Rule.LOWER),
    ),
    ("highest", "the first variant is higher than each other one", 1, 2, _first, Rule.HIGHER),
    ("descending", "each variant is higher than the next one", 1, 2, _chain, Rule.HIGHER),
    ("rises", "each variant is higher than at the level before", 2, 1, _trend, Rule.HIGHER),
    (
        "rises-against",
        "from level to level, the first variant becomes higher against each other one",
        *(2, 2, _gap, Rule.HIGHER),
    ),
    ("alike", "any two of the variants are the same", 1, 2, _any_two, Rule.SAME),
    (
        "converges",
        "from level to level, the first variant and each other one come closer",
        *(2, 2, _gap, Rule.CLOSER),
    ),
    ("below", "each variant is below the value", 1, 1, _at_value, Rule.LOWER),
    ("above", "each variant is above the value", 1, 1, _at_value, Rule.HIGHER),
    ("about", "each variant is within the margin of the value", 1, 1, _at_value, Rule.SAME),
)

DIRECTIONS: Mapping[str, Direction] = {
    name: Direction(name, meaning, min_levels, min_variants, partial(make, rule), make is _at_value)
    for name, meaning, min_levels, min_variants, make, rule in _KINDS
}
