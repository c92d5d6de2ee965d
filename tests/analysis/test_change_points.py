"""Steps in a history of nights (nightly runs) are found, and false ones are as rare as stated."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from analysis.inference.change_points import NIGHTS, find_steps, noise, noise_of_means, penalty


def search(values: NDArray[np.float64], false_steps: float = 0.05) -> list[int]:
    return [step.index for step in find_steps(values, 1.0, np.inf, false_steps)]


def test_a_step_is_found_where_it_is() -> None:
    values = np.random.default_rng(1).normal(size=60)
    values[40:] += 6.0
    (step,) = find_steps(values, 1.0, np.inf, 0.05)
    assert step.index == 40
    assert step.after - step.before == pytest.approx(6.0, abs=0.8)
    assert search(values[::-1]) == [20]


def test_a_step_below_the_penalty_is_not_found() -> None:
    """The values of n nights rise by d in the middle.

    A split at this step lowers the sum of squared deviations by n d^2 / 4. The step is found if
    this is more than the penalty.
    """
    n = 40
    edge = np.sqrt(4 * penalty(0.05) / n)
    for factor, found in ((0.99, []), (1.01, [20])):
        values = np.zeros(n)
        values[20:] = factor * edge
        assert search(values) == found


def test_penalty_spends_the_stated_rate() -> None:
    assert stats.chi2.sf(penalty(0.05), 1) == pytest.approx(0.05 / (6 * NIGHTS))
    assert penalty(0.05, 20) > penalty(0.05, 200) > penalty(0.05)
    assert penalty(0.05, 1e6) == pytest.approx(penalty(0.05), rel=1e-3)


def false_steps_over_a_year(rng: np.random.Generator, bound: float) -> bool:
    """Simulate a year of nightly results without a step, and return whether a search finds a step.

    There is a search after each night. It covers all nights so far, and looks for a single split
    that lowers the sum of squared deviations by more than ``bound``.
    """
    values = rng.normal(size=NIGHTS)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    n = np.arange(2, NIGHTS + 1)[:, None]
    k = np.arange(1, NIGHTS)[None, :]
    fall = (sums[k] - k / n * sums[n]) ** 2 * n / (k * np.maximum(n - k, 1))
    return bool(fall[k < n].max() > bound) if k.size else False


@pytest.mark.slow
def test_false_steps_of_a_year_of_looks() -> None:
    """The stated rate of years with a false step is 0.10. Three standard errors are 0.045."""
    rng = np.random.default_rng(7)
    false = sum(false_steps_over_a_year(rng, penalty(0.10)) for _ in range(400))
    assert false / 400 <= 0.145
    # A search that never finds a step passes the check above, but not this one.
    assert false / 400 >= 0.03


def test_noise_is_that_of_paired_networks() -> None:
    """The networks' values differ widely, and all of them have a step at the same night.

    Neither the differences between networks nor the step count as noise.
    """
    rng = np.random.default_rng(5)
    levels = rng.normal(0, 100, 8)
    nights = [
        {seed: float(levels[seed] + rng.normal() + (50 if night >= 30 else 0)) for seed in range(8)}
        for night in range(400)
    ]
    sd, df = noise(nights)
    assert sd == pytest.approx(1 / np.sqrt(8), rel=0.06)
    assert df == pytest.approx(399 * 7 / 1.5)


def test_noise_of_nights_with_one_run_comes_from_other_nights() -> None:
    """The noise comes from the changes between nights, because each night has only one run.

    A step of 88 standard deviations does not raise the estimate much, and is found.
    """
    values = np.random.default_rng(2).normal(size=365)
    values[200:] += 88.0
    nights = [{1: float(value)} for value in values]
    sd, df = noise_of_means(nights)
    assert sd == pytest.approx(1.0, rel=0.15)
    assert df == pytest.approx(0.55 * 364)
    assert [step.index for step in find_steps(values, sd, df, 0.05)] == [200]


def false_steps_of_varying_nights(seed: int, runs: int) -> bool:
    """Return whether a search after 20, 40, 80 or 120 nights finds a step, although there is none.

    The spread between nights is as large as the spread between the runs of one night.
    """
    rng = np.random.default_rng([seed, runs])
    own = rng.normal(size=(120, runs)) + rng.normal(size=(120, 1))
    nights = [{seed: float(x) for seed, x in enumerate(night)} for night in own]
    means = own.mean(axis=1)
    for length in (20, 40, 80, 120):
        sd, df = noise_of_means(nights[:length])
        if find_steps(means[:length], sd, df, 0.10):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 3, 10])
def test_nights_that_vary_as_much_as_runs_make_no_steps(runs: int) -> None:
    """The noise has to include the spread between nights.

    If the noise were estimated only from the spread within nights, the search would find a false
    step in most of these histories.
    """
    false = sum(false_steps_of_varying_nights(seed, runs) for seed in range(60))
    assert false / 60 <= 0.10 + 3 * np.sqrt(0.1 * 0.9 / 60)
