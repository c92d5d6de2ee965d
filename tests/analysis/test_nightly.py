"""Nightly runs: baseline, history, rate of false alarms, and written files."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from analysis_synthetic import known
from runset_synthetic import ENGINE, TOR, make_set

from analysis.comparison.history import SCHEMA, read_history, write_history
from analysis.comparison.run_sets import RunSet, TorBuild
from analysis.errors import AnalysisError
from analysis.formats.plan_file import Request, Resources
from analysis.pages.night import Night, html, junit, markdown
from onionlab.cli import build_parser
from onionlab.commands.nightly import baseline_command
from onionlab.errors import UserError
from onionlab.experiment.nightly_list import NightlyList
from onionlab.questions import nightly
from onionlab.questions.nightly import NightPaths, PreparedEntry
from onionlab.runs.plan import Plan

SEEDS = range(1, 11)
START = datetime(2026, 1, 1, 3, 0, tzinfo=UTC)


def nightly_list(**more: Any) -> NightlyList:
    return NightlyList.model_validate({"experiments": [{"name": "quick"}], **more})


class Machine:
    """Runs nights (nightly runs) on synthetic sets of runs.

    If ``fails_at`` is n > 0, the n-th measurement of an experiment is interrupted. ``key`` is the
    key of the baseline. Real nightly runs use a hash of ``inputs`` as this key.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nights = 0
        self.measured = 0
        self.fails_at = 0
        self.key = "key1"
        self.inputs: dict[str, Any] = {}

    def night(
        self, made: RunSet, *, accept: bool = False, nights: NightlyList | None = None, **more: Any
    ) -> tuple[Night, NightPaths]:
        def prepare(root: Path, entry: Any, overrides: Request, *, only_tor: bool) -> PreparedEntry:
            resources = Resources(0, 0, 0)
            plan = Plan(overrides, (), root / "runs", root / "results", 1, resources)
            return PreparedEntry(entry, plan, self.key, self.inputs)

        def measure(*_: object) -> RunSet:
            self.measured += 1
            if self.measured == self.fails_at:
                raise KeyboardInterrupt
            return made

        self.nights += 1
        now = START + timedelta(days=self.nights)
        with mock.patch.multiple(
            nightly, prepare_entry=prepare, measure_entry=measure, utc_now=lambda: now
        ):
            how: dict[str, Any] = {"state": self.root / "nightly", "where": None, **more}
            lists = nights or nightly_list()
            return nightly.run_nightly(self.root, lists, Request(""), update_baseline=accept, **how)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    # Do not draw plots, which take most of a night's time. test_pages_in_browser.py draws one.
    monkeypatch.setattr(nightly, "write_forest", lambda compared, base: None)
    return Machine(tmp_path)


def test_without_a_baseline_nothing_runs(machine: Machine) -> None:
    with pytest.raises(UserError, match="quick has no baseline") as refused:
        machine.night(make_set())
    command = "make nightly UPDATE_BASELINE=1"
    accept = "make this night's runs the baseline of the whole list"
    assert refused.value.hint == f"{accept}: {command}"
    with pytest.raises(UserError) as refused:
        machine.night(make_set(), baseline_command=f"{command} STATE_DIR='my state'")
    assert str(refused.value.hint).endswith(f"{command} STATE_DIR='my state'")
    assert machine.measured == 0
    machine.night(make_set(), accept=True)
    assert machine.night(make_set())[0].results[0].comparison is not None
    machine.key = "key2"
    with pytest.raises(UserError, match="there are 1 for another engine"):
        machine.night(make_set())


def test_an_interrupted_night_changes_neither_baselines_nor_history(machine: Machine) -> None:
    both = nightly_list(experiments=[{"name": "quick"}, {"name": "swrr"}])
    _, paths = machine.night(make_set(), accept=True, nights=both)
    summaries = (paths.markdown, paths.html, paths.junit)
    assert all(path.exists() for path in summaries)

    def written() -> dict[Path, bytes]:
        files = [path for path in (machine.root / "nightly").rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in files}

    before = written()
    machine.fails_at = machine.measured + 2
    with pytest.raises(KeyboardInterrupt):
        machine.night(make_set(noise_seed=2), accept=True, nights=both)
    assert written() == before
    # The earlier summaries are removed, because they could be taken for the results of this night.
    assert not any(path.exists() for path in summaries)


def test_the_suggested_baseline_command_has_the_given_arguments() -> None:
    parser = build_parser("nightly")
    given = ["--state-dir", "my state", "--config", "my.yaml", "--seeds", "3,4", "--engine", "uml"]
    made = baseline_command(parser.parse_args(["nightly", *given, "--shadow", "/it's"]))
    assert shlex.split(made) == [
        *("make", "nightly", "UPDATE_BASELINE=1", "CONFIG=my.yaml", "STATE_DIR=my state"),
        *("NETWORKS=3,4", "ENGINE=uml", "SHADOW=/it's"),
    ]
    assert baseline_command(parser.parse_args(["nightly"])) == "make nightly UPDATE_BASELINE=1"


def test_identical_bytes_are_not_a_change_of_behaviour(machine: Machine) -> None:
    machine.night(make_set(records="same"), accept=True)
    night, paths = machine.night(make_set(records="same", project="0.1.0 after-refactoring"))
    (result,) = night.results
    assert known(result.comparison).identical
    assert result.repeated
    assert not night.alarm
    assert "No behavioural change" in paths.markdown.read_text()
    case = known(ET.parse(paths.junit).getroot().find("./testsuite/testcase"))
    assert "byte-identical" in case.attrib["name"]
    assert set(read_history(paths.history)["verdict"].to_pylist()) == {"", "identical"}


def test_a_planted_change_raises_the_alarm(machine: Machine) -> None:
    machine.night(make_set(seeds=SEEDS), accept=True)
    tor = {"tor-circuit-policy": TorBuild(version="0.4.9.12", sha256="cd" * 32)}
    night, paths = machine.night(make_set(seeds=SEEDS, effect=1.1, noise_seed=9, tor=tor))
    assert night.alarm
    page = paths.markdown.read_text()
    assert "**ALARM** Regression" in page
    assert "tor: version: 0.4.9.11 / 0.4.9.12" in page
    root = ET.parse(paths.junit).getroot()
    (suite,) = root
    assert int(suite.attrib["failures"]) == len(root.findall(".//failure")) == 2
    assert int(suite.attrib["tests"]) == len(root.findall(".//testcase")) == 4
    assert "<strong>Alarm.</strong>" in paths.html.read_text()


def test_a_night_reports_its_smallest_detectable_change(machine: Machine) -> None:
    """With four networks, a change of 20% is too small to be shown.

    The night reports that only larger changes would raise an alarm.
    """
    first, _ = machine.night(make_set(seeds=range(1, 5), noise=0.05), accept=True)
    assert "times the standard deviation" in first.results[0].sees
    planted = make_set(seeds=range(1, 5), noise=0.05, noise_seed=3, effect=1.2)
    night, paths = machine.night(planted)
    (result,) = night.results
    assert not night.alarm
    sizes = _sizes(night)
    assert len(sizes) == len(known(result.comparison).endpoints) == 4
    assert all(sizes[name] > 1.2 for name in sizes if name.startswith(("ttfb", "time_to")))
    page = paths.markdown.read_text()
    assert "With 4 networks, a deterioration of a single endpoint raises an alarm in" in page
    times = "\N{MULTIPLICATION SIGN}"
    assert f"| {times}{sizes['ttfb_p50_s']:.2f} |" in page
    # A lower throughput is worse, so the page shows a factor below 1.
    (throughput,) = (size for name, size in sizes.items() if name.startswith("goodput"))
    assert throughput > 1
    assert f"| {times}{1 / throughput:.2g} |" in page
    assert f"{times}{sizes['ttfb_p50_s']:.2f}" in paths.html.read_text()
    # With enough networks, the same change raises an alarm.
    machine.night(make_set(seeds=range(1, 31), noise=0.05), accept=True)
    seen, _ = machine.night(make_set(seeds=range(1, 31), noise=0.05, noise_seed=3, effect=1.2))
    assert seen.alarm
    assert max(size for name, size in _sizes(seen).items() if name != "timeout_rate") < 1.2


def _sizes(night: Night) -> dict[str, float]:
    """Return the smallest detectable change of each endpoint."""
    judged = night.results[0].judged.judged
    return {row.judgement.metric.name: row.judgement.verdict.detectable or 0.0 for row in judged}


def test_a_step_points_to_its_commits(machine: Machine) -> None:
    """The step is too small for an alarm of a single night against the baseline.

    The history of all nights shows the step, and the two commits between which it occurred.
    """
    machine.night(make_set(seeds=SEEDS, project="0.1.0 c0"), accept=True)
    sets = (
        make_set(seeds=SEEDS, noise_seed=n + 50, effect=effect, project=f"0.1.0 c{n}")
        for n, effect in enumerate([1.0] * 11 + [1.012] * 13, 1)
    )
    nights = [machine.night(made) for made in sets]
    assert not any(night.alarm for night, _ in nights)
    made, paths = nights[-1]
    worst = [step for step in made.steps if step.metric.startswith(("ttfb", "time_to"))]
    assert all(step.worse for step in worst)
    places = [(step.last_before[1], step.first_after[1]) for step in worst]
    assert ("0.1.0 c11", "0.1.0 c12") in places
    assert all(step.ratio == pytest.approx(1.012, abs=0.006) for step in worst)
    assert "worse: Time to" in paths.markdown.read_text()
    assert "[0.1.0 c12]" in paths.html.read_text()


def test_a_change_of_networks_is_not_a_step(machine: Machine) -> None:
    """A change of values is not a step if the networks changed, because networks differ widely.

    Nights on other networks do not hide a step on the usual networks. After such nights, a step
    that was reported before does not count as new.
    """
    others = iter(range(100, 1000, 10))

    def usual(count: int, effect: float = 1.0) -> Night:
        def night() -> Night:
            made = make_set(seeds=SEEDS, noise_seed=machine.nights + 50, effect=effect)
            return machine.night(made, accept=machine.nights == 0)[0]

        return [night() for _ in range(count)][-1]

    def other(count: int) -> Night:
        # A real night has few networks, whose values can differ by 30% from those of other
        # networks.
        sets = [
            make_set(seeds=range(n, n + 10), effect=1.3) for n in itertools.islice(others, count)
        ]
        return [machine.night(made)[0] for made in sets][-1]

    usual(15)
    assert not other(1).steps
    assert not other(14).steps
    assert not usual(5).steps
    assert not other(1).steps
    stepped = usual(1, effect=1.05).steps
    times = {"ttfb_p50_s", "time_to_320kib_p50_s"}
    assert times <= {step.metric for step in stepped if step.new and step.worse}
    # Only nights on the usual networks count, so the last night before the step is one of these.
    assert {step.last_before[0] for step in stepped} == {"2026-02-05T03:00:00Z"}
    again = other(1).steps
    assert times <= {step.metric for step in again}
    assert not any(step.new for step in again)


def test_nights_of_the_same_bytes_count_once(machine: Machine) -> None:
    """A night that only repeats the records of earlier nights adds no information."""
    machine.night(make_set(seeds=SEEDS), accept=True)
    for _ in range(30):
        machine.night(make_set(seeds=SEEDS))
    other = make_set(seeds=SEEDS, noise_seed=77)
    made, paths = [machine.night(other) for _ in range(30)][-1]
    assert not made.steps
    assert read_history(paths.history).num_rows == 61 * 9


def test_metrics_without_values(machine: Machine) -> None:
    """If all streams time out, times have no value.

    The night is then undecided, and its summaries are still written.
    """
    times = ("ttfb_p50_s", "ttfb_p90_s", "ttfb_p99_s")
    machine.night(make_set(), accept=True)
    night, paths = machine.night(make_set(missing=times, noise_seed=2))
    assert not night.alarm
    assert "8 of 8 pairs lack a value" in paths.markdown.read_text()
    assert len(ET.parse(paths.junit).getroot().findall(".//skipped")) >= 1
    for path in (paths.markdown, paths.html, paths.junit):
        assert "nan" not in path.read_text().lower().replace("nanosecond", "")


@pytest.mark.parametrize(
    "change",
    [
        {"values": []},
        {"values": [None, 1.0, 1.0, 1.0]},
        {"values": [math.nan, 1.0, 1.0, 1.0]},
        {"estimate": 2.5},
        {"seeds": [1, 1, 2, 3]},
        {"seeds": None},
    ],
)
def test_a_history_of_wrong_values_is_refused_before_anything_runs(
    machine: Machine, change: dict[str, Any]
) -> None:
    _, paths = machine.night(make_set(seeds=range(1, 5)), accept=True)
    *rows, last = read_history(paths.history).to_pylist()
    for content, problem in (
        ([*rows, {**last, **change}], ".*row 9"),
        ([*rows, last, last], "the night .* of quick has .* more than once"),
    ):
        write_history(paths.history, pa.Table.from_pylist(content, schema=SCHEMA))
        with pytest.raises(UserError, match=rf"history\.parquet is damaged: {problem}") as refused:
            machine.night(make_set(seeds=range(1, 5)))
        assert "restore the history" in (refused.value.hint or "")
    assert machine.measured == 1
    paths.history.write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"history\.parquet cannot be read"):
        machine.night(make_set())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:100], "is not valid JSON"),
        (lambda text: text.replace('"seed": 3', '"seed": 33'), "is damaged"),
        (lambda text: json.dumps({**json.loads(text), "sha256": ""}), "is damaged"),
    ],
)
def test_a_damaged_baseline_is_refused(
    machine: Machine, change: Callable[[str], str], message: str
) -> None:
    machine.night(make_set(), accept=True)
    (path,) = (machine.root / "nightly" / "baselines").iterdir()
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match=message) as refused:
        machine.night(make_set())
    assert (refused.value.hint or "").startswith("restore it from a copy, or make this night's")
    assert machine.measured == 1


def test_names_are_escaped() -> None:
    night = Night("<b>", 'a "quoted" & <name>', 2.0, 365, 1.0)
    assert "<b>" not in html(night)
    assert ET.fromstring(junit(night).split("?>", 1)[1]).tag == "testsuites"
    assert "None." in markdown(night)


def test_a_step_of_nights_with_one_run(machine: Machine) -> None:
    sets = [
        make_set(seeds=(1,), noise_seed=number + 50, effect=1.5 if number >= 40 else 1.0)
        for number in range(44)
    ]
    made, paths = [machine.night(one, accept=one is sets[0]) for one in sets][-1]
    times = {"ttfb_p50_s", "time_to_320kib_p50_s"}
    assert times <= {step.metric for step in made.steps}
    # The timeout rate was constant in all nights. So its noise is unknown, and the rate is not
    # searched for steps.
    assert (made.unsearched, made.series) == (1, 4)
    assert "1 of 4 time series cannot be searched" in paths.markdown.read_text()


def test_one_network_and_two_samples(machine: Machine) -> None:
    made, paths = machine.night(make_set(seeds=(1,)), accept=True)
    assert made.results[0].sees.startswith("A single network cannot raise an alarm")
    assert made.unsearched == made.series == 4
    text = "No time series can be searched for steps yet, because their noise is unknown."
    assert text in paths.markdown.read_text()
    assert text in paths.html.read_text()
    night, _ = machine.night(make_set(seeds=(1,), effect=5.0))
    assert not night.alarm
    assert night.results[0].sentence.startswith("Not settled")
    machine.night(make_set(seeds=SEEDS), accept=True)
    other, _ = machine.night(make_set(seeds=range(31, 41), noise_seed=3))
    (result,) = other.results
    assert (other.alarm, known(result.comparison).paired) == (False, False)
    assert result.judged.spreads_shown is None
    assert "With 10 networks" in result.sees
    # Another engine changes the baseline's key. In this test the key stays the same, and the
    # comparison refuses the other engine.
    with pytest.raises(UserError, match=r"engine: version: 3\.3\.0 / 3\.4\.0"):
        machine.night(make_set(seeds=SEEDS, engine={**ENGINE, "version": "3.4.0"}))


def test_a_night_without_endpoints_names_what_differs(machine: Machine) -> None:
    def without_endpoints(made: RunSet) -> RunSet:
        content = made.content()
        kept = [v for v in content["values"] if v["metric"] == "timeout_rate"]
        content["values"] = [v | {"metric": "failure_rate"} for v in kept]
        return RunSet.model_validate(content)

    machine.night(without_endpoints(make_set()), accept=True)
    other = TorBuild(version="0.4.9.9", sha256="1" * 64, source="")
    tor = dict.fromkeys(TOR, other)
    night, paths = machine.night(without_endpoints(make_set(noise_seed=3, tor=tor)))
    assert night.results[0].rows == []
    assert "- differs from the baseline: tor: " in paths.markdown.read_text()
    assert "Differs from the baseline: tor: " in paths.html.read_text()


def test_history_has_a_row_for_each_metric(machine: Machine) -> None:
    content = make_set(seeds=(3, 1)).content()
    negative = {"metric": "last_three_lead", "value": -0.04}  # a difference of two shares
    content["values"] += [{**content["values"][0], **negative, "seed": seed} for seed in (3, 1)]
    _, paths = machine.night(RunSet.model_validate(content), accept=True)
    assert read_history(paths.history)["metric"].to_pylist().count("last_three_lead") == 1
    table = pq.read_table(paths.history)
    row = next(row for row in table.to_pylist() if row["metric"] == "ttfb_p50_s")
    assert row["seeds"] == [1, 3]
    assert row["estimate"] == pytest.approx(np.mean(row["values"]))
    assert (row["night"], row["tor"]) == ("2026-01-02T03:00:00Z", TOR["tor-circuit-policy"].version)
    assert row["project"] == "0.1.0 c0ffee"
    pq.write_table(table.replace_schema_metadata({}), paths.history)
    with pytest.raises(AnalysisError, match="is not a history of format"):
        read_history(paths.history)


def test_experiments_share_the_rate_of_false_alarms() -> None:
    made = nightly_list(false_alarms_per_year=3.65, experiments=[{"name": "a"}, {"name": "b"}])
    assert made.level_per_experiment == pytest.approx(0.01 / 2)
