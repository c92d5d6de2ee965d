"""Bands around whole curves that hold everywhere at once. Arrays in, arrays out.

The band is mean +- c se at each point, with one c for all points: the quantile of the largest |t|
over the curve (sup-t; Montiel Olea and Plagborg-Moller 2019, J. Applied Econometrics 34). Runs are
few, so the quantile is that of simulated sets of as many runs, normal, with the correlation along
the curve that the runs show; docs/reference/statistics.md has how it fares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats
from analysis.inference.intervals import CONFIDENCE

DRAWS = 2000

_NUMBERS_AT_ONCE = 1_000_000
"""Keeps the simulation's arrays small beside the records."""


@dataclass(frozen=True)
class Band:
    """A mean curve and its band; all of shape (points,), NaN where not known."""

    mean: Floats
    low: Floats
    high: Floats


def simultaneous_band(
    curves: ArrayLike, confidence: float = CONFIDENCE, draws: int = DRAWS, seed: int = 0
) -> Band:
    """The mean curve over runs, and a band that holds all of it with the given confidence.

    The same curves and seed give the same band.

    Args:
        curves: shape (runs, points), one curve for each run or pair of runs. A point that any run
            lacks (NaN) is unknown: to take the others' mean there would be to select.
        confidence: chance that the whole true curve lies inside.
        draws: simulated sets of runs.
        seed: of the simulation.

    Returns:
        With one run the mean only. Points where all runs agree have no width and count for nothing.

    Raises:
        ValueError: no runs, or not two-dimensional.
    """
    values = np.asarray(curves, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] == 0:
        raise ValueError("curves need the shape (runs, points), with at least one run")
    runs = values.shape[0]
    known = np.isfinite(values).all(axis=0)
    mean = np.where(known, np.where(known, values, 0.0).mean(axis=0), np.nan)
    if runs == 1:
        nothing = np.full(mean.shape, np.nan)
        return Band(mean, nothing, nothing)
    half = np.full(mean.shape, np.nan)
    half[known] = _half_width(values[:, known], confidence, draws, seed)
    return Band(mean, mean - half, mean + half)


def _half_width(values: Floats, confidence: float, draws: int, seed: int) -> Floats:
    runs = values.shape[0]
    sd = values.std(axis=0, ddof=1)
    # Equal values leave a spread of rounding errors.
    scale = np.abs(values).max(axis=0, initial=0.0)
    varying = sd > 1e-12 * scale
    half = np.zeros(sd.shape)
    if varying.any():
        unit = (values[:, varying] - values[:, varying].mean(axis=0)) / sd[varying]
        critical = _critical(unit / np.sqrt(runs - 1), confidence, draws, seed)
        half[varying] = critical * sd[varying] / np.sqrt(runs)
    return half


def _critical(unit: Floats, confidence: float, draws: int, seed: int) -> float:
    """Quantile of the largest |t| over the points; ``unit``: shape (runs, points), unit columns."""
    runs, points = unit.shape
    rng = np.random.default_rng(seed)
    # A few runs span few directions, and so their points look more alike than they are. A share of
    # noise of each point's own makes up for it.
    own = 1.0 / runs
    largest: list[float] = []
    while len(largest) < draws:
        count = min(draws - len(largest), max(1, _NUMBERS_AT_ONCE // (runs * max(runs, points))))
        common = rng.normal(size=(count, runs, runs)) @ unit
        sample = np.sqrt(1 - own) * common + np.sqrt(own) * rng.normal(size=(count, runs, points))
        t = sample.mean(axis=1) / (sample.std(axis=1, ddof=1) / np.sqrt(runs))
        largest += np.abs(t).max(axis=1).tolist()
    return float(np.quantile(largest, confidence))
