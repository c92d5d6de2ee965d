"""How often intervals and bands hold the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.inference.bands import simultaneous_band
from analysis.inference.effects import paired_effect
from analysis.inference.intervals import bca_interval
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row

COVERAGE_PROMISED = 0.94
"""For the interval of paired differences, whatever the shape."""

BCA_SHARE = 10
"""One in so many of the repetitions has a bootstrap, which is slow and promises nothing."""


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.normal(0.0, 1.0, shape)


def _skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.lognormal(0.0, 0.8, shape)


def _heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.standard_t(3, shape)


def _counts(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.poisson(2.0, shape).astype(np.float64)


_SHAPES: Mapping[str, tuple[Callable[[np.random.Generator, tuple[int, ...]], Floats], float]] = {
    "normal": (_normal, 0.0),
    "lognormal": (_skewed, 0.0),
    "heavy tails (t, 3 df)": (_heavy, 0.0),
    "ties (counts around 2)": (_counts, 1.0),
}
"""How a run's value is distributed around its seed's, and the step in which it is known."""


def coverage() -> Iterator[Cell]:
    """How often 95 % intervals of a paired difference hold the truth, by shape and networks."""
    for i in range(len(_SHAPES)):
        for n in (3, 5, 10, 20, 40):
            yield partial(_coverage, i, n)


def _coverage(i: int, n: int, repetitions: int) -> Iterator[Row]:
    name, (draw, step) = list(_SHAPES.items())[i]
    rng = generator(1, i, n)
    own, base = (draw(rng, (repetitions, n)) for _ in range(2))
    # The truth is 0: both sides have the same distribution.
    few = max(1, repetitions // BCA_SHARE)
    setting = f"{name}, {n} networks"
    for method, promised, intervals in (
        ("paired", COVERAGE_PROMISED, [paired_effect(d, step).interval() for d in own - base]),
        ("BCa", None, [bca_interval(d, resamples=1000) for d in (own - base)[:few]]),
    ):
        hits = sum(not interval.leaves_out(0.0) for interval in intervals)
        yield rate_row(
            "coverage", setting, f"{method} interval", hits, len(intervals), promised, "at least"
        )


BAND_PROMISED = 0.92

BAND_POINTS = 20


_REACHES = (0.1, 0.3, 1.0)
"""How far the correlation reaches, in lengths of the curve."""


def bands() -> Iterator[Cell]:
    """How often a 95 % band holds the whole true curve, by seeds and smoothness."""
    for i in range(len(_REACHES)):
        for n in (3, 5, 10, 20):
            yield partial(_band, i, n)


def _band(i: int, n: int, repetitions: int) -> Iterator[Row]:
    reach = _REACHES[i]
    points = np.linspace(0, 1, BAND_POINTS)
    covariance = np.exp(-np.abs(points[:, None] - points) / reach)
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(BAND_POINTS))
    rng = generator(8, i, n)
    hits = 0
    for _ in range(repetitions):
        values = rng.normal(size=(n, BAND_POINTS)) @ root.T
        band = simultaneous_band(values, draws=200)
        hits += bool(np.all((band.low <= 0) & (band.high >= 0)))
    setting = f"curves of {BAND_POINTS} points, correlation reaches {reach:g}, {n} seeds"
    yield rate_row(
        "bands", setting, "simultaneous band", hits, repetitions, BAND_PROMISED, "at least"
    )
