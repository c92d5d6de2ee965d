"""Estimates and verdicts from tables of statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from analysis_synthetic import changed_study, known, write_store

from analysis.formats.study import load_study
from analysis.judgement.estimates import (
    Statistics,
    against_baseline,
    complete,
    estimate,
    over_networks,
    read_statistics,
)
from analysis.judgement.judging import (
    Design,
    Judgement,
    judge_comparison,
    min_streams,
    usual_endpoints,
)
from analysis.judgement.verdicts import Grade
from analysis.measures.catalogue import METRICS
from analysis.measures.metric import Statistic
from analysis.pages.report import build
from analysis.pages.summary import summarise


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("store"))


def numbered(*values: float, first: int = 1) -> dict[int, Statistic]:
    """Return network -> statistic. The first network has the number ``first``."""
    return {seed: Statistic(float(value)) for seed, value in enumerate(values, first)}


def by_metric(judgements: list[Judgement]) -> dict[tuple[str, str], Judgement]:
    return {(j.class_name, j.metric.name): j for j in judgements}


def synthetic(ratio: float) -> Statistics:
    """Return statistics of ewma and rr on six networks, which differ far more than the variants.

    rr's median times to first byte are ``ratio`` times as long as ewma's, and its throughput is
    lower by this factor.
    """
    rng = np.random.default_rng(2)
    base = rng.lognormal(0, 0.5, 6)
    noise = np.exp(rng.normal(0, 0.01, 6))
    return {
        ("5mid", "web"): {
            ("ttfb_p50_s", "ewma"): numbered(*base),
            ("ttfb_p50_s", "rr"): numbered(*base * ratio * noise),
        },
        ("5mid", "all"): {
            ("goodput_bytes_per_s", "ewma"): numbered(*1e6 * base),
            ("goodput_bytes_per_s", "rr"): numbered(*1e6 * base / ratio * noise),
        },
    }


@pytest.mark.usefixtures("svg_only")
def test_a_study_is_judged_from_its_records_and_runs_csv_has_the_values(
    store: Path, tmp_path: Path
) -> None:
    statistics = read_statistics(load_study(store / "study.json"), store)
    build(changed_study(tmp_path, figures=[]), store, tmp_path / "out")
    table = pandas.read_csv(tmp_path / "out" / "runs.csv").set_index(
        ["level", "class", "metric", "variant"]
    )
    for (level, class_name), of_class in statistics.items():
        for (metric, variant), by_seed in of_class.items():
            rows = table.loc[[(level, class_name, metric, variant)]].set_index("seed")["value"]
            values = [np.nan if one.value is None else one.value for one in by_seed.values()]
            assert rows[list(by_seed)].tolist() == pytest.approx(values, rel=1e-8, nan_ok=True)
    # With three networks, little is shown at the default error level, so this test uses a higher
    # one.
    design = Design(error_level=0.3)
    judged = judge_comparison("5mid", statistics, "rr", "ewma", design)
    assert [(j.endpoint, j.class_name, j.metric.name) for j in judged[:4]] == [
        (0, "web", "time_to_320kib_p50_s"),
        (1, "web", "ttfb_p50_s"),
        (2, "all", "goodput_bytes_per_s"),
        (3, "all", "timeout_rate"),
    ]
    others = [j for j in judged if j.endpoint is None]
    assert {j.verdict.grade for j in others} == {None}
    found = by_metric(others)
    assert {("web", "jain_index_clients"), ("web", "ttfb_p99_s")} <= set(found)
    # rr's times are 15 % longer than ewma's times in all networks.
    assert judged[1].verdict.grade is Grade.SHOWN
    assert judged[1].regression


def test_the_default_endpoints_exist_in_the_baseline() -> None:
    table = synthetic(1.2)
    both = [("web", "ttfb_p50_s"), ("all", "goodput_bytes_per_s")]
    assert usual_endpoints("5mid", table, "ewma") == both
    # If several classes have a metric, the class web is chosen. If web lacks the metric, the first
    # class by name is chosen.
    for name in ("bulk", "alone"):
        table["5mid", name] = {
            (metric, variant): by_seed
            for metric in ("ttfb_p50_s", "time_to_last_byte_p50_s")
            for (_, variant), by_seed in table["5mid", "web"].items()
        }
    assert usual_endpoints("5mid", table, "ewma") == [
        ("alone", "time_to_last_byte_p50_s"), *both,
    ]  # fmt: skip
    del table["5mid", "web"]
    assert usual_endpoints("5mid", table, "ewma")[1] == ("alone", "ttfb_p50_s")
    # The choice depends only on the baseline, not on the variant.
    table["5mid", "alone"]["time_to_320kib_p50_s", "rr"] = {1: Statistic(1.0)}
    assert usual_endpoints("5mid", table, "ewma")[0] == ("alone", "time_to_last_byte_p50_s")


def test_an_experiment_names_its_endpoints_in_their_order() -> None:
    design = Design(endpoints=[("all", "goodput_bytes_per_s"), ("web", "never_measured")])
    first, second = judge_comparison("5mid", synthetic(1.2), "rr", "ewma", design)
    assert (first.metric.name, first.endpoint) == ("goodput_bytes_per_s", 0)
    assert (second.metric.name, second.endpoint) == ("ttfb_p50_s", None)
    assert first.verdict.grade is Grade.SHOWN
    assert second.verdict.grade is None
    assert second.verdict.effect is not None


def test_downloads_of_perf_clients_are_counted_by_their_size() -> None:
    quantities = {one.name: one for one in METRICS}
    for name, needed, counted_by in (
        ("time_to_last_byte_1mib_p50_s", 10, "streams_started_1mib"),
        ("download_ttlb_5mib_p90_s", 50, "streams_started_5mib"),
        ("download_ttfb_p99_s", 500, "streams_started"),
        ("download_error_rate", 100, "streams_started"),
        ("circuit_failure_share", 100, ""),
    ):
        one = quantities[name]
        margin = known(one.judged).margin
        assert (min_streams(one, margin), one.counted_by) == (needed, counted_by)
        assert not counted_by or counted_by in quantities


def test_an_endpoint_of_too_few_streams_of_the_baseline_is_left_out_of_the_family() -> None:
    table = synthetic(1.2)
    started = table["5mid", "web"]
    started["streams_started", "ewma"] = numbered(30, 9, 30)
    started["streams_started", "rr"] = numbered(30, 30, 30)
    found = by_metric(judge_comparison("5mid", table, "rr", "ewma"))
    times = found["web", "ttfb_p50_s"]
    assert (times.endpoint, times.verdict.grade) == (0, None)
    assert times.verdict.reason == "too few streams (9 of 10)"
    assert (times.verdict.word, times.verdict.direction) == ("", "")
    assert (times.verdict.p_different, times.verdict.more_networks) == (None, None)
    assert known(times.verdict.effect).estimate == pytest.approx(1.2, rel=0.03)
    key = "all", "goodput_bytes_per_s"
    design = Design(endpoints=[key])
    alone = by_metric(judge_comparison("5mid", synthetic(1.2), "rr", "ewma", design))
    assert found[key].verdict == alone[key].verdict
    # Each run needs ten streams. It is not sufficient that the mean of a network's repeats has ten.
    started["streams_started", "ewma"][2] = Statistic(19.5, "", (30.0, 9.0))
    found = by_metric(judge_comparison("5mid", table, "rr", "ewma"))
    assert found["web", "ttfb_p50_s"].verdict.reason == "too few streams (9 of 10)"
    # The variant's number of streams does not count, because the variant must not affect which
    # endpoints are judged.
    started["streams_started", "ewma"] = numbered(30, 10, 30)
    started["streams_started", "rr"] = numbered(1, 1, 1)
    found = by_metric(judge_comparison("5mid", table, "rr", "ewma"))
    assert found["web", "ttfb_p50_s"].verdict.grade is Grade.SHOWN


def test_the_report_shows_the_interval_that_the_verdict_rests_on(store: Path) -> None:
    """The summary's ratio or difference has the same interval as the effect in the verdict.

    All timeout rates are 0, so they have no spread. The interval of their difference comes only
    from the resolution of a rate.
    """
    study = load_study(store / "study.json")
    statistics = read_statistics(study, store)
    for variant in ("ewma", "rr", "swrr"):
        for seed in (1, 2, 3):
            statistics["5mid", "all"]["timeout_rate", variant][seed] = Statistic(0.0)
    shown = {}
    for row in summarise(study, statistics):
        if row.comparison is None or row.judgement is None:
            continue
        effect = row.judgement.verdict.effect
        of_ratio = row.judgement.verdict.scale == "ratio"
        found = row.comparison.ratio if of_ratio else row.comparison.difference
        if effect is not None and effect.low is not None:
            assert found == effect, row.metric.name
            shown[row.class_name, row.metric.name] = effect
    rate = shown["all", "timeout_rate"]
    assert known(rate.low) == -known(rate.high) < 0


@pytest.mark.parametrize(("shift", "grade"), [(0.0, Grade.OPEN), (0.31, Grade.SHOWN)])
def test_gaps_in_whole_heartbeats_are_known_to_a_heartbeat(shift: float, grade: Grade) -> None:
    base = 2.0 + shift + 1e-5 * np.arange(1, 4)
    statistics: Statistics = {
        ("5mid", "web"): {
            ("longest_gap_p50_s", "ewma"): numbered(*base),
            ("longest_gap_p50_s", "rr"): numbered(*base + 1.0),
        }
    }
    design = Design(endpoints=[("web", "longest_gap_p50_s")])
    (judgement,) = judge_comparison("5mid", statistics, "rr", "ewma", design)
    assert judgement.verdict.grade is grade


def test_a_run_that_lacks_a_metric_has_a_missing_value() -> None:
    # No download of the variant ended on network 5, so this run has no time to first byte.
    table = synthetic(2.0)
    del table["5mid", "web"]["ttfb_p50_s", "rr"][5]
    complete(table)
    lacking = table["5mid", "web"]["ttfb_p50_s", "rr"][5]
    assert lacking.value is None
    assert lacking.reason
    verdict = by_metric(judge_comparison("5mid", table, "rr", "ewma"))["web", "ttfb_p50_s"].verdict
    assert (verdict.grade, verdict.reason) == (Grade.OPEN, "1 of 6 pairs lack a value")


def test_a_network_counts_with_the_mean_of_its_repeats() -> None:
    def by_repeat(metric: str, *values: float | None) -> dict[tuple[str, str], Any]:
        places = [(1, 1), (1, 2), (2, 1), (2, 2)]
        found = [Statistic(value) for value in values]
        return {(metric, "rr"): dict(zip(places, found, strict=True))}

    runs: Any = {("5mid", "web"): by_repeat("ttfb_p50_s", 1.0, 4.0, 3.0, None)}
    runs["5mid", "web"] |= by_repeat("timeout_rate", 0.0, 0.5, 0.25, 0.25)
    (of_class,) = over_networks(runs).values()
    assert of_class["ttfb_p50_s", "rr"] == {
        1: Statistic(2.0, "", (1.0, 4.0)),
        2: Statistic(None, " in 1 of 2 repeats"),
    }
    assert [one.value for one in of_class["timeout_rate", "rr"].values()] == [0.25, 0.25]
    # If a run's time is zero, ratios do not exist, so the mean is arithmetic.
    zero: Any = {("5mid", "web"): by_repeat("ttfb_p50_s", 1.0, 4.0, 0.0, 2.0)}
    (of_class,) = over_networks(zero).values()
    assert [one.value for one in of_class["ttfb_p50_s", "rr"].values()] == [2.5, 1.0]
    one_network: Any = {("5mid", "web"): {("ttfb_p50_s", "rr"): {(7, 1): Statistic(1.0)}}}
    assert over_networks(one_network, "one-network")["5mid", "web"]["ttfb_p50_s", "rr"] == {
        1: Statistic(1.0)
    }


# ----- means over networks and paired comparisons


def test_estimate() -> None:
    result = estimate(numbered(1.0, 2.0, 6.0))
    assert known(result.mean).estimate == 3.0
    assert result.sd == pytest.approx(np.sqrt(7))
    assert (result.seeds, result.minimum, result.maximum, result.note) == (3, 1.0, 6.0, "")


def test_unpaired_networks_are_left_out_and_named() -> None:
    result = against_baseline(numbered(5.0, 6.0, 7.0), numbered(4.0, 5.0, 99.0, first=2))
    assert result.pairs == 2
    assert known(result.difference).estimate == 2.0
    assert result.notes == ("without a pair: 1, 4",)


def test_the_ratio_of_displayed_means_equals_the_displayed_ratio() -> None:
    # The arithmetic mean falls from 2.5 to 2.38, although the values of most networks rise. That is
    # why geometric means are displayed next to a ratio.
    variant, baseline = numbered(1.0, 1.1, 5.04), numbered(0.7, 0.8, 6.0)
    own, base = estimate(variant), estimate(baseline)
    ratio = known(against_baseline(variant, baseline).ratio)
    assert known(own.mean).estimate < known(base.mean).estimate
    assert ratio.estimate > 1
    shown, beside = known(own.mean_for("ratio")), known(base.mean_for("ratio"))
    assert shown.estimate / beside.estimate == pytest.approx(ratio.estimate)
    assert own.mean_for("difference") is own.mean


def test_pairs_that_agree_have_the_spread_of_their_step_or_no_bounds() -> None:
    own, base = numbered(3.0, 1.0), numbered(2.0, 0.0)
    unknown = known(against_baseline(own, base).difference)
    assert (unknown.estimate, unknown.low, unknown.high) == (1.0, None, None)
    counted = known(against_baseline(own, base, 1.0).difference)
    assert known(counted.low) < 1.0
