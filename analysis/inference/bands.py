"""Simultaneous confidence bands for curves. Arrays in, arrays out.

The band is mean +- c se at each point, with one c for all points: the quantile of the largest |t|
over the curve (sup-t; Montiel Olea and Plagborg-Moller 2019, J. Applied Econometrics 34). Because
there are few runs, the quantile comes from a simulation with the same number of normally
distributed runs and the observed correlation along the curve. docs/reference/statistics.md reports
the band's coverage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats
from analysis.inference.intervals import CONFIDENCE

DRAWS = 2000

_NUMBERS_AT_ONCE = 1_000_000
"""Limit on the number of elements of the simulation's arrays, to save memory."""


@dataclass(frozen=True)
class Band:
    """The mean of ``count`` curves and its band: arrays of shape (points,), NaN if unknown."""

    mean: Floats
    low: Floats
    high: Floats
    count: int


def simultaneous_band(curves: ArrayLike, draws: int = DRAWS, seed: int = 0) -> Band:
    """Return the mean curve over runs, with a simultaneous confidence band.

    The same curves and seed give the same band.

    Args:
        curves: shape (runs, points), one curve for each run or pair of runs. If a point is NaN in
            any run, the result is NaN at this point: a mean of the other runs would be biased.
        draws: number of simulated sets of runs.
        seed: seed of the simulation.

    Returns:
        The mean and a band that contains the whole curve with probability ``CONFIDENCE``. For a
        single run, the band is NaN. At points at which all runs agree, the band has zero width.
        Such points do not affect the width elsewhere.

    Raises:
        ValueError: ``curves`` has no runs or is not two-dimensional.
    """
    values = np.asarray(curves, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] == 0:
        raise ValueError("curves need the shape (runs, points), with at least one run")
    runs = values.shape[0]
    known = np.isfinite(values).all(axis=0)
    mean = np.where(known, np.where(known, values, 0.0).mean(axis=0), np.nan)
    if runs == 1:
        nothing = np.full(mean.shape, np.nan)
        return Band(mean, nothing, nothing, 1)
    half = np.full(mean.shape, np.nan)
    half[known] = _half_width(values[:, known], draws, seed)
    return Band(mean, mean - half, mean + half, runs)


def _half_width(values: Floats, draws: int, seed: int) -> Floats:
    runs = values.shape[0]
    sd = values.std(axis=0, ddof=1)
    # Because of rounding, the standard deviation of equal values is not exactly zero, so compare it
    # with the size of the values.
    scale = np.abs(values).max(axis=0, initial=0.0)
    varying = sd > 1e-12 * scale
    half = np.zeros(sd.shape)
    if varying.any():
        unit = (values[:, varying] - values[:, varying].mean(axis=0)) / sd[varying]
        critical = _critical(unit / np.sqrt(runs - 1), draws, seed)
        half[varying] = critical * sd[varying] / np.sqrt(runs)
    return half


def _critical(unit: Floats, draws: int, seed: int) -> float:
    """Return the ``CONFIDENCE`` quantile of the largest |t| over the points, by simulation.

    unit: shape (runs, points); each column has the mean 0 and the sum of squares 1.
    """
    runs, points = unit.shape
    rng = np.random.default_rng(seed)
    # A few runs span few dimensions, so their points appear more correlated than they are.
    # Independent noise at each point compensates for this.
    own = 1.0 / runs
    largest: list[float] = []
    while len(largest) < draws:
        count = min(draws - len(largest), max(1, _NUMBERS_AT_ONCE // (runs * max(runs, points))))
        common = rng.normal(size=(count, runs, runs)) @ unit
        sample = np.sqrt(1 - own) * common + np.sqrt(own) * rng.normal(size=(count, runs, points))
        t = sample.mean(axis=1) / (sample.std(axis=1, ddof=1) / np.sqrt(runs))
        largest += np.abs(t).max(axis=1).tolist()
    return float(np.quantile(largest, CONFIDENCE))
