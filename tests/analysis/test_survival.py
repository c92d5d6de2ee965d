"""Distributions of censored times, and the bias of distributions that ignore censoring.

The expected values are computed by hand, by brute force and by SciPy.
"""

from __future__ import annotations

import numpy as np
import pytest
from analysis_synthetic import known
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.measures.censoring import bias
from analysis.measures.survival import CENSORED, EVENT, FAILURE, cumulative_incidence, kaplan_meier

# There are few distinct times, so ties of every kind are common.
SAMPLES = st.lists(
    st.tuples(st.integers(0, 12).map(float), st.sampled_from([CENSORED, EVENT, FAILURE])),
    min_size=1,
    max_size=40,
)


def split(sample: list[tuple[float, int]]) -> tuple[list[float], list[int]]:
    return [time for time, _ in sample], [kind for _, kind in sample]


@given(SAMPLES)
def test_kaplan_meier_is_scipys(sample: list[tuple[float, int]]) -> None:
    times, kinds = split(sample)
    curve = kaplan_meier(times, kinds)
    events = [t for t, kind in sample if kind == EVENT]
    censored = [t for t, kind in sample if kind != EVENT]
    if not events:
        assert curve.times_s.size == 0
        return
    theirs = stats.ecdf(stats.CensoredData(uncensored=events, right=censored)).cdf
    for t in sorted(set(times)):
        assert curve.at(t) == pytest.approx(theirs.evaluate(np.array([t]))[0])


@given(SAMPLES)
def test_without_censoring_incidence_is_the_share_of_all(sample: list[tuple[float, int]]) -> None:
    known = [(t, EVENT if kind == CENSORED else kind) for t, kind in sample]
    times, kinds = split(known)
    curve = cumulative_incidence(times, kinds)
    assert curve.end_s == float("inf")
    for t in range(-1, 15):
        share = sum(u <= t and kind == EVENT for u, kind in known) / len(known)
        assert curve.at(t) == pytest.approx(share)


@given(SAMPLES, st.sampled_from([0.1, 0.25, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_the_first_time_that_reaches_it(
    sample: list[tuple[float, int]], q: float
) -> None:
    times, kinds = split(sample)
    curve = cumulative_incidence(times, kinds)
    value = curve.quantile(q)
    if value is None:
        assert all(p < q for p in curve.probability)
    else:
        assert curve.at(value) >= q - 1e-9
        before = [float(curve.at(t)) for t in sorted(set(times)) if t < value]
        assert all(p < q for p in before)


@given(SAMPLES, st.floats(0.5, 11.5))
def test_the_restricted_mean_is_the_integral(sample: list[tuple[float, int]], limit: float) -> None:
    times, kinds = split(sample)
    curve = cumulative_incidence(times, kinds)
    value = curve.restricted_mean(limit)
    if limit > curve.end_s:
        assert value is None
        return
    grid = (np.arange(20_000) + 0.5) / 20_000 * limit
    assert value == pytest.approx(float(np.mean(1 - curve.at(grid)) * limit), abs=0.02)


def test_the_bias_of_the_naive_distribution_by_hand() -> None:
    # Ten streams: six reached the event after 1 to 6 s, three timed out at 60 s, and one was
    # censored at 3.5 s.
    times = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 60.0, 60.0, 60.0, 3.5]
    kinds = [EVENT] * 6 + [FAILURE] * 3 + [CENSORED]
    found = known(bias(times, kinds, (0.5, 0.9)))
    assert (found.streams, found.failed, found.censored) == (10, 3, 1)
    assert found.quantiles["naive"] == (3.0, 6.0)
    # After 3 s the probability is 0.3. Six streams remain after the censored one, and they share
    # the other 0.7. So after k more events the probability is 0.3 + k * 0.7 / 6.
    assert found.quantiles["incidence"] == (5.0, None)
    assert found.quantiles["kaplan_meier"] == (5.0, None)
    assert found.distance == pytest.approx(1 - 0.65)
    assert bias([], [], (0.5,)) is None


@given(SAMPLES)
def test_the_naive_distribution_is_never_too_slow(sample: list[tuple[float, int]]) -> None:
    times, kinds = split(sample)
    found = bias(times, kinds, (0.5, 0.9, 0.99))
    if found is None:
        assert EVENT not in kinds
        return
    for naive, true in zip(found.quantiles["naive"], found.quantiles["incidence"], strict=True):
        assert naive is not None
        assert true is None or naive <= true
    seen = np.array([t for t, k in sample if k == EVENT])
    grid = np.unique(seen)
    naive_at = np.array([np.mean(seen <= t) for t in grid])
    true_at = cumulative_incidence(times, kinds).at(grid)
    assert found.distance == pytest.approx(float(np.max(np.abs(naive_at - true_at))))
    assert (found.distance < 1e-9) or (found.failed + found.censored > 0)
