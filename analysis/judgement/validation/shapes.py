"""Differences of any shape: false verdicts and coverage, of the typical network and of the mean."""

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
    MARGIN,
    METRIC_COUNT,
    RUN_SD,
    SEED_SD,
    judge_family,
)
from analysis.judgement.verdicts import LEVEL, State

SEEDS = (3, 5, 10, 20, 40)

WIDE = 0.5
"""Spread of the differences' logarithms where a false "different" is looked for: with a narrow one
what differs by less than the margin is equivalent."""

NARROW = 0.01
"""The spread where a false "equivalent" is looked for: with a wide one nothing is equivalent."""

POWER_SPREAD = float(np.sqrt(2)) * RUN_SD
"""The spread where power is measured: that of two runs of a seed."""

_GRID = 400_001


@dataclass(frozen=True)
class Shape:
    """How a policy's effect differs from network to network.

    Attributes:
        quantile: maps shape (...) in (0, 1) to values.
        mean: of the values.
    """

    quantile: Callable[[Floats], Floats]
    mean: float

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


def _lognormal(sd: float) -> Shape:
    def quantile(u: Floats) -> Floats:
        return np.asarray(np.exp(sd * special.ndtri(u)), dtype=np.float64)

    return Shape(quantile, float(np.exp(sd**2 / 2)))


def _harmed(share: float, harm: float) -> Shape:
    """Normal values, of which a share is off by ``harm`` standard deviations."""
    grid = np.linspace(-7.0, 7.0 + harm, _GRID)
    chance = (1 - share) * special.ndtr(grid) + share * special.ndtr(grid - harm)

    def quantile(u: Floats) -> Floats:
        return np.asarray(np.interp(u, chance, grid), dtype=np.float64)

    return Shape(quantile, share * harm)


def _exponential(u: Floats) -> Floats:
    return np.asarray(-np.log1p(-u), dtype=np.float64)


SHAPES: Mapping[str, Shape] = {
    "normal": Shape(lambda u: np.asarray(special.ndtri(u), dtype=np.float64), 0.0),
    "t, 3 df": Shape(lambda u: np.asarray(special.stdtrit(3.0, u), dtype=np.float64), 0.0),
    "exponential": Shape(_exponential, 1.0),
    "lognormal(1)": _lognormal(1.0),
    "one seed of ten off by 5 sd": _harmed(0.1, 5.0),
    "one seed of ten off by 15 sd": _harmed(0.1, 15.0),
}


def shapes() -> Iterator[Cell]:
    """False verdicts of a family, and coverage for one metric, by shape and seeds."""
    for name in SHAPES:
        for n in SEEDS:
            yield partial(_shape, name, "typical seed", n)
            # Of symmetric ones both are the same.
            if name not in ("normal", "t, 3 df"):
                yield partial(_shape, name, "mean", n)
            yield partial(_right, name, n)


def _shape(name: str, centre: str, n: int, repetitions: int) -> Iterator[Row]:
    shape = SHAPES[name]
    promised = centre == "typical seed"
    rng = generator(9, list(SHAPES).index(name), n)
    away = _away(shape, shape.typical if promised else shape.mean, rng, repetitions, n)
    setting = f"{name}, {centre} unchanged, {n} seeds"
    yield from _false_different(rng, away, setting, promised)
    if promised:
        at_margin = f"{name}, {centre} differs by the margin, {n} seeds"
        yield from _false_equivalent(rng, away, at_margin)
    hits = 0
    for differences in away[:, 0]:
        interval = paired_effect(differences).interval()
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= 0.0 <= interval.high
    yield rate_row(
        "shapes", setting, "coverage of the interval", hits, repetitions,
        COVERAGE_PROMISED if promised else None, "at least",
    )  # fmt: skip


def _right(name: str, n: int, repetitions: int) -> Iterator[Row]:
    """How often one of a family's metrics gets its true verdict."""
    shape = SHAPES[name]
    rng = generator(13, list(SHAPES).index(name), n)
    away = _away(shape, shape.typical, rng, repetitions, n)
    for ratio, true in ((1.0, State.EQUIVALENT), (1.1, State.DIFFERENT), (1.2, State.DIFFERENT)):
        right = 0
        for one in away:
            base = _baseline(rng, n)
            sign = 1.0 if rng.random() < 0.5 else -1.0
            found = judge_family(base * ratio * np.exp(sign * POWER_SPREAD * one), base)
            right += found.count(true)
        share = right / (len(away) * METRIC_COUNT)
        setting = f"{name}, typical seed differs by {ratio - 1:.0%}, {n} seeds"
        yield Row("shapes", setting, f"share judged {true.value}", share, 0.0)


def _away(
    shape: Shape, centre: float, rng: np.random.Generator, repetitions: int, n: int
) -> Floats:
    """Differences from ``centre`` in spreads, shape (repetitions, metrics, n)."""
    return (shape.quantile(_chances(rng, repetitions, n)) - centre) / shape.spread


def _chances(rng: np.random.Generator, repetitions: int, n: int) -> Floats:
    """Uniform numbers of the metrics of each repetition's seeds, (repetitions, metrics, n)."""
    common = rng.normal(size=(repetitions, 1, n))
    own = rng.normal(size=(repetitions, METRIC_COUNT, n))
    both = np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own
    chances: Floats = np.clip(special.ndtr(both), 1e-15, 1 - 1e-15)
    return chances


def _baseline(rng: np.random.Generator, n: int) -> Floats:
    base: Floats = np.exp(rng.normal(0.0, SEED_SD, (1, n))) * np.ones((METRIC_COUNT, 1))
    return base


def _false_different(
    rng: np.random.Generator, away: Floats, setting: str, promised: bool
) -> Iterator[Row]:
    hits = 0
    for one in away:
        base = _baseline(rng, one.shape[1])
        # On either side, in turn: harm and its opposite.
        sign = 1.0 if rng.random() < 0.5 else -1.0
        hits += State.DIFFERENT in judge_family(base * np.exp(sign * WIDE * one), base)
    yield rate_row(
        "shapes", setting, f"any false 'different' of {METRIC_COUNT}", hits, len(away),
        LEVEL if promised else None,
    )  # fmt: skip


def _false_equivalent(rng: np.random.Generator, away: Floats, setting: str) -> Iterator[Row]:
    edge = float(np.log1p(MARGIN.value))
    hits = 0
    for one in away:
        base = _baseline(rng, one.shape[1])
        sign = 1.0 if rng.random() < 0.5 else -1.0
        variant = base * np.exp(edge + sign * NARROW * one)
        hits += State.EQUIVALENT in judge_family(variant, base)
    yield rate_row(
        "shapes", setting, f"any false 'equivalent' of {METRIC_COUNT}", hits, len(away), LEVEL
    )
