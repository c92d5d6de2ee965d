"""Repeated looks: boundaries against the multivariate normal, error rates by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.formats.study import Looks, PlannedLooks
from analysis.inference.effects import paired_effect
from analysis.inference.sequential import (
    ALLOWANCE,
    FIRST_LOOK,
    nominal_levels,
    schedule,
    sequential_p,
    spending,
    spending_levels,
)
from analysis.judgement.verdicts import Grade, Paired, Unpaired, decide
from analysis.measures.metric import Margin


def crossing(levels: np.ndarray, fractions: list[float]) -> float:
    """Chance that a Brownian motion crosses any of the boundaries, from SciPy."""
    t = np.array(fractions)
    covariance = np.minimum.outer(t, t) / np.sqrt(np.outer(t, t))
    z = stats.norm.isf(levels)
    return float(1 - stats.multivariate_normal.cdf(z, np.zeros(t.size), covariance))


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_the_error_rate_is_spent_as_planned(power: float) -> None:
    fractions = [0.2, 0.5, 0.7, 1.0]
    levels = nominal_levels(fractions, [0.025], power)[0]
    for used in range(1, 5):
        spent = crossing(levels[:used], fractions[:used])
        assert spent == pytest.approx(0.025 * fractions[used - 1] ** power, rel=0.02)


def test_one_look_is_the_plain_test() -> None:
    assert nominal_levels([1.0], [0.025])[0, 0] == pytest.approx(0.025, rel=0.01)
    # A plan spends 0.8 of the rate, and of that 0.9, so the p-value grows by 1 / 0.72.
    one = spending([((10,), 10)])
    assert sequential_p([0.01], one) == pytest.approx(0.01 / 0.72, rel=0.02)


@given(st.integers(FIRST_LOOK, 60), st.lists(st.floats(1e-12, 1), min_size=1, max_size=8))
@settings(max_examples=15)
def test_a_sequential_p_value_falls_with_more_looks(budget: int, p: list[float]) -> None:
    sizes = schedule(budget)
    looks = Looks(sizes[: len(p)], budget)
    p = p[: len(looks.sizes)]
    plans = [spending([(looks.sizes[: k + 1], budget)]) for k in range(len(p))]
    values = [sequential_p(p[: k + 1], plan) for k, plan in enumerate(plans)]
    # But for the last digits.
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(values))
    # To look more than once costs something.
    assert all(
        value >= min(0.999 * min(p[: k + 1]), 1.0) or value == pytest.approx(1e-7)
        for k, value in enumerate(values)
    )


@given(st.integers(FIRST_LOOK, 500))
def test_the_schedule_ends_at_the_budget(budget: int) -> None:
    sizes = schedule(budget)
    assert (sizes[0], sizes[-1]) == (FIRST_LOOK, budget)
    assert all(a < b for a, b in itertools.pairwise(sizes))


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="budget must be at least 3 seeds, got 2"):
        schedule(2)
    for sizes, budget in (((), 5), ((3, 3), 5), ((3, 6), 5), ((0, 2), 5)):
        with pytest.raises(ValueError, match="looks must increase"):
            Looks(sizes, budget)
    sides = Unpaired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], Margin(0.05))
    with pytest.raises(ValueError, match="paired"):
        decide({"it": sides}, looks=Looks((3,), 5))


def test_repeated_looks_keep_the_error_rate_and_plain_tests_do_not() -> None:
    rng = np.random.default_rng(11)
    sizes = schedule(12)
    levels = nominal_levels(Looks(sizes, 12).fractions, [0.025 * ALLOWANCE])[0]
    false = naive = 0
    for _ in range(2000):
        x = rng.normal(size=12)
        p = np.array([paired_effect(x[:n]).p_above(0.0) for n in sizes])
        smaller = np.minimum(p, 1 - p)
        false += int(np.any(smaller <= levels))
        naive += int(np.any(smaller <= 0.025))
    assert false / 2000 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert naive / 2000 > 0.12


def test_a_look_at_one_pair_is_none() -> None:
    """Whoever runs one seed and then more gets the verdicts of more, as if at once."""
    rng = np.random.default_rng(3)
    base = rng.lognormal(0, 0.5, 5)
    sides = {"it": Paired(1.2 * base * np.exp(rng.normal(0, 0.02, 5)), base, Margin(0.05))}
    one, two = PlannedLooks((1,), 1), PlannedLooks((2,), 2)
    assert Looks((5,), 5, (one,)).plans == Looks((5,), 5).plans
    assert decide(sides, looks=Looks((5,), 5, (one,))) == decide(sides, looks=Looks((5,), 5))
    assert decide(sides, looks=Looks((5,), 5, (one, two)))["it"].settled
    # Nor is one at more than these runs: of a part of a study, say.
    assert Looks((5,), 5, (PlannedLooks((8,), 8),)).plans == Looks((5,), 5).plans


def test_verdicts_over_looks() -> None:
    rng = np.random.default_rng(3)
    base = rng.lognormal(0, 0.5, 8)
    noisy = np.exp(rng.normal(0, 0.02, 8))
    looks = Looks((3, 4, 5, 6, 7, 8), 12)
    worse = decide({"it": Paired(1.2 * base * noisy, base, Margin(0.05), "lower")}, looks=looks)
    assert (worse["it"].grade, worse["it"].direction) == (Grade.SHOWN, "worse")
    same = decide({"it": Paired(base * noisy**0.5, base, Margin(0.05))}, looks=looks)
    assert same["it"].grade is Grade.SAME
    fixed = decide({"it": Paired(1.2 * base * noisy, base, Margin(0.05))})
    assert (fixed["it"].p_different or 0) < (worse["it"].p_different or 0)
    few = decide({"it": Paired(base[:4], base[:4], Margin(0.05))}, looks=looks)
    assert few["it"].reason == "4 pairs, fewer than the 8 looked at"


def test_a_raised_budget_spends_what_the_first_has_left() -> None:
    first, then = (tuple(schedule(10)), 10), ((12, 15, 20), 20)
    both = spending([first, then])
    assert both.sizes == (*schedule(10), 12, 15, 20)
    assert both.spent[len(first[0]) - 1] == pytest.approx(0.8)
    assert both.spent[-1] == pytest.approx(0.96)
    assert both.excess == 1.0
    times = [size / 20 for size in both.sizes]
    levels = spending_levels(times, [0.025], both.spent)[0]
    assert crossing(levels, times) == pytest.approx(0.025 * 0.96, rel=0.03)


def test_seeds_added_to_a_fixed_number_exceed_the_rate_and_say_by_how_much() -> None:
    plans = [((5,), 5), ((8,), 8), ((20,), 20)]
    assert spending(plans[:2]).spent == pytest.approx((1.0, 1.16))
    assert spending(plans).excess == pytest.approx(1.192)
    many = [((n,), n) for n in range(3, 40)]
    assert spending(many).excess <= 1.2
    # Fewer seeds again, or the same ones, are nothing new.
    assert spending([*plans, ((5,), 5)]).sizes == (5, 8, 20)
    assert spending(plans).up_to(10).sizes == (5, 8)
    with pytest.raises(ValueError, match="every plan needs at least one look"):
        spending([])


def test_looks_at_growing_seeds_keep_their_level() -> None:
    """A/A with 10, then 20, then 40 seeds: 13.8% without a memory (5, 10, 20 and 40 seeds)."""
    rng = np.random.default_rng(8)
    earlier: list[PlannedLooks] = []
    plans = []
    for n in (5, 10, 20, 40):
        plans.append(Looks((n,), n, tuple(earlier)))
        earlier.append(PlannedLooks((n,), n))
    false = 0
    for _ in range(400):
        base = rng.lognormal(0, 0.3, 40)
        own = base * np.exp(rng.normal(0, 0.3, 40))
        false += any(
            decide(
                {"it": Paired(own[:n], base[:n], Margin(0.05))},
                looks=looks if looks.earlier else None,
            )["it"].grade
            is Grade.SHOWN
            for looks in plans
            for n in looks.sizes
        )
    assert false / 400 < 0.06 + 3 * np.sqrt(0.06 * 0.94 / 400)
