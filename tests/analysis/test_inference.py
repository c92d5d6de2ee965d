"""Intervals, tests and corrections, compared with SciPy and values by hand, and edge cases."""

from __future__ import annotations

import numpy as np
import pytest
from analysis_synthetic import known
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from analysis.inference.components import components
from analysis.inference.corrections import adjusted, endpoint_weights
from analysis.inference.effects import Effect, paired_effect, welch_effect
from analysis.inference.intervals import Interval, positive_interval, t_interval
from analysis.inference.sample_size import POWER, count_to_settle, rounded_more, shown_from_spreads

VALUES = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=20)
SPREAD = VALUES.filter(lambda values: float(np.std(values)) > 1e-3)


@given(VALUES)
def test_interval_is_scipys(values: list[float]) -> None:
    result = t_interval(values)
    scale = stats.sem(values)
    low, high = np.mean(values), np.mean(values)
    if scale > 0:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), scale)
    assert result.low == pytest.approx(low, abs=1e-6)
    assert result.high == pytest.approx(high, abs=1e-6)


def test_one_value_has_no_bounds() -> None:
    assert t_interval([4.0]) == Interval(4.0, None, None)


@given(SPREAD)
def test_t_of_pairs_is_scipys_and_no_p_value_is_below_it(values: list[float]) -> None:
    effect = paired_effect(values)
    for bound in (0.0, -100.0, 100.0):
        theirs = stats.ttest_1samp(values, bound, alternative="greater").pvalue
        assert effect.t_above(bound) == pytest.approx(theirs, abs=1e-9)
        assert effect.p_above(bound) >= effect.t_above(bound)
    assert effect.p_different >= stats.ttest_1samp(values, 0.0).pvalue - 1e-9


def test_equal_differences_are_as_uncertain_as_their_resolution() -> None:
    sure = paired_effect([2.0, 2.0, 2.0])
    assert (sure.p_different, sure.p_equivalent(3.0), sure.p_equivalent(2.0)) == (0.0, 0.0, 1.0)
    counted = paired_effect([2.0, 2.0, 2.0], resolution=1.0)
    assert counted.standard_error == pytest.approx(1 / np.sqrt(18))
    assert 0.01 < counted.p_different < 0.05
    same = paired_effect([0.0, 0.0])
    assert (same.p_different, same.p_equivalent(0.1)) == (1.0, 0.0)
    assert welch_effect([1.0, 1.0], [2.0, 2.0]).p_different == 0.0
    assert welch_effect([1.0, 1.0], [2.0, 2.0], 1.0).standard_error == pytest.approx(1 / 12**0.5)


def test_adjusted_p_values_by_hand() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    assert adjusted(p, [0.25] * 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # P-values are adjusted in the order of p-value / weight. In this order, adjusted values never
    # decrease. 0.01 becomes 0.01 / 0.5 = 0.02. 0.005 has 0.25 of the remaining weight of 0.5, so it
    # would become 0.01, and is raised to 0.02. 0.03 has all of the remaining weight and stays.
    weighted = adjusted([0.01, 0.005, 0.03], [0.5, 0.25, 0.25])
    assert weighted == pytest.approx([0.02, 0.02, 0.03])
    assert adjusted([], []).shape == (0,)
    assert endpoint_weights(4) == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])


@pytest.mark.parametrize(
    ("count", "told"), [(1, 1), (5, 5), (6, 10), (11, 15), (50, 50), (51, None), (None, None)]
)
def test_numbers_of_further_networks_are_rounded(count: int | None, told: int | None) -> None:
    assert rounded_more(count) == told


def test_the_count_to_settle_is_that_of_the_power_formula() -> None:
    # For an effect of 0.5 sd, two-sided alpha 0.05 and power 80 %, every table of the t test gives
    # 34 pairs.
    few = Effect(0.5, 1 / np.sqrt(5), 4.0, 5)
    alone = count_to_settle(few, None, 0.05, 0.05)
    assert alone == pytest.approx(34, abs=1)
    assert count_to_settle(few, 0.6, 0.05, 0.05) == alone
    # Now the difference is 0 and the margin is 0.5 sd. Both one-sided tests have to reject, so each
    # may fail to reject in a tenth of the cases: (1.645 + 1.28)^2 / 0.25 = 34 by the normal
    # distribution, and slightly more by the t distribution.
    none = Effect(0.0, 1 / np.sqrt(5), 4.0, 5)
    assert count_to_settle(none, 0.5, 0.05, 0.05) == pytest.approx(36, abs=1)
    assert count_to_settle(none, None, 0.05, 0.05) is None


@pytest.mark.parametrize("count", [4, 8, 14])
def test_effects_of_the_detectable_size_are_found_with_the_stated_power(count: int) -> None:
    """Differences of the smallest detectable size are found with the stated power.

    Differences of half this size are found less than half as often.
    """
    level = 0.05 / 8
    size = shown_from_spreads(count, level)
    rng = np.random.default_rng(count)
    found = [
        np.mean(
            [paired_effect(rng.normal(true, 1.0, count)).p_different <= level for _ in range(400)]
        )
        for true in (size, size / 2)
    ]
    assert found[0] == pytest.approx(POWER, abs=0.12)
    assert found[1] < POWER / 2


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20))
@example([0.0, 5e-324])
def test_the_interval_of_nonnegative_values_is_nonnegative(values: list[float]) -> None:
    interval = positive_interval(values)
    if interval.low is None or interval.high is None:
        assert len(set(values)) == 1 or np.mean(values) == 0
        return
    assert 0 <= interval.low <= interval.estimate <= interval.high
    assert np.isfinite(interval.high)


def test_components_by_hand() -> None:
    # The mean square within networks is 2, with 2 degrees of freedom. The mean square between
    # networks is 16, with 1 degree of freedom. Each network has 2 runs, so the variance between
    # networks is (16 - 2) / 2 = 7.
    found = components([[1.0, 3.0], [5.0, 7.0]])
    within = known(found.within)
    assert within.estimate == pytest.approx(np.sqrt(2))
    assert within.low == pytest.approx(np.sqrt(4 / stats.chi2.ppf(0.975, 2)))
    assert known(found.between).estimate == pytest.approx(np.sqrt(7))
    # The means of the networks do not differ, so the estimate between networks is 0.
    assert components([[1.0, 3.0], [1.0, 3.0]]).between == Interval(0.0, 0.0, 0.0)
    assert components([[1.0, 2.0]]).between is None
    assert components([[1.0], [2.0]]).within is None
