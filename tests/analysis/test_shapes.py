"""Tests and verdicts for differences that are not normally distributed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from analysis_synthetic import known
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.inference.effects import paired_effect
from analysis.inference.sample_size import unseen_share
from analysis.inference.shapes import (
    SIGNED_RANKS_FROM,
    looks_skewed,
    nominal_p_for,
    shape_corrected_p,
)
from analysis.inference.signed_ranks import lower_bound, p_typical_above, typical_value
from analysis.judgement.verdicts import Grade, Sides, decide
from analysis.measures.metric import RATE, Margin

TYPICAL_EXPONENTIAL = 0.8391735
"""The typical value (pseudomedian) of the exponential distribution.

It is the median of the mean of two values. Their sum has a gamma distribution with shape 2, whose
median is twice as large.
"""


@pytest.mark.parametrize("n", [5, 12, 40])
def test_signed_ranks_are_scipys(n: int) -> None:
    values = np.random.default_rng(n).normal(0.3, 1.0, n)
    theirs = stats.wilcoxon(values, alternative="greater", method="exact").pvalue
    assert p_typical_above(values, 0.0) == pytest.approx(theirs, rel=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=12, max_size=70), st.floats(0.001, 0.2))
def test_the_lower_bound_is_where_the_test_ends(values: list[float], level: float) -> None:
    bound = lower_bound(values, level)
    assert bound <= typical_value(values) + 1e-9
    assert p_typical_above(values, bound - 1e-6) <= level * 1.02
    assert p_typical_above(values, bound + 1e-6) > level * 0.98


@given(st.floats(1e-7, 0.49), st.integers(2, 200), st.booleans())
def test_corrected_p_values_are_never_smaller(p: float, count: int, both: bool) -> None:
    worth = shape_corrected_p(p, count, two_sided=both)
    assert p <= worth <= 1
    assert shape_corrected_p(p * 0.9, count, two_sided=both) <= worth
    assert (
        shape_corrected_p(nominal_p_for(p, count, two_sided=both), count, two_sided=both)
        <= p * 1.0001
    )


@pytest.mark.parametrize(("n", "level"), [(3, 0.05), (5, 0.01), (10, 0.01), (12, 0.05), (20, 0.05)])
def test_skewed_differences_are_called_different_no_more_often_than_stated(
    n: int, level: float
) -> None:
    """The differences are exponential, shifted so that their typical value is 0.

    With few pairs, the t test alone errs more often than stated.
    """
    values = np.random.default_rng(n).exponential(size=(6000, n)) - TYPICAL_EXPONENTIAL
    false = np.mean([paired_effect(one).p_different <= level for one in values])
    assert false <= level + 3 * np.sqrt(level * (1 - level) / 6000)
    if n < SIGNED_RANKS_FROM:
        t_alone = np.mean(stats.ttest_1samp(values, 0.0, axis=1).pvalue <= level)
        assert t_alone > 1.2 * level


def test_skewness_is_seen() -> None:
    assert looks_skewed([0.0, 0.1, -0.1, 0.05, -0.05, 0.0, 0.1, 3.0])
    assert not looks_skewed([1.0, 1.1, 0.9, 1.2, 0.8, 1.0])
    assert not looks_skewed([0.0, 0.0, 0.0, 5.0])
    assert not looks_skewed([0.0] * 9 + [0.001], resolution=0.01)
    normal = np.random.default_rng(4).normal(size=(4000, 12))
    assert np.mean([looks_skewed(one) for one in normal]) == pytest.approx(0.01, abs=0.006)
    large = np.random.default_rng(4).normal(size=(1000, 400))
    assert np.mean([looks_skewed(one) for one in large]) == pytest.approx(0.01, abs=0.012)


def test_a_verdict_on_skewed_networks_has_a_caution() -> None:
    base = np.full(8, 10.0)
    away = np.exp([0.0, 0.01, -0.01, 0.005, -0.005, 0.0, 0.01, 0.8])
    plain = Sides(base, base, Margin(0.05))
    skewed, even = decide([replace(plain, variant=base * away), plain])
    caution = "a few networks are outliers: this is about the typical network ("
    assert skewed.caution.startswith(f"{caution}\N{MULTIPLICATION SIGN}1.00")
    assert even.caution == ""


def test_rates_of_zero_are_equal_and_the_unseen_share_is_stated() -> None:
    for n in (3, 5, 10):
        sides = Sides(np.zeros(n), np.zeros(n), RATE.margin, "lower", 1 / 500)
        assert decide([sides])[0].grade is Grade.SAME
    assert unseen_share(10, 0.05) == pytest.approx(1 - 0.05**0.1)


@pytest.mark.parametrize("n", [8, 11])
def test_from_eight_pairs_on_test_and_interval_ask_signed_ranks_too(n: int) -> None:
    """One network with an extreme difference can mislead the t test. So signed ranks decide, too.

    Both tests must reject, and the interval must contain the interval from signed ranks.
    """
    rng = np.random.default_rng(n)
    for _ in range(300):
        values = rng.standard_t(2, n) + 0.7
        found = paired_effect(values)
        interval = found.interval()
        ranks = lower_bound(values, 0.025), -lower_bound(-values, 0.025)
        assert known(interval.low) <= ranks[0] <= ranks[1] <= known(interval.high)
        assert (found.p_different <= 0.05) == interval.leaves_out(0.0)
