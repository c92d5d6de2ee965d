"""Grades and their rules, corrections, and data without information."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from analysis_synthetic import known
from hypothesis import given
from hypothesis import strategies as st

from analysis.inference.corrections import endpoint_weights
from analysis.judgement.verdicts import Grade, Sides, Verdict, decide
from analysis.measures.metric import Margin

FIVE = Margin(0.05)
BASE = [10.0, 20.0, 30.0, 15.0, 12.0, 18.0]


def decide_single(sides: Sides) -> Verdict:
    return decide([sides])[0]


def with_ratio(ratio: float, spread: float = 0.01, times: int = 1, **more: Any) -> Sides:
    """Return ``times`` as many pairs as there are in BASE. Lower values are better."""
    values = [b * ratio * (1 + spread * (-1) ** i) for i, b in enumerate(BASE)]
    return Sides(values * times, BASE * times, FIVE, "lower", **more)


def test_inside_the_margin_is_equivalent_even_if_different_from_zero() -> None:
    assert decide_single(with_ratio(1.0)).grade is Grade.SAME
    small = decide_single(with_ratio(1.02, 0.002))
    assert small.grade is Grade.SAME
    assert known(small.p_different) < 0.05
    assert small.reason == "a difference smaller than the margin"


def test_open_verdicts_state_the_number_of_further_networks() -> None:
    verdict = decide_single(with_ratio(1.02, 0.05))
    assert (verdict.grade, verdict.direction) == (Grade.OPEN, "")
    assert verdict.more == f"about {verdict.more_networks} more networks"
    more = round((6 + known(verdict.more_networks)) / 6)
    assert decide_single(with_ratio(1.02, 0.05, 2 * more)).settled
    repeats = decide_single(with_ratio(1.02, 0.05, replicate="repeat"))
    assert repeats.more == f"about {verdict.more_networks} more repeats"
    hopeless = decide_single(with_ratio(1.02, 0.2))
    assert (hopeless.more_networks, hopeless.more) == (None, "")
    assert hopeless.reason == "more networks would not settle it"


def test_an_own_interval_that_leaves_out_no_difference_is_a_suggestion() -> None:
    sides = with_ratio(1.2, 0.09)
    # Endpoints that cannot be tested count in the correction.
    verdict = decide([sides, *[Sides([None], [1.0], FIVE)] * 11])[0]
    assert (verdict.grade, verdict.direction) == (Grade.SUGGESTED, "worse")
    assert (verdict.word, verdict.settled) == ("suggested", False)
    assert known(verdict.effect).leaves_out(1.0)
    assert (verdict.agreeing, verdict.count) == (6, 6)
    assert decide_single(sides).grade is Grade.SHOWN


def test_the_first_endpoint_has_half_of_the_level_and_passes_it_on() -> None:
    family = [with_ratio(1.2, 0.07)] * 3
    equal = known(decide(family)[0].p_different)
    first, *others = (one.p_different for one in decide(family, weights=endpoint_weights(3)))
    assert first == pytest.approx(equal * 2 / 3)
    # The other two endpoints then share the whole error level equally. So their adjusted p-values
    # are twice the unadjusted ones, and equal the adjusted p-value of the first endpoint.
    assert others == [pytest.approx(first)] * 2
    assert endpoint_weights(1) == [1.0]


def test_a_relative_margin_with_a_zero_turns_to_differences() -> None:
    verdict = decide_single(Sides([10.0, 0.0, 9.0], [10.0, 0.0, 8.0], FIVE))
    assert verdict.scale == "difference"
    assert verdict.margin == pytest.approx(0.05 * 6)
    nothing = decide_single(Sides([1.0, 2.0], [0.0, 0.0], FIVE))
    assert (nothing.margin, nothing.p_equivalent) == (None, None)


@pytest.mark.parametrize(
    ("variant", "baseline", "reason"),
    [
        ([], [], "no common network"),
        ([1.0], [2.0], "one pair: no spread to judge by"),
        ([None, None], [1.0, 2.0], "2 of 2 pairs lack a value"),
        ([math.inf, 1.0], [1.0, 2.0], "1 of 2 pairs lack a value"),
    ],
)
def test_uninformative_data(variant: Any, baseline: Any, reason: str) -> None:
    verdict = decide_single(Sides(variant, baseline, FIVE, "lower"))
    assert verdict.grade is Grade.OPEN
    assert (verdict.reason, verdict.more_networks) == (reason, None)
    assert (verdict.p_different, verdict.p_equivalent, verdict.direction) == (None, None, "")
    assert (verdict.effect is not None) == (reason.startswith("one pair"))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_margin_is_positive(bad: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        Margin(bad)


CELL = st.one_of(
    st.none(),
    st.sampled_from([0.0, 1.0, 2.0, math.nan]),
    st.floats(-1e9, 1e9, allow_subnormal=False),
    st.floats(1e-9, 1e9),
)
FAMILY = st.lists(
    st.tuples(
        st.lists(st.tuples(CELL, CELL), max_size=6),
        st.booleans(),
        st.sampled_from(["lower", "higher", None]),
        st.sampled_from([0.0, 1e-6, 1.0]),
        st.booleans(),
    ),
    max_size=4,
)


@given(FAMILY)
def test_never_nan_and_always_a_grade(family: list[Any]) -> None:
    comparisons = []
    for pairs, relative, better, resolution, paired in family:
        one, other = [a for a, _ in pairs], [b for _, b in pairs]
        margin = Margin(0.05, relative)
        comparisons.append(Sides(one, other, margin, better, resolution, paired=paired))
    for verdict in decide(comparisons):
        numbers = [verdict.margin, verdict.p_different, verdict.p_equivalent]
        if verdict.effect is not None:
            numbers += [verdict.effect.estimate, verdict.effect.low, verdict.effect.high]
        assert all(number is None or math.isfinite(number) for number in numbers)
        assert verdict.settled or verdict.reason or verdict.more_networks
        if verdict.direction:
            assert verdict.grade in (Grade.SHOWN, Grade.SUGGESTED)


def test_metrics_that_are_equivalent_are_still_open_as_to_a_difference() -> None:
    """Holm's correction is separate for differences and for equivalence.

    So the equivalence of the other metrics does not change how many more networks `it` needs.
    """
    open_one = Sides(1.0 + np.tile([0.105, -0.035], 10), np.ones(20), FIVE, "lower", 1e-6)
    alike = Sides(1.0 + np.tile([1e-4, -1e-4], 10), np.ones(20), FIVE, "lower", 1e-6)
    it, *others = decide([open_one, *[alike] * 7])
    assert [one.grade for one in others] == [Grade.SAME] * 7
    assert it.grade is Grade.OPEN
    lost = Sides([None], [1.0], FIVE)
    assert it.more_networks == decide([open_one, *[lost] * 7])[0].more_networks
