"""Censored distributions against closed forms, brute force and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.measures.survival import CENSORED, EVENT, FAILURE, cumulative_incidence, kaplan_meier

# Few distinct times, so that ties of every kind are common.
SAMPLES = st.lists(
    st.tuples(st.integers(0, 12).map(float), st.sampled_from([CENSORED, EVENT, FAILURE])),
    min_size=1,
    max_size=40,
)


def split(sample: list[tuple[float, int]]) -> tuple[list[float], list[int]]:
    return [time for time, _ in sample], [kind for _, kind in sample]


def brute_force_incidence(times: list[float], kinds: list[int], t: float) -> float:
    """Aalen-Johansen, as in the textbook, one time after the other."""
    total, survival = 0.0, 1.0
    for u in sorted(set(times)):
        if u > t:
            break
        at_risk = sum(time >= u for time in times)
        events = sum(time == u and kind == EVENT for time, kind in zip(times, kinds, strict=True))
        ends = sum(time == u and kind != CENSORED for time, kind in zip(times, kinds, strict=True))
        total += survival * events / at_risk
        survival *= 1 - ends / at_risk
    return total


@given(SAMPLES)
def test_incidence_is_the_textbooks(sample: list[tuple[float, int]]) -> None:
    times, kinds = split(sample)
    curve = cumulative_incidence(times, kinds)
    for t in np.arange(-0.5, 13.0, 0.5):
        if t <= curve.end_s:
            assert curve.at(t) == pytest.approx(brute_force_incidence(times, kinds, float(t)))


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


def test_the_restricted_mean_counts_failures_as_the_limit() -> None:
    curve = cumulative_incidence([1.0, 2.0, 5.0, 0.5], [EVENT, EVENT, EVENT, FAILURE])
    assert curve.restricted_mean(4.0) == pytest.approx((1 + 2 + 4 + 4) / 4)


def test_known_curve() -> None:
    # n=5: event 1, failure 2, censored 2, event 3, event 4.
    times, kinds = [1.0, 2.0, 2.0, 3.0, 4.0], [EVENT, FAILURE, CENSORED, EVENT, EVENT]
    incidence = cumulative_incidence(times, kinds)
    # 1/5, then S(3-) = 4/5 * 3/4 = 3/5 with two left: 3/10 each.
    assert incidence.times_s.tolist() == [1.0, 3.0, 4.0]
    assert incidence.probability == pytest.approx([0.2, 0.5, 0.8])
    assert (incidence.quantile(0.5), incidence.quantile(0.9)) == (3.0, None)
    km = kaplan_meier(times, kinds)
    # S = 4/5, 4/5 * 1/2, 0.
    assert km.probability == pytest.approx([0.2, 0.6, 1.0])
    assert km.quantile(0.9) == 4.0


def test_early_failures_part_the_two_estimates_and_late_ones_do_not() -> None:
    times = [1.0, 2.0, 3.0, 60.0]
    late = [EVENT, EVENT, EVENT, FAILURE]
    assert cumulative_incidence(times, late).quantile(0.75) == kaplan_meier(times, late).quantile(
        0.75
    )
    early = [FAILURE, EVENT, EVENT, EVENT]
    assert cumulative_incidence(times, early).at(3.0) == pytest.approx(0.5)
    assert kaplan_meier(times, early).at(3.0) == pytest.approx(2 / 3)


def test_the_curve_is_unknown_behind_the_last_censored_time() -> None:
    curve = cumulative_incidence([1.0, 5.0], [EVENT, CENSORED])
    assert curve.end_s == 5.0
    assert np.isnan(curve.at(5.1))
    assert curve.restricted_mean(6.0) is None
    assert curve.quantile(0.51) is None


def test_nothing_observed() -> None:
    curve = cumulative_incidence([], [])
    assert (curve.count, curve.quantile(0.5), curve.restricted_mean(1.0)) == (0, None, None)


@pytest.mark.parametrize("times", [[-1.0], [float("nan")], [float("inf")], [1.0, 2.0]])
def test_bad_observations(times: list[float]) -> None:
    with pytest.raises(ValueError, match="times"):
        cumulative_incidence(times, [EVENT])


def test_exponential_times_under_random_censoring() -> None:
    rng = np.random.default_rng(7)
    times, limits = rng.exponential(2.0, 20_000), rng.exponential(3.0, 20_000)
    kinds = np.where(times <= limits, EVENT, CENSORED)
    curve = kaplan_meier(np.minimum(times, limits), kinds)
    median = curve.quantile(0.5)
    assert median == pytest.approx(2 * np.log(2), rel=0.03)
    assert curve.restricted_mean(4.0) == pytest.approx(2 * (1 - np.exp(-2)), rel=0.03)
