"""Confidence bands of curves: simultaneous ones, and those of tornettools. Arrays in, arrays out.

A simultaneous band is mean +- c se at each point, with one c for all points: the quantile of the
largest |t| over the curve (sup-t; Montiel Olea and Plagborg-Moller 2019, J. Applied Econometrics
34). Because there are few runs, the quantile comes from a simulation with the same number of
normally distributed runs and the observed correlation along the curve.
docs/reference/statistics.md reports the band's coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats
from analysis.inference.intervals import CONFIDENCE, t_quantile

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
        curves: shape (runs, points), runs >= 1, one curve for each run or pair of runs. If a point
            is NaN in any run, the result is NaN there: a mean of the other runs would be biased.
        draws: number of simulated sets of runs.
        seed: seed of the simulation.

    Returns:
        The mean and a band that contains the whole curve with probability ``CONFIDENCE``. For a
        single run, the band is NaN. At points at which all runs agree, the band has zero width.
        Such points do not affect the width elsewhere.
    """
    values = np.asarray(curves, dtype=np.float64)
    runs = values.shape[0]
    known = np.isfinite(values).all(axis=0)
    mean = np.where(known, np.where(known, values, 0.0).mean(axis=0), np.nan)
    half = np.full(mean.shape, np.nan)
    if runs > 1:
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


def lower_quantiles(sample: ArrayLike, shares: Floats) -> Floats:
    """Return the quantiles of a sample at ``shares``, rounded down to values of the sample.

    sample: shape (n,), or (n, 2) if each value has a second number, which is returned with it.
    """
    values = np.asarray(sample, dtype=np.float64)
    keys = values if values.ndim == 1 else values[:, 0]
    ordered = values[np.argsort(keys, kind="stable")]
    return ordered[((len(ordered) - 1) * shares).astype(np.int64)]


def mean_quantiles(networks: Sequence[Sequence[Floats]], shares: Floats) -> Band | None:
    """Return tornettools' mean quantiles, and mean +- t(n-1) sd / sqrt(n), clipped at 0.

    Each of the n networks counts once, with the means of its samples' quantiles. Empty samples are
    ignored. If values have a resolution (rounding step), each may lie anywhere in a span of this
    width. Therefore sd^2 is increased by the sum of the networks' resolution^2 / 12, divided by
    n - 1.

    Args:
        networks: samples of nonnegative values, one per simulation of a network. A sample has the
            shape (m,), or (m, 2) if each value has its resolution in the second column.
        shares: in [0, 1], shape (g,).

    Returns:
        A pointwise band of shape (g,): the coverage holds at each point, not for the whole curve.
        Its bounds are NaN for a single network. The result is None if no sample has a value.
    """
    found = [
        np.mean([lower_quantiles(sample, shares) for sample in group], axis=0)
        for group in ([sample for sample in group if np.size(sample)] for group in networks)
        if group
    ]
    if not found:
        return None
    stacked = np.stack(found)
    values, steps = (
        (stacked, np.zeros_like(stacked)) if stacked.ndim == 2 else np.moveaxis(stacked, 2, 0)
    )
    mean, count = values.mean(axis=0), len(found)
    if count == 1:
        nothing = np.full(shares.shape, np.nan)
        return Band(mean, nothing, nothing, 1)
    variance = values.var(axis=0, ddof=1) + (steps**2).sum(axis=0) / 12 / (count - 1)
    half = t_quantile((1 + CONFIDENCE) / 2, count - 1.0) * np.sqrt(variance) / np.sqrt(count)
    return Band(mean, np.maximum(0.0, mean - half), mean + half, count)
