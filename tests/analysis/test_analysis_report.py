"""Figures, summary and report of a small synthetic study."""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_synthetic import (
    VARIANTS,
    changed_study,
    digests,
    known,
    read_rows,
    study_content,
    write_store,
)

from analysis.errors import AnalysisError
from analysis.figures.lines import LINE_FIGURES
from analysis.formats.byte_marks import MARK_FIGURES
from analysis.formats.files import RECORDS
from analysis.formats.study import Study, load_study
from analysis.inference.intervals import Interval
from analysis.judgement.estimates import RunStatistics, Statistics, over_networks
from analysis.measures.catalogue import METRICS
from analysis.measures.data import ALL
from analysis.measures.metric import Statistic
from analysis.measures.run_data import load_run
from analysis.pages import summary
from analysis.pages.answer import answer
from analysis.pages.numbers import format_interval, format_number
from analysis.pages.report import build, network_rows, spread_rows
from analysis.pages.study_notes import scope_note
from analysis.records.extract import extract


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def report(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    build(store / "study.json", store, out)
    return out


def read_summary(report: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the rows of summary.csv of a report on one level, by class, metric and variant."""
    rows = read_rows(report / "summary.csv")
    return {(row["class"], row["metric"], row["variant"]): row for row in rows}


@pytest.mark.slow
@pytest.mark.always
def test_the_same_records_give_the_same_bytes(
    store: Path, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = tmp_path / "elsewhere"
    shutil.copytree(store, moved)
    # The files of an earlier report are replaced.
    shutil.copytree(report, tmp_path / "out")
    for path in (tmp_path / "out").rglob("*.*"):
        path.write_text("of an earlier call")
    build(moved / "study.json", moved, tmp_path / "out")
    assert digests(tmp_path / "out") == digests(report)
    figures = [
        f"figures/{name}.{end}"
        for name in ("answer", *(f"{kind}-5mid" for kind in LINE_FIGURES))
        for end in ("csv", "pdf", "png")
    ]
    expected = ["answer.txt", "censoring.csv", "report.html", "runs.csv", "summary.csv", *figures]
    assert sorted(digests(report)) == sorted(expected)


def test_figures_of_times_show_the_first_class_if_none_is_named_web(store: Path) -> None:
    study = load_study(store / "study.json")
    run = study.runs_of("5mid", "ewma")[0]
    level = study.level("5mid")
    web = load_run(store / run.run_id / RECORDS, level)["web"]
    renamed = level.model_copy(update={"classes": {"chat": level.classes["web"]}})
    figure = LINE_FIGURES[next(iter(MARK_FIGURES))]
    for values, expected in zip(
        figure.keep({"chat": web}, renamed), figure.keep({"web": web}, level), strict=True
    ):
        assert np.isfinite(values).any()
        assert np.array_equal(values, expected, equal_nan=True)


def test_summary_has_a_row_per_variant_class_and_metric(report: Path) -> None:
    rows = read_rows(report / "summary.csv")
    assert tuple(rows[0]) == summary.SUMMARY_COLUMNS
    keys = [(r["level"], r["class"], r["metric"], r["variant"]) for r in rows]
    assert len(set(keys)) == len(keys)
    assert {r["class"] for r in rows} == {"web", "bulk", "all"}
    for row in rows:
        assert "nan" not in ",".join(row.values()).lower()
        assert row["seeds"] == "3"
        if row["estimate"] and row["minimum"] == row["maximum"]:
            # The mean of equal values has no interval.
            assert row["low"] == row["high"] == ""
        elif row["estimate"]:
            assert 0 <= float(row["low"]) <= float(row["estimate"]) <= float(row["high"])
        else:
            assert row["note"]
        assert (row["baseline"] == "") == (row["variant"] == "ewma")


def test_each_comparison_has_a_verdict_or_a_reason(report: Path) -> None:
    found = read_summary(report)
    for row in found.values():
        if row["variant"] == "ewma":
            continue
        assert (row["grade"] == "") == (row["endpoint"] == "" or "too few" in row["grade_note"])
        if row["grade"] == "open":
            assert row["more_networks"] or row["grade_note"]
        if row["grade"] == "shown" and row["metric"].endswith("_s"):
            assert row["direction"] == {"rr": "worse", "swrr": "better"}[row["variant"]]
    slow, fast = (found["web", "ttfb_p50_s", variant] for variant in ("rr", "swrr"))
    assert float(slow["ratio"]) == pytest.approx(1.15, rel=0.05)
    assert float(fast["ratio"]) == pytest.approx(0.93, rel=0.05)
    assert float(slow["diff_low"]) > 0 > float(fast["diff_high"])
    assert (slow["endpoint"], slow["agreeing"], slow["margin"]) == ("2", "3", "1.05")
    assert float(slow["ratio_low"]) > 1.05
    assert slow["grade"] in ("suggested", "shown")
    assert found["all", "timeout_rate", "rr"]["margin"] == "0.01"
    page = (report / "report.html").read_text()
    assert "<strong>" in page
    assert "With 3 networks, an effect that occurs in up to 63% of networks has at least" in page


def test_censoring_has_naive_times_and_incidences(report: Path) -> None:
    rows = read_rows(report / "censoring.csv")
    summary = read_summary(report)
    assert {row["time"] for row in rows if row["class"] == "web"} == {"ttfb", "time_to_320kib"}
    for row in rows:
        name = f"{row['time']}_p90_s"
        estimate = summary[row["class"], name, row["variant"]]["estimate"]
        assert row["incidence_p90_s"] == estimate
        assert float(row["naive_p90_s"]) > 0
        assert float(row["failed_share"]) + float(row["censored_share"]) > 0
        assert 0 < float(row["largest_difference"]) < 1
        if estimate:
            assert float(row["naive_p90_s"]) <= float(estimate)
    assert "finished → incidence" in (report / "report.html").read_text()


class Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.resources: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("link", "iframe"):
            self.resources.append(tag)
        for name in ("src", "href"):
            if values.get(name):
                self.resources.append(values[name] or "")
        if tag not in ("meta", "img", "br", "hr", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_self_contained(store: Path, report: Path) -> None:
    html = (report / "report.html").read_text()
    page = Collector()
    page.feed(html)
    assert page.open == []
    for resource in page.resources:
        assert resource.startswith(("data:image/svg+xml;base64,", "#")), resource
    assert "url(" not in html
    assert str(store) not in html
    assert str(report) not in html
    for word in ("EWMA", "Round robin", "SWRR", "5mid-rr-3", "bulk clients 80 -> 2", "0.4.9.11"):
        assert word in page.text
    assert page.text.count("Scheduling <script> & congestion") > 1
    assert "nan" not in re.sub(r"[a-zA-Z]*nan[a-zA-Z]+|[a-zA-Z]+nan", "", page.text)


def test_variants_and_levels_may_have_the_same_label() -> None:
    content = study_content([1, 2, 3], ["5mid", "10mid"])
    for variant in content["variants"][1:]:
        variant["label"] = "Round robin"
    for level in content["levels"]:
        level["label"] = "heavy load"
    plan = Study.model_validate(content)
    statistics: Statistics = {
        (run.level, ALL): {("goodput_bytes_per_s", variant.name): {} for variant in plan.variants}
        for run in plan.runs
    }
    for run in plan.runs:
        by_seed = statistics[run.level, ALL]["goodput_bytes_per_s", run.variant]
        by_seed[run.seed] = Statistic(1000.0 + run.seed)
    compared = summary.endpoint_comparisons(plan, summary.summarise(plan, statistics))
    assert [len(one.judgements) for one in compared] == [1, 1, 1, 1]
    assert {(one.place, one.variant) for one in compared} == {
        ("heavy load at scale 0.1", "Round robin")
    }


def repeated(seeds: list[int], scope: str = "networks") -> tuple[Study, list[summary.SummaryRow]]:
    """Return a study with two repeats on each network, and a summary of its download times."""
    content = study_content(seeds)
    content["scope"] = scope
    content["runs"] = [
        {**run, "run_id": f"{run['run_id']}-{repeat}", "repeat": repeat}
        for run in content["runs"]
        for repeat in (1, 2)
    ]
    shares = {"limited": 0.94, "largest": 0.5}
    content["networks"] = {"5mid": {seed: {"middle": shares} for seed in seeds}}
    plan = Study.model_validate(content)
    factor = {"ewma": 1.0, "rr": 1.5, "swrr": 1.0}
    runs: RunStatistics = {}
    for run in plan.runs:
        of_class = runs.setdefault((run.level, "web"), {})
        value = factor[run.variant] * (run.seed + (0.1 * run.repeat if run.variant == "rr" else 0))
        by_run = of_class.setdefault(("time_to_320kib_p50_s", run.variant), {})
        by_run[run.seed, run.repeat] = Statistic(value)
    return plan, summary.summarise(plan, over_networks(runs, plan.scope))


def test_spread_between_and_within_networks() -> None:
    plan, rows = repeated([1, 2, 3])
    own, other = spread_rows(rows)
    within, of_other = (known(known(row.spread).within) for row in (own, other))
    assert (own.variant.name, own.scale, within.estimate > 0) == ("rr", "ratio", True)
    assert (other.variant.name, of_other.estimate) == ("swrr", 0)
    (row,) = (row for row in rows if row.variant.name == "rr")
    # The ratio is a geometric mean over networks and their repeats.
    logs = [np.log(1.5 * (seed + 0.1 * n) / seed) for seed in (1, 2, 3) for n in (1, 2)]
    comparison = known(row.comparison)
    assert comparison.pairs == 3
    assert known(comparison.ratio).estimate == pytest.approx(np.exp(np.mean(logs)))
    table = list(csv.DictReader(summary.summary_csv(plan, rows).splitlines()))
    assert [bool(row["sd_within"]) for row in table] == [False, True, True]
    (networks,) = network_rows(plan)
    assert networks["seeds"] == "1, 2, 3"
    assert networks["roles"] == {"middle": "94%, 50%"}
    assert scope_note(plan) == ""


def test_all_variants_show_the_geometric_mean_if_one_is_compared_by_a_ratio() -> None:
    plan, rows = repeated([1, 2, 3])
    assert [row.scale for row in rows] == ["", "ratio", "ratio"]
    for row in rows:
        assert known(row.shown_mean) == row.estimate.geometric != row.estimate.mean
    # The ratio to zero does not exist.
    values = {"ewma": 2.0, "rr": 0.0, "swrr": 3.0}
    for baseline, scales, ewmas_mean in (
        (2.0, ["", "difference", "ratio"], "geometric"),
        (0.0, ["", "difference", "difference"], "mean"),
    ):
        values["ewma"] = baseline
        statistics: Statistics = {
            ("5mid", "web"): {
                ("time_to_320kib_p50_s", variant): {1: Statistic(value), 2: Statistic(value + 1)}
                for variant, value in values.items()
            }
        }
        rows = summary.summarise(plan, statistics)
        assert [row.scale for row in rows] == scales
        assert known(rows[0].shown_mean) == getattr(rows[0].estimate, ewmas_mean)


def test_metrics_that_are_no_times_are_shown_for_streams_of_any_size() -> None:
    _, rows = repeated([1, 2, 3])
    load = next(iter(rows[0].level.classes.values()))
    assert load.request_bytes is not None
    other_size = load.model_copy(update={"request_bytes": load.request_bytes + 1})
    level = rows[0].level.model_copy(update={"classes": {"web": other_size}})
    rows = [replace(row, level=level) for row in rows]
    assert spread_rows(rows) == []
    (early_rate,) = (one for one in METRICS if one.name == "early_rate_bytes_per_s")
    assert len(spread_rows([replace(row, metric=early_rate) for row in rows])) == 2


def test_repeats_are_replicates_in_the_scope_of_one_network() -> None:
    plan, rows = repeated([7], "one-network")
    assert scope_note(plan).endswith("in this network (network 7), over its 2 repeats")
    compared = [
        replace(one, variant="network scheduler")
        for one in summary.endpoint_comparisons(plan, rows)
    ]
    first, sentence, *_ = answer(compared)
    assert first == "2 repeats of one network: the answer is about this network."
    assert "under network scheduler as under EWMA" in sentence
    assert "longer in 2 of 2 repeats" in sentence
    assert {row.estimate.seeds for row in rows} == {2}
    assert spread_rows(rows) == []
    plan, rows = repeated([7])
    assert "scope: one-network" in scope_note(plan)
    assert {row.estimate.seeds for row in rows} == {1}


def test_the_data_of_a_figure_are_cumulative_shares_of_each_variant(report: Path) -> None:
    rows = read_rows(report / "figures" / "ttfb-320kib-5mid.csv")
    shown = {"ttfb_cumulative_incidence", "time_to_320kib_cumulative_incidence"}
    assert {row["panel"] for row in rows} == shown | {f"{panel}_difference" for panel in shown}
    for panel in shown:
        for variant in ("ewma", "rr", "swrr"):
            own = [r for r in rows if (r["panel"], r["variant"]) == (panel, variant)]
            means = [float(r["mean"]) for r in own]
            assert means == sorted(means)
            assert 0 <= means[0] <= means[-1] <= 1


def test_ratios_to_the_baseline_match_the_synthetic_ones(report: Path) -> None:
    rows = read_rows(report / "figures" / "quantile-ratios-5mid.csv")
    assert {row["variant"] for row in rows} == {"rr", "swrr"}
    assert {row["panel"] for row in rows} == {
        "ttfb_quantile_ratio",
        "time_to_320kib_quantile_ratio",
    }
    assert rows[0]["share"] == "0.02"
    for variant, ratio in (("rr", 1.15), ("swrr", 0.93)):
        own = [r for r in rows if r["variant"] == variant and r["panel"].startswith("ttfb")]
        middle = [float(r["mean"]) for r in own if 0.2 <= float(r["share"]) <= 0.8]
        assert np.median(middle) == pytest.approx(ratio, rel=0.03)
        known = [r for r in own if r["mean"]]
        assert all(float(r["low"]) <= float(r["mean"]) <= float(r["high"]) for r in known)
        assert {r["seeds"] for r in own} == {"3"}


RUNS = study_content([1, 2, 3])["runs"]
EWMA, RR, SWRR = VARIANTS
PIE = {"id": "one", "kind": "pie", "level": "5mid"}


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("figures", [PIE], "unknown kind pie", "ttfb-320kib"),
        *(
            ("variants", [EWMA, {**RR, **look}, SWRR], "lines of rr cannot be drawn", "")
            for look in ({"color": "#12"}, {"marker": "zigzag"}, {"linestyle": [0, [-1, 1]]})
        ),
        ("runs", [RUNS[0], {**RUNS[1], "records": "gone"}], "1 of 2 .* ewma, seed 2", ""),
        ("runs", [], "no runs", ""),
    ],
)
def test_a_study_without_a_report_is_refused_before_any_work(
    store: Path, tmp_path: Path, key: str, value: Any, message: str, hint: str
) -> None:
    with pytest.raises(AnalysisError, match=message) as caught:
        build(changed_study(tmp_path, **{key: value}), store, tmp_path / "out")
    assert hint in (caught.value.hint or "")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("svg_only")
def test_unpaired_and_single_networks_have_notes(store: Path, tmp_path: Path) -> None:
    runs = study_content([1, 2, 3])["runs"]
    places = {("ewma", 1), ("ewma", 2), ("rr", 1), ("swrr", 3)}
    kept = [run for run in runs if (run["variant"], run["seed"]) in places]
    build(changed_study(tmp_path, runs=kept, figures=[]), store, tmp_path / "out")
    rows = read_summary(tmp_path / "out")
    base, one, none = (rows["web", "ttfb_p50_s", v] for v in ("ewma", "rr", "swrr"))
    assert (base["seeds"], base["low"] != "") == ("2", True)
    assert (one["seeds"], one["low"], one["pairs"], one["diff_low"]) == ("1", "", "1", "")
    assert one["diff"] != ""
    assert "one value" in one["note"]
    assert "without a pair: 2" in one["note"]
    assert (none["pairs"], none["diff"]) == ("0", "")
    assert "no pair" in none["note"]


@pytest.mark.usefixtures("svg_only")
def test_levels_are_kept_apart(store: Path, tmp_path: Path) -> None:
    both = study_content([1, 2, 3], ["5mid", "10mid"])
    both["levels"][1]["measured_start_s"] = 700.0
    for run in both["runs"]:
        run["records"] = run["records"].replace("10mid", "5mid")
    path = changed_study(tmp_path, **{**both, "figures": both["figures"][3:4]})
    html = build(path, store, tmp_path / "out").read_text()
    started = {
        r["level"]: float(r["estimate"])
        for r in read_rows(tmp_path / "out" / "summary.csv")
        if (r["class"], r["metric"], r["variant"]) == ("all", "streams_started", "ewma")
    }
    assert started["10mid"] < 0.7 * started["5mid"]
    folder = tmp_path / "out" / "figures"
    data = read_rows(folder / f"{both['figures'][3]['id']}.csv")
    assert data[0]["x_s"] == "640"
    assert html.count("<summary>5 middles at scale 0.1, class web</summary>") == 1
    assert html.count('<figure id="levels">') == 1
    assert (folder / "levels.png").is_file()
    assert html.count("<summary>10 middles at scale 0.1, class web</summary>") == 1


@pytest.mark.usefixtures("svg_only")
def test_without_a_baseline_there_are_no_differences(store: Path, tmp_path: Path) -> None:
    page = build(changed_study(tmp_path, baseline=None, figures=[]), store, tmp_path / "out")
    assert {row["diff"] for row in read_rows(tmp_path / "out" / "summary.csv")} == {""}
    assert "Against" not in page.read_text()


@pytest.mark.usefixtures("svg_only")
def test_ignored_parts_of_logs_are_reported(store: Path, tmp_path: Path) -> None:
    """One client's log has a malformed and a cut line, and another client's log lacks heartbeats.

    Both runs.csv and the report state this.
    """
    moved = tmp_path / "store"
    shutil.copytree(store, moved)
    run = moved / "5mid-rr-2"
    log = run / "shadow.data/hosts/web3client/tgen.1000.stdout"
    text = log.read_bytes()
    text = text.replace(b"[stream-success] transport [", b"[stream-success] tr<b> [", 1)
    lines = text.split(b"\n")
    log.write_bytes(b"\n".join(lines[: len(lines) // 2])[:-7])
    log = run / "shadow.data/hosts/bulk1client/tgen.1000.stdout"
    beat = re.compile(rb".*driver-heartbeat.*\n")
    log.write_bytes(beat.sub(b"", log.read_bytes()))
    report = extract(run, run / RECORDS)
    assert report.classes == {"bulk1client": "bulk", "web3client": "web"}
    build(changed_study(tmp_path, figures=[]), moved, tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text()
    assert "shadow.data/hosts/web3client/tgen.1000.stdout" in html
    assert "1 malformed lines; the last line is cut; it ends at " in html
    assert "tr&lt;b&gt; [" in html
    assert "Class bulk: 18 clients in all runs; streams: " in html
    web = "incomplete logs of 1 of 6 clients (web3client); 1 malformed lines; 1 streams without"
    bulk = "no heartbeats in the logs of 1 of 2 clients (bulk1client)"
    both = f"{bulk.replace(' 2 ', ' 8 ')}; {web.replace(' 6 ', ' 8 ')}"
    assert f"<code>5mid-rr-2</code>: {both}" in html
    notes = {
        (row["class"], row["metric"]): (row["value"], row["note"])
        for row in read_rows(tmp_path / "out" / "runs.csv")
        if row["run_id"] == "5mid-rr-2"
    }
    for class_name, note in (("web", web), ("bulk", bulk), ("all", both)):
        for metric in ("goodput_bytes_per_s", "timeout_rate"):
            value, found = notes[class_name, metric]
            assert (value != "") == (metric == "timeout_rate")
            assert found.startswith(note)
    assert notes["bulk", "jain_index_clients"][0] == notes["bulk", "starved_share"][0] == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.0, "0"),
        (1.23456, "1.23"),
        (12.3456, "12.3"),
        (12345.6, "12,346"),
        (0.0123456, "0.012"),
        (0.000123, "0.00012"),
        (-0.5, "\N{MINUS SIGN}0.500"),
    ],
)
def test_numbers_for_readers(value: float | None, text: str) -> None:
    assert format_number(value) == text


def test_intervals_for_readers() -> None:
    assert format_interval(Interval(1.0, -2.0, 3.0), sign=True) == "[\N{MINUS SIGN}2.00, +3.00]"
    assert format_interval(Interval(1.0, None, None)) == ""
