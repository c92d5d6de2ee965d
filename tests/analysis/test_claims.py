"""Answers to claims about runs with known differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from analysis_synthetic import known
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.judgement.claims.answers import answer_claims
from analysis.judgement.claims.claim import Answer, Claim, ClaimResult, Labels
from analysis.judgement.claims.directions import DIRECTIONS
from analysis.judgement.estimates import Statistics
from analysis.judgement.verdicts import Grade
from analysis.measures.contention import Contention
from analysis.measures.metric import Statistic

LEVELS = ("20mid", "10mid", "5mid")
Means = Mapping[tuple[str, str], float]


def runs(
    means: Means, metric: str = "ttfb_p50_s", *, seeds: int = 8, noise: float = 0.005
) -> Statistics:
    """Return the statistics of runs with these means.

    Times differ far more between networks than between variants and levels. Rates differ between
    networks only by ``noise``, a standard deviation.

    means: (level, variant) -> mean of the metric.
    """
    rng = np.random.default_rng(5)
    network = rng.lognormal(0.0, 0.4, seeds)
    rates = metric.endswith("_rate")
    statistics: Statistics = {}
    for (level, variant), mean in means.items():
        values = mean + noise * rng.normal(size=seeds) if rates else mean * network
        if not rates:
            values = values * np.exp(noise * rng.normal(size=seeds))
        class_name = "all" if rates else "web"
        of_class = statistics.setdefault((level, class_name), {})
        of_class[metric, variant] = {
            seed + 1: Statistic(float(value)) for seed, value in enumerate(values)
        }
        of_class["streams_started", variant] = {
            seed + 1: Statistic(1000.0) for seed in range(seeds)
        }
    return statistics


def claim(
    direction: str,
    variants: str,
    levels: tuple[str, ...] = ("5mid",),
    metric: str = "ttfb_p50_s",
    margin: float | None = None,
    value: float | None = None,
) -> Claim:
    class_name = "all" if metric.endswith(("_rate", "per_s")) else "web"
    names = tuple(variants.split())
    if value is None and DIRECTIONS[direction].takes_value:
        value = 1.0
    return Claim(
        "it", "It.", "5", (10,), (metric,), class_name, levels, names, direction, margin, value
    )


def answer(
    one: Claim, statistics: Statistics, contention: Mapping[Any, Contention] = {}
) -> ClaimResult:
    (answered,) = answer_claims([one], statistics, contention=contention)
    return answered


def runs_at_5mid(**means: float) -> Statistics:
    return runs({("5mid", name): mean for name, mean in means.items()})


@pytest.mark.parametrize(
    ("direction", "a", "b", "c", "expected"),
    [
        ("lowest", 1.0, 1.2, 1.3, "supported"),
        ("lowest", 1.2, 1.0, 1.3, "opposite"),
        ("lowest", 1.0, 1.002, 1.3, "no relevant difference"),
        ("highest", 1.3, 1.0, 1.2, "supported"),
        ("highest", 1.2, 1.0, 1.3, "opposite"),
        ("ascending", 1.0, 1.2, 1.4, "supported"),
        ("ascending", 1.0, 1.4, 1.2, "opposite"),
        ("descending", 1.4, 1.2, 1.0, "supported"),
        ("descending", 1.0, 1.2, 1.4, "opposite"),
        ("alike", 1.0, 1.005, 0.995, "supported"),
        ("alike", 1.0, 1.005, 1.2, "opposite"),
    ],
)
def test_at_one_level(direction: str, a: float, b: float, c: float, expected: str) -> None:
    answered = answer(claim(direction, "a b c"), runs_at_5mid(a=a, b=b, c=c))
    assert answered.answer == expected
    assert answered.seeds == 8
    assert answered.deciding.answer is answered.answer
    assert known(answered.deciding.effect).low is not None


@pytest.mark.parametrize(
    ("direction", "mean", "noise", "value", "expected"),
    [
        ("below", 0.8, 0.02, 1.0, "supported"),
        ("below", 1.2, 0.02, 1.0, "opposite"),
        ("below", 1.0, 0.5, 1.0, "open"),
        # A difference smaller than the margin is not "below".
        ("below", 0.999, 0.01, 1.0, "no relevant difference"),
        ("above", 1.2, 0.02, 1.0, "supported"),
        ("above", 0.8, 0.02, 1.0, "opposite"),
        ("about", 3.25, 0.02, 3.2, "supported"),
        ("about", 2.0, 0.02, 3.2, "opposite"),
        ("about", 3.2, 0.5, 3.2, "open"),
        # The values have no variance, as if runs were deterministic.
        ("about", 3.2, 0.0, 3.2, "supported"),
        ("below", 0.8, 0.0, 1.0, "supported"),
    ],
)
def test_against_a_value(
    direction: str, mean: float, noise: float, value: float, expected: str
) -> None:
    values = mean * (1 + noise * np.array([-1.0, 1.0, -0.5, 0.5, -0.2, 0.2, -0.8, 0.8]))
    by_seed = {seed: Statistic(float(one)) for seed, one in enumerate(values)}
    statistics: Statistics = {("5mid", "web"): {("ttfb_p50_s", "a"): by_seed}}
    answered = answer(claim(direction, "a", value=value), statistics)
    assert answered.answer == expected
    assert answered.parts[0].text == f"5mid: a {direction} {value:g} s"


def test_a_share_that_is_always_the_whole_is_above_a_value() -> None:
    statistics = runs({("5mid", "a"): 1.0}, "timeout_rate", noise=0.0)
    above = claim("above", "a", metric="timeout_rate", value=0.5)
    answered = answer(above, statistics)
    assert answered.answer is Answer.SUPPORTED
    assert answered.parts[0].text == "5mid: a above 50%"


@pytest.mark.parametrize("variants", ["a b", "b a"])
def test_an_order_within_the_margin_is_not_a_relevant_difference(variants: str) -> None:
    statistics = runs({("5mid", "a"): 1.0, ("5mid", "b"): 1.02}, noise=0.001)
    (part,) = answer(claim("lowest", variants), statistics).parts
    assert known(part.p_different) < 0.05
    assert (part.answer, part.grade) == (Answer.NO_DIFFERENCE, Grade.SAME)
    # The same difference exceeds a margin of 1%.
    assert answer(claim("alike", variants, margin=0.01), statistics).answer is Answer.OPPOSITE


def test_trends() -> None:
    falling = {(level, v): m for v in "ab" for level, m in zip(LEVELS, (3, 2, 1), strict=True)}
    statistics = runs(falling)
    assert answer(claim("falls", "a b", LEVELS), statistics).answer is Answer.SUPPORTED
    assert answer(claim("rises", "a b", LEVELS), statistics).answer is Answer.OPPOSITE
    assert answer(claim("rises", "a b", LEVELS[::-1]), statistics).answer is Answer.SUPPORTED
    assert len(answer(claim("falls", "a b", LEVELS), statistics).parts) == 4
    bent = runs({**falling, ("5mid", "b"): 2.5})
    assert answer(claim("falls", "a b", LEVELS), bent).answer is Answer.OPPOSITE


ENDS = ("20mid", "5mid")


def gaps(before: float, after: float) -> Statistics:
    """Return statistics of variants a and b at two levels.

    ``before`` and ``after`` are the ratios a/b at the first and the second level. The values of b
    are three times as large at the second level.
    """
    first = {("20mid", "a"): before, ("20mid", "b"): 1.0}
    return runs(first | {("5mid", "a"): 3 * after, ("5mid", "b"): 3.0})


@pytest.mark.parametrize(
    ("before", "after", "converges", "rises", "falls"),
    [
        (1.4, 1.1, "supported", "opposite", "supported"),
        (1 / 1.4, 1 / 1.1, "supported", "supported", "opposite"),
        (1.1, 1.4, "opposite", "supported", "opposite"),
        # At the second level the other variant is slower. The gap is as large as before, or larger.
        (1.4, 1 / 1.4, "no relevant difference", "opposite", "supported"),
        (1.1, 1 / 1.4, "opposite", "opposite", "supported"),
        (1.2, 1.2, "no relevant difference", "no relevant difference", "no relevant difference"),
    ],
)
def test_changes_of_a_gap(
    before: float, after: float, converges: str, rises: str, falls: str
) -> None:
    statistics = gaps(before, after)
    assert answer(claim("converges", "a b", ENDS), statistics).answer == converges
    assert answer(claim("rises-against", "a b", ENDS), statistics).answer == rises
    assert answer(claim("falls-against", "a b", ENDS), statistics).answer == falls
    effect = answer(claim("converges", "a b", ENDS), statistics).deciding.effect
    assert known(effect).estimate == pytest.approx(after / before, rel=0.01)


def test_a_statement_of_two_tests_is_as_certain_as_the_less_certain_one() -> None:
    # The gap certainly changes, but it may be as large as before, with the other sign.
    means = {("20mid", "a"): 1.4, ("20mid", "b"): 1.0, ("5mid", "a"): 2.3, ("5mid", "b"): 3.0}
    statistics = runs(means, noise=0.15)
    answered = answer(claim("converges", "a b", ENDS), statistics)
    (part,) = answered.parts
    assert answered.answer is Answer.OPEN
    assert part.grade is Grade.OPEN
    assert known(part.p_different) > 0.05
    assert (
        answer(claim("falls-against", "a b", ENDS), runs(means, noise=0.15)).answer == "supported"
    )


def test_gaps_of_rates_are_differences() -> None:
    same = dict.fromkeys([("20mid", "a"), ("20mid", "b")], 0.05)
    means = same | {("5mid", "a"): 0.20, ("5mid", "b"): 0.30}
    statistics = runs(means, "timeout_rate", noise=0.002)
    answered = answer(claim("falls-against", "a b", ENDS, "timeout_rate"), statistics)
    assert answered.answer is Answer.SUPPORTED
    (part,) = answered.parts
    assert part.scale == "difference"
    assert known(part.effect).estimate == pytest.approx(-0.1, abs=0.01)
    answered = answer(claim("converges", "a b", ENDS, "timeout_rate"), statistics)
    assert answered.answer is Answer.OPPOSITE
    answered = answer(claim("converges", "a b", ENDS[::-1], "timeout_rate"), statistics)
    assert answered.answer is Answer.SUPPORTED


def test_missing_values_are_stated_in_the_answer() -> None:
    statistics = runs_at_5mid(a=1.0, b=1.2)
    labels = Labels({"5mid": "5 middles"}, {"c": "Round robin"})
    (answered,) = answer_claims([claim("lowest", "a b c")], statistics, labels=labels)
    assert answered.answer is Answer.OPEN
    assert answered.deciding.reason == "no runs of Round robin at 5 middles"
    assert answered.deciding.effect is None
    assert answered.more_networks is None
    # The other part is still answered. Its answer can contradict the claim.
    assert answered.parts[0].answer is Answer.SUPPORTED
    assert answer(claim("highest", "a b c"), statistics).answer is Answer.OPPOSITE

    of_class = statistics["5mid", "web"]
    of_class["ttfb_p50_s", "b"][3] = Statistic(None, "the curve ends at 40.0%")
    reason = answer(claim("lowest", "a b"), statistics).deciding.reason
    assert reason == "b at 5mid lacks a value in 1 of 8 networks: the curve ends at 40.0%"
    of_class["ttfb_p50_s", "b"] = {99: Statistic(1.0)}
    assert answer(claim("lowest", "a b"), statistics).deciding.reason == "no common network"


def test_one_network_gives_an_estimate_and_no_answer() -> None:
    for direction, levels in (("lowest", ("5mid",)), ("alike", ("5mid",)), ("converges", ENDS)):
        means = {(level, name): 1.5 if name == "a" else 1.0 for level in ENDS for name in "ab"}
        answered = answer(claim(direction, "a b", levels), runs(means, seeds=1))
        assert answered.answer is Answer.OPEN
        assert answered.deciding.reason == "one pair: no spread to judge by"
        assert known(answered.deciding.effect).low is None


def test_a_gap_has_no_ratio_where_a_value_is_zero() -> None:
    statistics = gaps(1.2, 1.0)
    for seed in statistics["5mid", "web"]["ttfb_p50_s", "b"]:
        statistics["5mid", "web"]["ttfb_p50_s", "b"][seed] = Statistic(0.0)
    answered = answer(claim("converges", "a b", ENDS), statistics)
    assert answered.deciding.reason == "no ratio: a value is zero"
    # A claim about an order needs no ratio, so it is still answered.
    assert answer(claim("lowest", "b a"), statistics).answer is Answer.SUPPORTED
    assert answer(claim("alike", "b a"), statistics).answer is not Answer.SUPPORTED


VALUES = st.one_of(st.none(), st.just(0.0), st.floats(1e-3, 1e3), st.just(1.0))


@settings(max_examples=150)
@given(
    st.lists(st.lists(VALUES, min_size=4, max_size=4), max_size=5),
    st.sampled_from(sorted(DIRECTIONS)),
    st.sampled_from(["ttfb_p50_s", "timeout_rate"]),
)
def test_any_runs_get_an_answer_without_a_nan(
    rows: list[list[float | None]], direction: str, metric: str
) -> None:
    places = [(level, name) for level in ENDS for name in "ab"]
    statistics: Statistics = {}
    class_name = "all" if metric == "timeout_rate" else "web"
    for seed, row in enumerate(rows):
        for (level, name), value in zip(places, row, strict=True):
            if value is not None and metric == "timeout_rate":
                value = value / 1e3
            of_class = statistics.setdefault((level, class_name), {})
            statistic = Statistic(value, "" if value is not None else "none")
            of_class.setdefault((metric, name), {})[seed] = statistic
    levels = ENDS[: DIRECTIONS[direction].min_levels]
    answered = answer(claim(direction, "a b", levels, metric), statistics)
    for part in answered.parts:
        if part.effect is not None:
            numbers = [part.effect.estimate, part.effect.low, part.effect.high]
            assert all(math.isfinite(n) for n in numbers if n is not None)
        tested = part.p_different is not None
        assert tested or part.answer in (Answer.OPEN, Answer.UNTESTABLE)
        assert (part.untestable is not None) == (part.answer is Answer.UNTESTABLE)
        assert part.answer is not Answer.OPEN or part.reason or part.more_networks


def test_a_suggestion_does_not_answer_a_claim() -> None:
    means = {("5mid", name): 1.0 if name == "a" else 1.06 for name in "abcdefgh"}
    answered = answer(claim("lowest", "a b c d e f g h"), runs(means, seeds=8, noise=0.04))
    suggested = [part for part in answered.parts if part.grade is Grade.SUGGESTED]
    assert suggested
    assert {part.answer for part in suggested} == {Answer.OPEN}
    assert all((part.agreeing or 0) > 4 for part in suggested)
