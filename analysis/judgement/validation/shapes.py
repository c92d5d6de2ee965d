"""Differences of any shape: false grades, power and coverage of the graph procedure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy import special
from scipy.optimize import brentq

from analysis.arrays import Floats
from analysis.inference.effects import paired_effect
from analysis.judgement.validation.coverage import COVERAGE_PROMISED
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row
from analysis.judgement.validation.simulated_runs import (
    CORRELATION,
    ENDPOINTS,
    MARGIN,
    RUN_SD,
    SEED_SD,
    judge_family,
)
from analysis.judgement.verdicts import LEVEL, Grade

NETWORKS = (3, 5, 8, 10)

WIDE = 0.5
"""Spread of the differences' logarithms where a false "shown" is looked for: with a narrow one
what differs by less than the margin is the same."""

NARROW = 0.01
"""The spread where a false "same" is looked for: with a wide one nothing is the same."""

POWER_SPREAD = float(np.sqrt(2)) * RUN_SD
"""The spread where power is measured: that of two runs of a network."""

_GRID = 400_001


@dataclass(frozen=True)
class Shape:
    """How a policy's effect differs from network to network.

    Attributes:
        quantile: maps shape (...) in (0, 1) to values.
        promised: whether the promises hold for it.
    """

    quantile: Callable[[Floats], Floats]
    promised: bool = True

    @cached_property
    def typical(self) -> float:
        """The pseudomedian: the median of the mean of two values drawn alike."""
        chance = (np.arange(_GRID) + 0.5) / _GRID
        values = self.quantile(chance)

        def below(middle: float) -> float:
            """How much more often than not the mean of two lies below ``middle``."""
            return float(np.searchsorted(values, 2 * middle - values).mean() / _GRID - 0.5)

        return float(brentq(below, values[0], values[-1]))

    @property
    def spread(self) -> float:
        """Standard deviation of the normal values that have the same middle half."""
        low, high = self.quantile(np.array([0.25, 0.75]))
        return float((high - low) / (2 * special.ndtri(0.75)))


def _lognormal(sd: float, *, promised: bool = True) -> Shape:
    return Shape(lambda u: np.asarray(np.exp(sd * special.ndtri(u))), promised)


def _gamma(shape: float, *, promised: bool = True) -> Shape:
    return Shape(lambda u: np.asarray(special.gammaincinv(shape, u)), promised)


def _mixture(*parts: tuple[float, float, float], promised: bool = True) -> Shape:
    """Normal values: the share, the mean and the standard deviation of each part."""
    reach = max(abs(mean) + 7 * sd for _, mean, sd in parts)
    grid = np.linspace(-reach, reach, _GRID)
    chance = sum(share * special.ndtr((grid - mean) / sd) for share, mean, sd in parts)
    return Shape(lambda u: np.asarray(np.interp(u, chance, grid)), promised)


def _off(share: float, by_sd: float, *, promised: bool = True) -> Shape:
    """Normal values, of which a share is off by so many standard deviations."""
    return _mixture((1 - share, 0.0, 1.0), (share, by_sd, 1.0), promised=promised)


SHAPES: Mapping[str, Shape] = {
    "normal": Shape(lambda u: np.asarray(special.ndtri(u))),
    "t, 3 df": Shape(lambda u: np.asarray(special.stdtrit(3.0, u))),
    "exponential": Shape(lambda u: np.asarray(-np.log1p(-u))),
    "lognormal(1)": _lognormal(1.0),
    "one of ten off by 5 sd": _off(0.1, 5.0),
    "one of ten off by 15 sd": _off(0.1, 15.0),
    "gamma(2)": _gamma(2.0),
    "gamma(4)": _gamma(4.0),
    "Weibull(1.5)": Shape(lambda u: np.asarray((-np.log1p(-u)) ** (1 / 1.5))),
    "lognormal(0.5)": _lognormal(0.5),
    "half with 5 times the sd": _mixture((0.5, 0.0, 1.0), (0.5, 0.0, 5.0)),
    "one of five off by 15 sd": _off(0.2, 15.0, promised=False),
    "one of five off by 30 sd": _off(0.2, 30.0, promised=False),
    "one of three off by 15 sd": _off(1 / 3, 15.0, promised=False),
    "gamma(0.5)": _gamma(0.5, promised=False),
    "lognormal(1.5)": _lognormal(1.5, promised=False),
}
"""Shapes of the differences between networks; the last are beyond what is promised."""


def shapes() -> Iterator[Cell]:
    """False grades and power of a family, and coverage for one endpoint, by shape and networks."""
    for name in SHAPES:
        for n in NETWORKS:
            yield partial(_false, name, n)
            yield partial(_right, name, n)


def _false(name: str, n: int, repetitions: int) -> Iterator[Row]:
    shape = SHAPES[name]
    rng = generator(9, list(SHAPES).index(name), n)
    differences = away(shape, rng, repetitions, n)
    setting = f"{name}, {n} networks"
    edge = float(np.log1p(MARGIN.value))
    for false, shift, spread in ((Grade.SHOWN, 0.0, WIDE), (Grade.SAME, edge, NARROW)):
        hits = 0
        for one, sign in zip(differences, signs(rng), strict=False):
            base = baseline_of(rng, n)
            hits += false in judge_family(base * np.exp(shift + sign * spread * one), base)
        yield rate_row(
            "shapes", setting, f"any false '{false}' of {ENDPOINTS}", hits, repetitions,
            LEVEL if shape.promised else None,
        )  # fmt: skip
    hits = sum(not paired_effect(one).interval().leaves_out(0.0) for one in differences[:, 0])
    yield rate_row(
        "shapes", setting, "coverage of the interval", hits, repetitions,
        COVERAGE_PROMISED if shape.promised else None, "at least",
    )  # fmt: skip


def _right(name: str, n: int, repetitions: int) -> Iterator[Row]:
    """How often the first endpoint, and another one, gets its true grade."""
    shape, times = SHAPES[name], max(1, repetitions // 4)
    rng = generator(13, list(SHAPES).index(name), n)
    for ratio, true in ((1.0, Grade.SAME), (1.1, Grade.SHOWN), (1.2, Grade.SHOWN)):
        right = np.zeros(ENDPOINTS)
        for one, sign in zip(away(shape, rng, times, n), signs(rng), strict=False):
            base = baseline_of(rng, n)
            found = judge_family(base * ratio * np.exp(sign * POWER_SPREAD * one), base)
            right += [grade is true for grade in found]
        setting = f"{name}, all differ by {ratio - 1:.0%}, {n} networks"
        for whose, share in (("first", right[0]), ("each other", right[1:].mean())):
            yield Row("shapes", setting, f"{whose} endpoint '{true}'", float(share / times), 0.0)


def away(shape: Shape, rng: np.random.Generator, repetitions: int, n: int) -> Floats:
    """Differences from the typical one in spreads, shape (repetitions, endpoints, n)."""
    common = rng.normal(size=(repetitions, 1, n))
    own = rng.normal(size=(repetitions, ENDPOINTS, n))
    both = np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own
    chances: Floats = np.clip(special.ndtr(both), 1e-15, 1 - 1e-15)
    return (shape.quantile(chances) - shape.typical) / shape.spread


def signs(rng: np.random.Generator) -> Iterator[float]:
    """Yield the side on which the long tail lies, without end: harm and its opposite."""
    while True:
        yield 1.0 if rng.random() < 0.5 else -1.0


def baseline_of(rng: np.random.Generator, n: int) -> Floats:
    """Values of the baseline, shape (endpoints, n)."""
    base: Floats = np.exp(rng.normal(0.0, SEED_SD, (1, n))) * np.ones((ENDPOINTS, 1))
    return base
