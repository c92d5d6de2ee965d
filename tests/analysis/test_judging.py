"""From tables of runs to verdicts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shipped
from analysis_synthetic import write_store

from analysis.errors import AnalysisError
from analysis.formats.study import load_study
from analysis.judgement.judging import (
    Design,
    Judgement,
    Statistics,
    complete,
    judge_comparison,
    min_streams,
    over_networks,
    read_runs_csv,
    read_statistics,
    usual_endpoints,
)
from analysis.judgement.margins import with_margins
from analysis.judgement.verdicts import Grade, exposure
from analysis.measures.catalogue import METRICS
from analysis.measures.metric import Margin, Statistic
from analysis.pages.report import build
from analysis.pages.summary import summarise


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("store"))


def by_metric(judgements: list[Judgement]) -> dict[tuple[str, str], Judgement]:
    return {(j.class_name, j.metric.name): j for j in judgements}


def synthetic(ratio: float, n: int = 6, spread: float = 0.01) -> Statistics:
    """Runs of two variants with p50 and throughput; seeds differ by far more than variants."""
    rng = np.random.default_rng(2)
    base = rng.lognormal(0, 0.5, n)
    noise = np.exp(rng.normal(0, spread, n))

    def values(numbers: np.ndarray) -> dict[int, Statistic]:
        return {seed + 1: Statistic(float(v)) for seed, v in enumerate(numbers)}

    return {
        ("5mid", "web"): {
            ("ttfb_p50_s", "ewma"): values(base),
            ("ttfb_p50_s", "rr"): values(base * ratio * noise),
        },
        ("5mid", "all"): {
            ("goodput_bytes_per_s", "ewma"): values(1e6 * base),
            ("goodput_bytes_per_s", "rr"): values(1e6 * base / ratio * noise),
        },
    }


def test_a_study_is_judged_from_records_and_from_its_table_alike(
    store: Path, tmp_path: Path
) -> None:
    statistics = read_statistics(load_study(store / "study.json"), store)
    paths = build(store / "study.json", store, tmp_path)
    again = read_runs_csv(paths.runs_csv)
    assert {where: set(of) for where, of in again.items()} == {
        where: set(of) for where, of in statistics.items()
    }
    for variant in ("rr", "swrr"):
        mine = judge_comparison("5mid", statistics, variant, "ewma")
        theirs = judge_comparison("5mid", again, variant, "ewma")
        assert [(j.metric.name, j.verdict.grade) for j in mine] == [
            (j.metric.name, j.verdict.grade) for j in theirs
        ]
    # Three networks show little at the usual level, so this asks with another.
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
    # The synthetic runs differ by 15 % in all times, network by network.
    assert judged[1].verdict.grade is Grade.SHOWN
    assert judged[1].regression


def started(statistics: Statistics, class_name: str, variant: str, *counts: float) -> Statistics:
    """The same with so many streams in each run."""
    of = {seed: Statistic(count) for seed, count in enumerate(counts, 1)}
    statistics["5mid", class_name]["streams_started", variant] = of
    return statistics


def test_the_usual_endpoints_are_what_the_baseline_has() -> None:
    table = synthetic(1.2)
    both = [("web", "ttfb_p50_s"), ("all", "goodput_bytes_per_s")]
    assert usual_endpoints("5mid", table, "ewma") == both
    # Of several classes that of web clients, else the first by name.
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
    # The variant decides nothing.
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
        assert one.judged is not None
        assert (min_streams(one, one.judged.margin), one.counted_by) == (needed, counted_by)
        assert not counted_by or counted_by in quantities


def test_an_endpoint_of_too_few_streams_of_the_baseline_is_left_out_of_the_family() -> None:
    table = started(started(synthetic(1.2), "web", "ewma", 30, 9, 30), "web", "rr", 30, 30, 30)
    found = by_metric(judge_comparison("5mid", table, "rr", "ewma"))
    times = found["web", "ttfb_p50_s"]
    assert (times.endpoint, times.verdict.grade) == (0, None)
    assert times.verdict.reason == "too few streams (9 of 10)"
    assert times.verdict.effect is not None
    alone = by_metric(judge_comparison("5mid", synthetic(1.2), "rr", "ewma", Design(
        endpoints=[("all", "goodput_bytes_per_s")])))  # fmt: skip
    key = "all", "goodput_bytes_per_s"
    assert found[key].verdict == alone[key].verdict
    # Each run needs them, not the mean of a network's repeats.
    mean = {1: Statistic(19.5, "", (30.0, 9.0)), 2: Statistic(30.0), 3: Statistic(30.0)}
    table["5mid", "web"]["streams_started", "ewma"] = mean
    found = by_metric(judge_comparison("5mid", table, "rr", "ewma"))
    assert found["web", "ttfb_p50_s"].verdict.reason == "too few streams (9 of 10)"
    # How many the variant has does not count.
    table = started(started(synthetic(1.2), "web", "ewma", 30, 10, 30), "web", "rr", 1, 1, 1)
    found = by_metric(judge_comparison("5mid", table, "rr", "ewma"))
    assert found["web", "ttfb_p50_s"].verdict.grade is Grade.SHOWN


def test_how_many_streams_a_metric_needs() -> None:
    needed = {
        metric.name: min_streams(metric, metric.judged.margin)
        for metric in METRICS
        if metric.judged is not None
    }
    assert [needed[f"ttfb_{q}_s"] for q in ("p50", "p90", "p99")] == [10, 50, 500]
    assert (needed["timeout_rate"], needed["goodput_bytes_per_s"]) == (100, 0)
    rate = next(metric for metric in METRICS if metric.name == "timeout_rate")
    assert min_streams(rate, Margin(0.1, relative=False)) == 10
    assert exposure(rate, 10) == pytest.approx(1 - 0.05**0.1)


def test_the_report_shows_the_interval_that_the_verdict_rests_on(store: Path) -> None:
    """The same as a comparison's page of the same runs, though no seed differs in a rate."""
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
    low, high = shown["all", "timeout_rate"].low, shown["all", "timeout_rate"].high
    assert low is not None
    assert low == -(high or 0) < 0


def test_directions() -> None:
    found = by_metric(judge_comparison("5mid", synthetic(1.2), "rr", "ewma"))
    assert all(j.regression and j.endpoint is not None for j in found.values())
    found = by_metric(judge_comparison("5mid", synthetic(1 / 1.2), "rr", "ewma"))
    assert {j.verdict.direction for j in found.values()} == {"better"}
    found = by_metric(judge_comparison("5mid", synthetic(1.0), "rr", "ewma"))
    assert {j.verdict.grade for j in found.values()} == {Grade.SAME}


def test_an_experiments_own_margin_decides() -> None:
    small = synthetic(1.04, spread=0.002)
    assert judge_comparison("5mid", small, "rr", "ewma")[0].verdict.grade is Grade.SAME
    design = Design(margins={"ttfb_p50_s": 0.01})
    found = by_metric(judge_comparison("5mid", small, "rr", "ewma", design))
    assert found["web", "ttfb_p50_s"].verdict.grade is Grade.SHOWN
    assert found["all", "goodput_bytes_per_s"].verdict.grade is Grade.SAME
    with pytest.raises(AnalysisError, match="timeout_count gets no verdict"):
        with_margins({"timeout_count": 0.1})
    with pytest.raises(AnalysisError, match="ttfb_p50_s: a margin must be a positive number"):
        with_margins({"ttfb_p50_s": 0.0})
    assert with_margins({"timeout_rate": 0.02})["timeout_rate"].margin == Margin(0.02, False)


def test_sets_without_common_seeds_are_compared_unpaired() -> None:
    statistics = synthetic(10.0)
    for of_class in statistics.values():
        for (metric, variant), by_seed in list(of_class.items()):
            if variant == "rr":
                of_class[metric, variant] = {seed + 100: s for seed, s in by_seed.items()}
    paired = judge_comparison("5mid", statistics, "rr", "ewma")
    assert {j.verdict.reason for j in paired} == {"no common network"}
    unpaired = judge_comparison("5mid", statistics, "rr", "ewma", Design(paired=False))
    assert {j.verdict.count for j in unpaired} == {6}
    assert {j.verdict.grade for j in unpaired} == {Grade.SHOWN}


def test_seeds_of_one_side_only_make_no_pair() -> None:
    statistics = synthetic(1.2)
    del statistics["5mid", "web"]["ttfb_p50_s", "rr"][3]
    found = by_metric(judge_comparison("5mid", statistics, "rr", "ewma"))
    assert found["web", "ttfb_p50_s"].verdict.count == 5
    statistics["5mid", "web"]["ttfb_p50_s", "rr"][3] = Statistic(None, "the curve ends at 40.0%")
    found = by_metric(judge_comparison("5mid", statistics, "rr", "ewma"))
    assert found["web", "ttfb_p50_s"].verdict.reason == "1 of 6 pairs lack a value"


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(AnalysisError, match="level 5mid has no runs of swrr"):
        judge_comparison("5mid", synthetic(1.0), "swrr", "ewma")
    with pytest.raises(AnalysisError, match="level 9mid has no runs of rr"):
        judge_comparison("9mid", synthetic(1.0), "rr", "ewma")


@pytest.mark.parametrize(("shift", "grade"), [(0.0, Grade.OPEN), (0.31, Grade.SHOWN)])
def test_gaps_in_whole_heartbeats_are_known_to_a_heartbeat(shift: float, grade: Grade) -> None:
    def by_seed(value: float) -> dict[int, Statistic]:
        return {seed: Statistic(value + 1e-5 * seed) for seed in (1, 2, 3)}

    statistics: Statistics = {
        ("5mid", "web"): {
            ("longest_gap_p50_s", "ewma"): by_seed(2.0 + shift),
            ("longest_gap_p50_s", "rr"): by_seed(3.0 + shift),
        }
    }
    design = Design(endpoints=[("web", "longest_gap_p50_s")])
    (judgement,) = judge_comparison("5mid", statistics, "rr", "ewma", design)
    assert judgement.verdict.grade is grade


HEAD = "run_id,level,variant,seed,class,metric,unit,value,note\n"
ROW = "r1,5mid,ewma,1,web,ttfb_p50_s,s,1.5,\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a table of runs: it lacks"),
        ("level,seed\n", "it lacks class, metric"),
        (HEAD + ROW.replace("1.5", "fast"), "line 2: could not convert"),
        (HEAD + ROW.replace("1.5", "nan"), "line 2: a value must be a number, not nan"),
        (HEAD + ROW.replace(",1,web", ",x,web"), "line 2: invalid literal"),
        (HEAD + ROW + ROW, "line 3: ttfb_p50_s of seed 1 occurs twice"),
        (HEAD + ROW.replace("ttfb_p50_s", "speed"), "line 2: unknown metric 'speed'"),
        (HEAD + "r1,5mid\n", "line 2: the number of cells differs from the number of columns"),
        (
            HEAD + ROW.replace("1.5,\n", "1."),
            "line 2: the number of cells differs from the number of columns",
        ),
        (
            HEAD + ROW.replace("1.5", "1,5"),
            "line 2: the number of cells differs from the number of columns",
        ),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(AnalysisError, match=message):
        read_runs_csv(path)
    with pytest.raises(AnalysisError, match="is missing"):
        read_runs_csv(tmp_path / "other.csv")


def test_every_metric_but_counts_has_a_margin() -> None:
    without = [one for one in METRICS if one.name in shipped.METRICS and one.judged is None]
    assert {one.unit for one in without} == {"streams"}


def test_a_run_without_what_others_have_lacks_a_value_and_is_not_left_out() -> None:
    # No download of the variant ended in seed 5, so nothing could be computed from it.
    table = synthetic(2.0)
    del table["5mid", "web"]["ttfb_p50_s", "rr"][5]
    complete(table)
    lacking = table["5mid", "web"]["ttfb_p50_s", "rr"][5]
    assert lacking.value is None
    assert lacking.reason
    verdict = by_metric(judge_comparison("5mid", table, "rr", "ewma"))["web", "ttfb_p50_s"].verdict
    assert (verdict.grade, verdict.reason) == (Grade.OPEN, "1 of 6 pairs lack a value")


def test_only_runs_that_were_read_lack_a_value_and_only_where_it_is_an_outcome() -> None:
    table = synthetic(2.0)
    table["5mid", "guard"] = {("cell_time_p50_s", "ewma"): {1: Statistic(1.0)}}
    for of_class in table.values():
        of_class.pop(("ttfb_p50_s", "rr"), None)
        for key in [key for key in of_class if key[1] == "rr"]:
            del of_class[key][6]
    complete(table)
    # The sixth run of rr is not there; the others had no download.
    assert set(table["5mid", "web"]["ttfb_p50_s", "rr"]) == {1, 2, 3, 4, 5}
    # Which relays are traced is drawn with the network.
    assert set(table["5mid", "guard"]) == {("cell_time_p50_s", "ewma")}


def test_a_network_counts_with_the_mean_of_its_repeats() -> None:
    def of(metric: str, *values: float | None) -> dict[tuple[str, str], Any]:
        places = [(1, 1), (1, 2), (2, 1), (2, 2)]
        found = [Statistic(value) for value in values]
        return {(metric, "rr"): dict(zip(places, found, strict=True))}

    runs: Any = {("5mid", "web"): of("ttfb_p50_s", 1.0, 4.0, 3.0, None)}
    runs["5mid", "web"] |= of("timeout_rate", 0.0, 0.5, 0.25, 0.25)
    (of_class,) = over_networks(runs).values()
    assert of_class["ttfb_p50_s", "rr"] == {
        1: Statistic(2.0, "", (1.0, 4.0)),
        2: Statistic(None, " in 1 of 2 repeats"),
    }
    assert [one.value for one in of_class["timeout_rate", "rr"].values()] == [0.25, 0.25]
    # Of a time that is zero in some run no ratio can be given: its mean is arithmetic.
    zero: Any = {("5mid", "web"): of("ttfb_p50_s", 1.0, 4.0, 0.0, 2.0)}
    (of_class,) = over_networks(zero).values()
    assert [one.value for one in of_class["ttfb_p50_s", "rr"].values()] == [2.5, 1.0]
    one_network: Any = {("5mid", "web"): {("ttfb_p50_s", "rr"): {(7, 1): Statistic(1.0)}}}
    assert over_networks(one_network, "one-network")["5mid", "web"]["ttfb_p50_s", "rr"] == {
        1: Statistic(1.0)
    }


def test_repeats_of_a_table_of_runs(tmp_path: Path) -> None:
    rows = ["run_id,level,variant,seed,repeat,class,metric,unit,value,note"]
    rows += [f"r{n},5mid,rr,1,{n},web,ttfb_p50_s,s,{value}," for n, value in ((1, 1.0), (2, 4.0))]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(rows) + "\n")
    found = read_runs_csv(path)["5mid", "web"]["ttfb_p50_s", "rr"]
    assert found[1].value == pytest.approx(2.0)
    assert found[1].repeats == (1.0, 4.0)
    # Without the column all runs are first repeats.
    path.write_text("\n".join(re.sub(r"^((?:[^,]*,){4})[^,]*,", r"\1", row) for row in rows[:2]))
    assert read_runs_csv(path)["5mid", "web"]["ttfb_p50_s", "rr"] == {1: Statistic(1.0)}
