"""The rules that find runs which cannot answer a claim, and runs that just fail to meet a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from analysis_synthetic import known
from test_claims import answer, claim

from analysis.judgement.claims.claim import Answer, Obstacle
from analysis.judgement.estimates import Statistics
from analysis.measures.contention import Contention, CrowdingOut
from analysis.measures.metric import Statistic

SEEDS = range(1, 6)
FEW, BOTH = ("few",), ("many", "few")
Fates = Mapping[str, tuple[str, ...]]
Runs = dict[tuple[str, str, int], Contention]


def make_statistics(metric: str, values: Mapping[tuple[str, str], Sequence[float]]) -> Statistics:
    statistics: Statistics = {}
    for (level, variant), of_seeds in values.items():
        of_class = statistics.setdefault((level, "all"), {})
        of_class[metric, variant] = {
            seed: Statistic(value) for seed, value in zip(SEEDS, of_seeds, strict=False)
        }
        of_class["streams_started", variant] = {seed: Statistic(100.0) for seed in SEEDS}
    return statistics


# ----- a rate of 0% or 100% in all runs


@pytest.mark.parametrize("bound", [0.0, 1.0])
def test_a_rate_at_a_bound_in_every_run_tests_nothing(bound: float) -> None:
    one = [bound] * 5
    of = make_statistics("timeout_rate", {("few", "a"): one, ("few", "b"): one})
    found = answer(claim("lowest", "a b", FEW, "timeout_rate"), of, {})
    assert found.answer is Answer.UNTESTABLE
    assert known(found.deciding.untestable).obstacle is Obstacle.AT_A_BOUND
    assert found.more_networks is None


# ----- the same streams time out under both variants

TIMED_OUT: Fates = {"bulk1": ("timeout", "timeout", "open"), "bulk2": ("success", "timeout")}
NONE: Fates = {"bulk1": ("success", "success", "open"), "bulk2": ("success",)}
RATES = {"a": [0.1, 0.11, 0.1, 0.12, 0.1], "b": [0.1, 0.12, 0.09, 0.12, 0.1]}


def fates(level: str, **of_variants: Sequence[Fates]) -> Runs:
    return {
        (level, variant, seed): Contention({"all": of_seed}, None)
        for variant, of_seeds in of_variants.items()
        for seed, of_seed in zip(SEEDS, of_seeds, strict=True)
    }


SAME = fates("few", a=[TIMED_OUT, *[NONE] * 4], b=[TIMED_OUT, *[NONE] * 4])


def rates(*levels: str) -> Statistics:
    return make_statistics(
        "timeout_rate", {(level, v): RATES[v] for level in levels for v in RATES}
    )


@pytest.mark.parametrize("direction", ["lowest", "alike"])
def test_the_same_streams_fail_under_every_variant(direction: str) -> None:
    found = answer(claim(direction, "a b", FEW, "timeout_rate"), rates("few"), SAME)
    assert found.answer is Answer.UNTESTABLE
    assert found.deciding.reason == (
        "the same streams time out under both variants at few: 3 streams of 2 clients in 5 "
        "networks, by client and order of start"
    )
    # The measured effect is still reported.
    assert found.deciding.effect is not None


@pytest.mark.parametrize(
    "other",
    [
        {**TIMED_OUT, "bulk2": ("success", "success")},  # one timeout fewer
        {**TIMED_OUT, "bulk3": ("timeout",)},  # one timeout more
        # another client's timeout
        {"bulk1": ("timeout", "timeout", "open"), "bulk3": ("success", "timeout")},
        # the same number of timeouts, but of another stream
        {**TIMED_OUT, "bulk2": ("timeout", "success")},
    ],
)
def test_one_stream_that_differs_is_for_the_tests(other: Fates) -> None:
    contention = fates("few", a=[TIMED_OUT, *[NONE] * 4], b=[other, *[NONE] * 4])
    found = answer(claim("lowest", "a b", FEW, "timeout_rate"), rates("few"), contention)
    assert found.answer is not Answer.UNTESTABLE


def test_a_run_that_nothing_is_known_of_is_for_the_tests() -> None:
    contention = {key: run for key, run in SAME.items() if key != ("few", "b", 4)}
    found = answer(claim("lowest", "a b", FEW, "timeout_rate"), rates("few"), contention)
    assert found.answer is not Answer.UNTESTABLE


DIFFER = fates("many", a=[TIMED_OUT] * 5, b=[NONE] * 5)
SAME_BEFORE = {("many", variant, seed): run for (_, variant, seed), run in SAME.items()}
DIFFER_AFTER = {("few", variant, seed): run for (_, variant, seed), run in DIFFER.items()}


@pytest.mark.parametrize(
    ("direction", "contention", "level"),
    [
        ("falls-against", {**DIFFER, **SAME}, "few"),
        ("rises-against", {**DIFFER, **SAME}, "few"),
        ("converges", {**DIFFER, **SAME}, "few"),
        ("converges", {**SAME_BEFORE, **DIFFER_AFTER}, "many"),
    ],
)
def test_a_gap_that_cannot_be_tests_nothing(direction: str, contention: Runs, level: str) -> None:
    one = claim(direction, "a b", BOTH, "timeout_rate")
    found = answer(one, rates("many", "few"), contention)
    assert found.answer is Answer.UNTESTABLE
    assert f"at {level}" in found.deciding.reason


def test_a_gap_may_open_from_a_level_where_the_same_streams_fail() -> None:
    of = make_statistics(
        "timeout_rate",
        {
            **dict.fromkeys([("many", "a"), ("many", "b"), ("few", "a")], RATES["a"]),
            ("few", "b"): [0.3, 0.31, 0.32, 0.3, 0.31],
        },
    )  # fmt: skip
    contention = {**SAME_BEFORE, **DIFFER_AFTER}
    falls, rises = (claim(f"{d}-against", "a b", BOTH, "timeout_rate") for d in ("falls", "rises"))
    assert answer(falls, of, contention).answer is Answer.SUPPORTED
    assert answer(rises, of, contention).answer is Answer.OPPOSITE


# ----- saturation

THROUGHPUT = "goodput_bytes_per_s"
ALL_LOST = [1.0, 1.02, 0.95, 1.02, 1.03]
CARRIED = {"a": [8.2e5, 8.1e5, 7.9e5, 7.5e5, 7.9e5], "b": [8.21e5, 8.08e5, 7.93e5, 7.48e5, 7.91e5]}


def lost(**of_variants: Sequence[float]) -> Runs:
    return {
        ("few", variant, seed): Contention({}, CrowdingOut("bulk", share))
        for variant, shares in of_variants.items()
        for seed, share in zip(SEEDS, shares, strict=False)
    }


def carried(**other: Sequence[float]) -> Statistics:
    values = {("few", variant): of_seeds for variant, of_seeds in {**CARRIED, **other}.items()}
    return make_statistics(THROUGHPUT, values)


def times(factors: Sequence[float]) -> list[float]:
    """Return the throughput of variant a on each network, multiplied by these factors."""
    return [value * factor for value, factor in zip(CARRIED["a"], factors, strict=True)]


MORE = [1.1, 1.12, 1.09, 1.1, 1.11]
FULL = lost(a=ALL_LOST, b=ALL_LOST)


@pytest.mark.parametrize("direction", ["lowest", "highest", "alike"])
def test_a_saturated_network_carries_the_same(direction: str) -> None:
    found = answer(claim(direction, "a b", FEW, THROUGHPUT), carried(), FULL)
    assert found.answer is Answer.UNTESTABLE
    assert found.deciding.reason == (
        "throughput is saturated at few: clients get 0.748 to 0.821 MB/s; for each extra byte "
        "of others, bulk clients lose 1.00 (a) and 1.00 (b)"
    )


def shift_lost(mean: float) -> list[float]:
    return [share + mean - float(np.mean(ALL_LOST)) for share in ALL_LOST]


@pytest.mark.parametrize(
    ("mean", "margin", "saturated"),
    [(0.951, None, True), (0.949, None, False), (0.899, 0.10, False), (0.97, 0.02, False)],
)
def test_all_is_lost_but_for_the_margin(mean: float, margin: float | None, saturated: bool) -> None:
    shifted = shift_lost(mean)
    one = claim("lowest", "a b", FEW, THROUGHPUT, margin)
    for contention in (lost(a=shifted, b=ALL_LOST), lost(a=ALL_LOST, b=shifted)):
        assert (answer(one, carried(), contention).answer is Answer.UNTESTABLE) == saturated


def test_a_difference_that_may_be_large_is_one() -> None:
    fewer = times(MORE)
    found = answer(claim("lowest", "a b", FEW, THROUGHPUT), carried(b=fewer), FULL)
    assert found.answer is Answer.SUPPORTED
    assert found.deciding.untestable is None
    found = answer(claim("highest", "a b", FEW, THROUGHPUT), carried(b=fewer), FULL)
    assert found.answer is Answer.OPPOSITE


def test_where_nothing_is_known_of_the_loss_the_tests_answer() -> None:
    for contention in (
        {key: run for key, run in FULL.items() if key != ("few", "a", 2)},
        {**FULL, ("few", "a", 2): Contention({}, None)},
        {**FULL, ("few", "a", 2): Contention({}, CrowdingOut("web", 1.0))},
    ):
        found = answer(claim("lowest", "a b", FEW, THROUGHPUT), carried(), contention)
        assert found.answer is Answer.NO_DIFFERENCE


def test_the_share_of_one_class_can_differ_in_a_saturated_network() -> None:
    of = {("few", "bulk"): carried()["few", "all"]}
    one = replace(claim("lowest", "a b", FEW, THROUGHPUT), class_name="bulk")
    assert answer(one, of, FULL).answer is Answer.NO_DIFFERENCE


# ----- claims of several parts


def test_failed_parts_refute_and_untestable_parts_prevent_support() -> None:
    contention = {**FULL, **lost(c=ALL_LOST)}
    one = claim("highest", "a b c", FEW, THROUGHPUT)
    less = times([0.9, 0.91, 0.9, 0.89, 0.9])
    found = answer(one, carried(c=less), contention)
    assert [part.answer for part in found.parts] == [Answer.UNTESTABLE, Answer.SUPPORTED]
    assert (found.answer, found.deciding.text) == (Answer.UNTESTABLE, "few: a above b")
    assert answer(one, carried(c=times(MORE)), contention).answer is Answer.OPPOSITE
    open_one = times([0.6, 1.7, 0.8, 1.4, 0.9])
    found = answer(one, carried(c=open_one), {**FULL, **lost(c=shift_lost(0.5))})
    assert [part.answer for part in found.parts] == [Answer.UNTESTABLE, Answer.OPEN]
    assert (found.answer, found.more_networks) == (Answer.UNTESTABLE, None)
