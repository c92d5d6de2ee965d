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
    return decide({"it": sides})["it"]


def values_with_ratio(ratio: float, spread: float = 0.01) -> list[float]:
    return [b * ratio * (1 + spread * (-1) ** i) for i, b in enumerate(BASE)]


def test_inside_the_margin_is_equivalent_even_if_different_from_zero() -> None:
    assert decide_single(Sides(values_with_ratio(1.0), BASE, FIVE)).grade is Grade.SAME
    small = decide_single(Sides(values_with_ratio(1.02, 0.002), BASE, FIVE))
    assert small.grade is Grade.SAME
    assert known(small.p_different) < 0.05
    assert small.reason == "a difference smaller than the margin"


def test_open_verdicts_state_the_number_of_further_networks() -> None:
    verdict = decide_single(Sides(values_with_ratio(1.02, 0.05), BASE, FIVE, "lower"))
    assert (verdict.grade, verdict.direction) == (Grade.OPEN, "")
    assert verdict.more == f"about {verdict.more_networks} more networks"
    more = round((6 + known(verdict.more_networks)) / 6)
    settled = decide_single(
        Sides(values_with_ratio(1.02, 0.05) * 2 * more, BASE * 2 * more, FIVE, "lower")
    )
    assert settled.settled
    repeats = decide_single(
        Sides(values_with_ratio(1.02, 0.05), BASE, FIVE, "lower", replicate="repeat")
    )
    assert repeats.more == f"about {verdict.more_networks} more repeats"
    hopeless = decide_single(Sides(values_with_ratio(1.02, 0.2), BASE, FIVE, "lower"))
    assert (hopeless.more_networks, hopeless.more) == (None, "")
    assert hopeless.reason == "more networks would not settle it"


def test_an_own_interval_that_leaves_out_no_difference_is_a_suggestion() -> None:
    sides = Sides(values_with_ratio(1.2, 0.09), BASE, FIVE, "lower")
    # Endpoints that cannot be tested count in the correction.
    beside: dict[str, Sides] = {f"other {i}": Sides([None], [1.0], FIVE) for i in range(11)}
    verdict = decide({"it": sides, **beside})["it"]
    assert (verdict.grade, verdict.direction) == (Grade.SUGGESTED, "worse")
    assert (verdict.word, verdict.settled) == ("suggested", False)
    assert known(verdict.effect).leaves_out(1.0)
    assert (verdict.agreeing, verdict.count) == (6, 6)
    assert decide_single(sides).grade is Grade.SHOWN


def test_the_first_endpoint_has_half_of_the_level_and_passes_it_on() -> None:
    family: dict[str, Sides] = {
        name: Sides(values_with_ratio(1.2, 0.07), BASE, FIVE)
        for name in ("first", "second", "third")
    }
    equal = known(decide(family)["first"].p_different)
    found = decide(family, weights=endpoint_weights(3))
    p = known(found["first"].p_different)
    assert p == pytest.approx(equal * 2 / 3)
    # The other two endpoints then share the whole error level equally. So their adjusted p-values
    # are twice the unadjusted ones, and equal the adjusted p-value of the first endpoint.
    assert found["second"].p_different == found["third"].p_different == pytest.approx(p)
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


def test_the_family_is_corrected_for() -> None:
    rng = np.random.default_rng(5)
    sides = Sides(1.0 + rng.normal(0.06, 0.05, 8), np.ones(8), Margin(0.001), "lower")
    assert decide_single(sides).grade is Grade.SHOWN
    p = known(decide_single(sides).p_different)
    many: dict[str, Sides] = {
        f"other {i}": Sides([1.0, 1.2, 0.8], [1.0] * 3, FIVE) for i in range(int(0.05 / p) + 1)
    }
    assert decide({"it": sides, **many})["it"].grade is Grade.SUGGESTED


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="same length"):
        Sides([1.0], [], FIVE)
    with pytest.raises(ValueError, match="same name"):
        decide([("a", Sides([], [], FIVE)), ("a", Sides([], [], FIVE))])
    with pytest.raises(ValueError, match="level"):
        decide({}, 0.0)
    for bad in (0.0, -1.0, math.nan, math.inf):
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
    comparisons: dict[str, Sides] = {}
    for i, (pairs, relative, better, resolution, paired) in enumerate(family):
        one, other = [a for a, _ in pairs], [b for _, b in pairs]
        comparisons[str(i)] = Sides(
            one, other, Margin(0.05, relative), better, resolution, paired=paired
        )
    for verdict in decide(comparisons).values():
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
    alike = {
        f"alike {n}": Sides(1.0 + np.tile([1e-4, -1e-4], 10), np.ones(20), FIVE, "lower", 1e-6)
        for n in range(7)
    }
    beside = decide({"it": open_one, **alike})
    assert [beside[name].grade for name in alike] == [Grade.SAME] * 7
    assert beside["it"].grade is Grade.OPEN
    lost = {name: Sides([None], [1.0], FIVE) for name in alike}
    assert beside["it"].more_networks == decide({"it": open_one, **lost})["it"].more_networks
