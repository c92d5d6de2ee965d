"""Confidence bands of whole curves: their coverage in simulations, and edge cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.inference.bands import simultaneous_band


def test_one_point_gives_the_t_interval() -> None:
    values = np.random.default_rng(1).normal(size=(8, 1))
    band = simultaneous_band(values, draws=20_000)
    low, high = stats.t.interval(0.95, 7, values.mean(), stats.sem(values[:, 0]))
    assert band.low[0] == pytest.approx(low, rel=0.05)
    assert band.high[0] == pytest.approx(high, rel=0.05)


@pytest.mark.parametrize("runs", [3, 6])
def test_the_whole_curve_is_covered(runs: int) -> None:
    rng = np.random.default_rng(3)
    points = np.linspace(0, 1, 15)
    root = np.linalg.cholesky(
        np.exp(-np.abs(points[:, None] - points) / 0.3) + 1e-9 * np.eye(points.size)
    )
    hits = pointwise = 0
    for i in range(400):
        values = rng.normal(size=(runs, points.size)) @ root.T
        band = simultaneous_band(values, draws=200, seed=i)
        hits += int(np.all((band.low <= 0) & (band.high >= 0)))
        half = stats.t.ppf(0.975, runs - 1) * values.std(axis=0, ddof=1) / np.sqrt(runs)
        pointwise += int(np.all(np.abs(values.mean(axis=0)) <= half))
    assert hits / 400 > 0.91
    assert pointwise / 400 < 0.86


NUMBER = st.just(float("nan")) | st.floats(-1e6, 1e6, allow_subnormal=False)
CURVE = st.lists(NUMBER, min_size=4, max_size=4)


@given(st.lists(CURVE, min_size=2, max_size=6))
@settings(max_examples=40)
def test_a_band_holds_its_mean_and_repeats(curves: list[list[float]]) -> None:
    band = simultaneous_band(curves, draws=50)
    again = simultaneous_band(curves, draws=50)
    assert np.array_equal(band.low, again.low, equal_nan=True)
    known = np.isfinite(np.array(curves)).all(axis=0)
    assert np.array_equal(np.isfinite(band.low), known)
    assert np.all(band.low[known] <= band.mean[known])
    assert np.all(band.mean[known] <= band.high[known])
