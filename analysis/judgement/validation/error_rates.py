"""How often a grade is false: in mixed families, at any look while networks are added, at night."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Looks
from analysis.inference.sequential import schedule
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row
from analysis.judgement.validation.shapes import SHAPES, away, baseline_of, signs
from analysis.judgement.validation.simulated_runs import (
    ENDPOINTS,
    MARGIN,
    draw_family,
    judge_family,
)
from analysis.judgement.verdicts import LEVEL, Grade

BUDGET = 20
"""Networks at most, where data is looked at repeatedly."""

LOOKS_SHARE = 2
"""One in so many of the repetitions is looked at again and again, which is slow."""

LOOKED_AT = ("normal", "exponential", "lognormal(1)", "one of ten off by 15 sd")
"""Shapes for which looks and nights are simulated."""

NIGHTS = ((6, 2 / 365), (14, 2 / 365))
"""Networks of a night, and the level of an experiment for two false alarms a year."""

NIGHT_SHARE = 5
"""A night's level is small, so that it needs so many times the repetitions."""

_EDGE = float(np.log1p(MARGIN.value))

_WIDE, _NARROW = 0.5, 0.01
"""Spreads of differences where a false "shown" is looked for, and a false "same"."""


def false_grades() -> Iterator[Cell]:
    """Any false grade in a family of which half does not differ, and half by the margin."""
    yield _false_in_half


def _false_in_half(repetitions: int) -> Iterator[Row]:
    mixed = np.where(np.arange(ENDPOINTS) % 2, _EDGE, 0.0)
    rng = generator(2, 9)
    false_shown = false_same = 0
    for _ in range(repetitions):
        judged = judge_family(*draw_family(rng, 10, mixed))
        false_shown += Grade.SHOWN in judged[::2]
        false_same += Grade.SAME in judged[1::2]
    setting = f"half A/A, half at the margin, {ENDPOINTS} endpoints, 10 networks"
    for quantity, hits in (("any false 'shown'", false_shown), ("any false 'same'", false_same)):
        yield rate_row("false grades", setting, quantity, hits, repetitions, LEVEL)


def repeated_looks() -> Iterator[Cell]:
    """Any false grade at any look of SEEDS=auto, by shape."""
    for i in range(len(LOOKED_AT)):
        for false in (Grade.SHOWN, Grade.SAME):
            yield partial(_false_at_any_look, i, false)
    yield _naive


def _false_at_any_look(i: int, false: Grade, repetitions: int) -> Iterator[Row]:
    name, sizes = LOOKED_AT[i], schedule(BUDGET)
    looks = Looks(sizes, BUDGET)
    rng = generator(3, i, 0 if false is Grade.SHOWN else 1)
    hits, times = 0, max(1, repetitions // LOOKS_SHARE)
    for variant, base in _unchanged(rng, name, false, times, BUDGET):
        # A sequential p-value never rises, so the last look's grades hold all earlier ones.
        hits += false in judge_family(variant, base, looks=looks)
    setting = f"{name}, {len(sizes)} looks at 3 to {BUDGET} networks"
    yield rate_row("SEEDS=auto", setting, f"any false '{false}'", hits, times, LEVEL)


def _naive(repetitions: int) -> Iterator[Row]:
    """The same as if each look were the only one, for comparison."""
    times, sizes = max(1, repetitions // 4), schedule(BUDGET)
    hits = sum(
        any(Grade.SHOWN in judge_family(v[:, :n], b[:, :n]) for n in sizes)
        for v, b in _unchanged(generator(3, 9), "normal", Grade.SHOWN, times, BUDGET)
    )
    setting = f"normal, {len(sizes)} looks at 3 to {BUDGET} networks"
    yield rate_row("SEEDS=auto", setting, "any false 'shown', each look by itself", hits, times)


def nights() -> Iterator[Cell]:
    """Any false "shown" in one night's comparison at the level of a night, by shape."""
    for i in range(len(LOOKED_AT)):
        for k in range(len(NIGHTS)):
            yield partial(_false_at_night, i, k)


def _false_at_night(i: int, k: int, repetitions: int) -> Iterator[Row]:
    name, (n, level) = LOOKED_AT[i], NIGHTS[k]
    times = NIGHT_SHARE * repetitions
    hits = sum(
        Grade.SHOWN in judge_family(variant, base, level=level)
        for variant, base in _unchanged(generator(14, i, k), name, Grade.SHOWN, times, n)
    )
    yield rate_row("nights", f"{name}, {n} networks", "any false 'shown'", hits, times, level)


def _unchanged(
    rng: np.random.Generator, name: str, false: Grade, repetitions: int, n: int
) -> Iterator[tuple[Floats, Floats]]:
    """Yield families in which a grade is false: nothing differs, or all by the margin."""
    edge, spread = (0.0, _WIDE) if false is Grade.SHOWN else (_EDGE, _NARROW)
    for one, sign in zip(away(SHAPES[name], rng, repetitions, n), signs(rng), strict=False):
        base = baseline_of(rng, n)
        yield base * np.exp(edge + sign * spread * one), base
