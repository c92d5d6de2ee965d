"""The driver: what it refuses before it starts, and what it shows meanwhile."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from analysis.formats.attempt import RunState
from analysis.formats.files import PROGRESS, RECORDS
from analysis.formats.json_files import write_json
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.engines.shadow.engine import _simulated_seconds
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.runs.plan import Plan, read_plan
from onionlab.runs.resources import estimate_resources
from onionlab.runs.store import Store
from onionlab.runs.workflow import drive
from onionlab.runs.workflow.progress import ProgressView

REPOSITORY = Path(__file__).resolve().parents[2]

AT_S = {"interrupted": 999.0, "at work": 1000.5}


def plan_needing(tmp_path: Path, *, memory_bytes: int = 1, disk_bytes: int = 1) -> Plan:
    return Plan(
        request=Request("quick"),
        runs=(),
        store=tmp_path / "runs",
        out=tmp_path / "results",
        cpus_per_run=1,
        resources=Resources(memory_bytes, disk_bytes, processes=10),
    )


def test_too_little_memory_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"one run needs about 1048576.0 GiB of memory, and"):
        drive._require_resources(plan_needing(tmp_path, memory_bytes=2**50), 1)


def test_too_little_disk_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"2 runs side by side need about .* GiB of disk"):
        drive._require_resources(plan_needing(tmp_path, disk_bytes=2**60), 2)


def test_nothing_is_needed_where_nothing_is_missing(tmp_path: Path) -> None:
    drive._require_resources(plan_needing(tmp_path, memory_bytes=2**50), 0)


def test_the_full_network_is_estimated_above_what_it_was_measured_to_take() -> None:
    # One full-size run held 1.9 GB of private memory at its peak (docs/explanation/performance.md).
    full = estimate_resources(load("swrr-5mid", root=REPOSITORY))
    assert 1.9e9 < full.memory_bytes < 5e9
    small = estimate_resources(load("swrr-5mid", root=REPOSITORY).with_overrides(scale=0.1))
    assert 0.38e9 < small.memory_bytes < 1e9
    assert full.processes == 3 + 34 + 2 * 400 + 100


@pytest.mark.parametrize("text", ["", "{}", '{"format": 99}', '{"format": 1}'])
def test_a_broken_plan_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UserError, match="is no plan"):
        read_plan(tmp_path / "plan.json")


def state(simulated_s: float) -> RunState:
    return RunState("5mid rr seed 1", simulated_s, 600.0, 100.0, 300 * 2**20, 0.0)


def test_off_a_terminal_progress_is_plain_lines() -> None:
    out = io.StringIO()
    with ProgressView(2, Console(file=out, force_terminal=False, width=60)) as view:
        view.show(0, [state(200)])
        view.show(0, [state(201)])
        view.show(1, [])
    lines = out.getvalue().splitlines()
    assert lines == [
        "[0:00] 0/2 runs done; 5mid rr seed 1: 200/600 s simulated at 2.0 s/s, 3:20 left, 300 MiB",
        "[0:00] 1/2 runs done",
    ]


def test_the_time_left_is_told_from_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 1000 s two runs of ten, and two more by a quarter: 2.5 runs; 7.5 runs are to come."""
    now = iter([0.0, 10.0, 1000.0, 1000.0, 4000.0])
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr("onionlab.runs.workflow.progress.time", clock)
    out = io.StringIO()
    with ProgressView(10, Console(file=out, force_terminal=False)) as view:
        view.show(0, [state(150)])
        view.show(2, [state(150), state(150)])
        view.show(10, [])
    first, second, last = out.getvalue().splitlines()
    assert first.startswith("[0:10] 0/10 runs done; 5mid")
    assert second.startswith("[16:40] 2/10 runs done, about 50:00 left; 5mid")
    assert last == "[1:06:40] 10/10 runs done"


def test_on_a_terminal_progress_is_a_table() -> None:
    out = io.StringIO()
    with ProgressView(2, Console(file=out, force_terminal=True, width=100)) as view:
        view.show(0, [state(200)])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "5mid rr seed 1" in text
    assert "200 of 600 s" in text
    assert "3:20" in text


def test_an_interrupted_attempt_is_not_shown_as_running(tmp_path: Path) -> None:
    store = Store(tmp_path)
    states = {name: RunState(name, 1.0, 255.0, 10.0, 2**20, at) for name, at in AT_S.items()}
    for name, state in states.items():
        write_json(store.partial(name) / PROGRESS, asdict(state))
    shown = drive.running_states(store, [*AT_S, "not begun"], since_s=1000.0)
    assert shown == [states["at work"]]


# Stands in for Python: the calls of `run-one` and `analyse` that the workflow makes.
JOB = """\
#!/bin/sh
case "$3" in
run-one)
    echo "$9 $7" >>'{calls}'
    echo "$PYTHONPATH" >'{calls}.path'
    case "$9" in *bad*) exit 1 ;; esac
    mkdir -p '{store}'/"$9" && echo '{{}}' >'{store}'/"$9"/manifest.json ;;
analyse)
    echo "$5" >>'{calls}'
    mkdir -p "$5"/{records} && echo '{{}}' >"$5"/{records}/parse.json ;;
esac
"""


class Workflow:
    """Two plans that share a run, carried out by Snakemake with jobs that only say so."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.calls = tmp_path / "runs", tmp_path / "calls"
        self.store.mkdir()
        self.root = tmp_path
        job = tmp_path / "job"
        job.write_text(JOB.format(calls=self.calls, store=self.store, records=RECORDS))
        job.chmod(0o755)
        of_plans = drive._workflow_config
        monkeypatch.setattr(
            drive,
            "_workflow_config",
            lambda root, plans: {**of_plans(root, plans), "python": str(job)},
        )
        # Names in an order of their own, so that no other order is that of the seeds by chance.
        self.plans = [
            self.plan("one", {"c1": 1, "a2": 2, "b3": 3}),
            self.plan("two", {"d1": 1, "a2": 2, "0e3": 3}),
        ]

    def plan(self, name: str, runs: dict[str, int]) -> Plan:
        out = self.root / "results" / "plans" / name
        planned = tuple(PlannedRun(run, name, "rr", seed) for run, seed in runs.items())
        return Plan(Request(name), planned, self.store, out, 1, Resources(1, 1, 1))

    def make(self) -> list[list[str]]:
        """The calls of the jobs, one job at a time."""
        drive.make_runs(self.root, self.plans, jobs=1, say=lambda line: None)
        return [line.split() for line in self.calls.read_text().splitlines()]


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workflow:
    return Workflow(tmp_path, monkeypatch)


def test_runs_are_made_seed_after_seed_and_once(workflow: Workflow) -> None:
    calls = workflow.make()
    simulated = [call[0] for call in calls if len(call) == 2]
    assert sorted(simulated) == ["0e3", "a2", "b3", "c1", "d1"]
    assert [run[-1] for run in simulated] == ["1", "1", "2", "3", "3"]
    plans = {run: Path(plan).parent.name for run, plan in (call for call in calls if call[1:])}
    assert (plans["c1"], plans["b3"]) == ("one", "one")
    assert (plans["d1"], plans["0e3"]) == ("two", "two")
    # Records come right after their run: whoever stops has them of all runs that are there.
    assert [len(call) for call in calls] == [2, 1] * 5
    assert (workflow.root / "results" / "plans" / "workflow.log").is_file()


@pytest.mark.slow
def test_runs_that_are_there_are_not_made_again(workflow: Workflow) -> None:
    workflow.make()
    workflow.calls.write_text("")
    assert workflow.make() == []
    shutil.rmtree(workflow.store / "b3")
    assert [call[0] for call in workflow.make() if len(call) == 2] == ["b3"]


def test_a_run_that_fails_leaves_the_others(workflow: Workflow) -> None:
    workflow.plans.append(workflow.plan("three", {"bad1": 1, "f1": 1}))
    with pytest.raises(UserError, match="the workflow failed"):
        workflow.make()
    assert {path.parent.name for path in workflow.store.glob("*/manifest.json")} == {
        *("0e3", "a2", "b3", "c1", "d1", "f1")
    }


def test_a_checkout_may_lie_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces and whatever else a shell or a pattern would read; it runs its own code."""
    root = tmp_path / 'a folder, müßig & $(so) [*] "on"'
    root.mkdir()
    monkeypatch.setenv("PYTHONPATH", "/other")
    workflow = Workflow(root, monkeypatch)
    workflow.make()
    assert {path.parent.name for path in workflow.store.glob("*/manifest.json")} == {
        *("0e3", "a2", "b3", "c1", "d1")
    }
    assert (root / "calls.path").read_text() == f"{REPOSITORY}:/other\n"


def test_a_brace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "{a}").mkdir()
    with pytest.raises(UserError, match=r"\{a\}/runs has a brace in it"):
        Workflow(tmp_path / "{a}", monkeypatch).make()


def test_nothing_is_left_before_the_first_heartbeat() -> None:
    assert state(0).left_s is None


def test_the_simulated_time_is_that_of_the_last_heartbeat(tmp_path: Path) -> None:
    log = tmp_path / "shadow.log"
    log.write_text("")
    simulated = _simulated_seconds(log)
    assert next(simulated) == 0
    with log.open("a") as out:
        out.write("[INFO] Process resource usage at simtime 5000000000 reported by getrusage()\n")
        out.write("[INFO] Process resource usage at simtime 10000000000 reported by getrusage()\n")
    assert next(simulated) == 10
    assert next(simulated) == 10
