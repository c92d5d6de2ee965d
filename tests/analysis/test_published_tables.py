"""Compare the statistics with published numbers, and name the source of each number.

Simultaneous bands (``inference.bands``) depend on the correlation along a curve, and no table for
them exists. Steps (``inference.change_points``) are searched by ``ruptures`` with our own penalty.
Other tests check the bands and the steps by simulation.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.inference import sequential
from analysis.inference.effects import paired_effect, welch_effect
from analysis.inference.intervals import t_interval
from analysis.inference.sequential import spending_levels
from analysis.measures.survival import CENSORED, EVENT, FAILURE, cumulative_incidence, kaplan_meier

# ----- repeated looks (interim analyses)

SPENDING = [
    # Kim-DeMets spending with exponent 2.2 (typeOfDesign "asKD"), one-sided alpha 0.03.
    ((0.3, 0.7, 1.0), 2.2, (0.0021222083, 0.012430014, 0.02421512)),
    # Kim-DeMets spending with exponent 1, which is Hwang-Shih-DeCani spending with gamma 0.
    ((0.2, 0.4, 1.0), 1.0, (0.006, 0.0076991188, 0.021278125)),
]
"""Information shares, exponent and stage levels: the expected values of rpact's own unit tests,
tests/testthat/test-f_design_group_sequential.R (designs x3 and x1), commit 1d81a55e of
github.com/rpact-com/rpact."""


@pytest.mark.parametrize(("fractions", "exponent", "levels"), SPENDING)
def test_levels_of_power_family_spending_are_rpacts(
    fractions: tuple[float, ...],
    exponent: float,
    levels: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On the default grid a level is too large by less than 1 %, and sequential.ALLOWANCE leaves a
    # margin of 10 %. With a finer grid the error is smaller.
    assert spending_levels(fractions, [0.03], np.power(fractions, exponent))[0] == pytest.approx(
        levels, rel=0.01
    )
    monkeypatch.setattr(sequential, "_GRID_STEPS_PER_SD", 40)
    assert spending_levels(fractions, [0.03], np.power(fractions, exponent))[0] == pytest.approx(
        levels, rel=5e-4
    )


SYMMETRIC = [
    (3, 1.0, 111.7, (109.9, 103.4, 81.2, 56.5)),
    (10, 2.0, 108.1, (106.6, 99.7, 76.2, 51.0)),
    (2, 3.0, 101.0, (100.7, 98.9, 89.5, 70.7)),
]
"""Number of looks, exponent, largest sample size, and mean sample sizes at 0, 0.5, 1 and 1.5 times
the effect. Sizes are in per cent of a fixed design's, for two-sided 5 % and power 80 %. They come
from the tables of Jennison and Turnbull (2000), Group Sequential Methods, which gsDesign's tests
repeat (test.JT.Power.symm in tests/testthat/test-base.R, commit 2a568884 of
github.com/keaven/gsDesign)."""


@pytest.mark.parametrize(("looks", "exponent", "largest", "means"), SYMMETRIC)
def test_sample_sizes_of_power_family_tests_are_jennison_and_turnbulls(
    looks: int, exponent: float, largest: float, means: tuple[float, ...]
) -> None:
    t = np.arange(1, looks + 1) / looks
    boundary = stats.norm.isf(spending_levels(list(t), [0.025], t**exponent)[0])
    full = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * np.sqrt(largest / 100)
    noise = np.random.default_rng(5).normal(size=(400_000, looks)).cumsum(axis=1) / np.sqrt(looks)
    for share, mean in zip((0.0, 0.5, 1.0, 1.5), means, strict=True):
        z = (noise + share * full * t) / np.sqrt(t)
        crossed = np.abs(z) >= boundary
        stop = np.where(crossed.any(axis=1), crossed.argmax(axis=1), looks - 1)
        # The tolerance is the rounding plus four standard errors of the simulation.
        assert largest * t[stop].mean() == pytest.approx(mean, abs=0.25)
        if share == 1.0:
            assert crossed.any(axis=1).mean() == pytest.approx(0.8, abs=0.004)


# ----- t tests

# Hours of sleep gained by ten patients with each of two drugs: Student (1908), The probable error
# of a mean, Biometrika 6(1). The expected results are those that R's t.test prints for its data set
# `sleep`.
FIRST_DRUG = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND_DRUG = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_paired_comparison_of_students_sleep_data() -> None:
    effect = paired_effect(np.subtract(FIRST_DRUG, SECOND_DRUG))
    assert effect.estimate / effect.standard_error == pytest.approx(-4.0621, abs=5e-5)
    assert effect.df == 9
    assert 2 * (1 - effect.t_above(0.0)) == pytest.approx(0.002833, abs=5e-7)
    interval = t_interval(np.subtract(FIRST_DRUG, SECOND_DRUG))
    bounds = (interval.low, interval.estimate, interval.high)
    assert bounds == pytest.approx((-2.4598858, -1.58, -0.7001142), abs=5e-8)


def test_welchs_comparison_of_students_sleep_data() -> None:
    effect = welch_effect(FIRST_DRUG, SECOND_DRUG)
    assert effect.estimate / effect.standard_error == pytest.approx(-1.8608, abs=5e-5)
    assert effect.df == pytest.approx(17.776, abs=5e-4)
    assert effect.p_different == pytest.approx(0.07939, abs=5e-6)
    interval = effect.interval()
    assert (interval.low, interval.high) == pytest.approx((-3.3654832, 0.2054832), abs=5e-8)


# ----- censored times


def kinds(text: str) -> list[int]:
    return [{"E": EVENT, "C": CENSORED, "F": FAILURE}[letter] for letter in text]


def test_cumulative_incidence_of_a_published_table() -> None:
    # Satagopan et al. (2004), A note on competing risks in survival data analysis, British J. of
    # Cancer 91(7), table 2: the first nine of 305 patients; the others were watched for longer.
    first = [7, 10, 14, 16, 18, 23, 24, 26, 27]
    times = [*first, *[1000.0] * (305 - len(first))]
    of = kinds("CECEFECFE") + [CENSORED] * (305 - len(first))
    incidence = cumulative_incidence(times, of)
    assert incidence.times_s.tolist() == [10, 16, 23, 27]
    # Only increments are compared, because the table adds up rounded values.
    increments = 100 * np.diff(incidence.probability, prepend=0.0)
    assert increments == pytest.approx([0.3, 0.3, 0.3, 0.3], abs=0.05)
    overall = kaplan_meier(times, np.where(np.asarray(of) == FAILURE, EVENT, of))
    survival = 100 * (1 - overall.at([10, 16, 18, 23, 26, 27]))
    assert survival == pytest.approx([99.7, 99.3, 99.0, 98.7, 98.3, 98.0], abs=0.05)
