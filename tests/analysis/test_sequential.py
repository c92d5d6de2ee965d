"""Interim analyses: boundaries compared with the multivariate normal, error rates by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.formats.study import Looks
from analysis.inference.sequential import (
    FIRST_LOOK,
    schedule,
    sequential_p,
    spending,
    spending_levels,
)


def crossing(levels: np.ndarray, fractions: list[float]) -> float:
    """Return the probability that a Brownian motion crosses the boundary at any look.

    A look is an interim analysis. SciPy computes the probability from each look's one-sided level
    and fraction. A fraction is the number of networks at a look, divided by the maximum number.
    """
    t = np.array(fractions)
    covariance = np.minimum.outer(t, t) / np.sqrt(np.outer(t, t))
    z = stats.norm.isf(levels)
    return float(1 - stats.multivariate_normal.cdf(z, np.zeros(t.size), covariance))


@given(st.integers(FIRST_LOOK, 60), st.lists(st.floats(1e-12, 1), min_size=1, max_size=8))
@settings(max_examples=15)
def test_a_sequential_p_value_falls_with_more_looks(budget: int, p: list[float]) -> None:
    sizes = schedule(budget)
    looks = Looks(sizes[: len(p)], budget)
    p = p[: len(looks.sizes)]
    plans = [spending([(looks.sizes[: k + 1], budget)]) for k in range(len(p))]
    values = [sequential_p(p[: k + 1], plan) for k, plan in enumerate(plans)]
    # Each number of looks has its own table of levels, so the last digits may differ.
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(values))
    # A sequential p-value is not below the smallest p-value of its looks, because several looks
    # cost power. The smallest sequential p-value is 1e-7.
    assert all(
        value >= min(0.999 * min(p[: k + 1]), 1.0) or value == pytest.approx(1e-7)
        for k, value in enumerate(values)
    )


def test_a_raised_budget_spends_the_remaining_error_rate() -> None:
    first, then = (tuple(schedule(10)), 10), ((12, 15, 20), 20)
    both = spending([first, then])
    assert both.sizes == (*schedule(10), 12, 15, 20)
    assert both.spent[0] == pytest.approx(0.8 * 0.3**2)
    assert both.spent[len(first[0]) - 1] == pytest.approx(0.8)
    assert both.spent[-1] == pytest.approx(0.96)
    assert both.excess == 1.0
    times = [size / 20 for size in both.sizes]
    levels = spending_levels(times, [0.025], both.spent)[0]
    assert crossing(levels, times) == pytest.approx(0.025 * 0.96, rel=0.03)


def test_adding_networks_to_a_fixed_number_reports_the_excess_error_rate() -> None:
    plans = [((5,), 5), ((8,), 8), ((20,), 20)]
    assert spending(plans[:2]).spent == pytest.approx((1.0, 1.16))
    assert spending(plans).excess == pytest.approx(1.192)
    many = [((n,), n) for n in range(3, 40)]
    assert spending(many).excess <= 1.2
    # Looks at fewer networks than an earlier look, or at the same number, add nothing.
    assert spending([*plans, ((5,), 5)]).sizes == (5, 8, 20)
    assert spending(plans).up_to(10).sizes == (5, 8)
