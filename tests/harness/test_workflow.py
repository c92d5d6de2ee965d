"""The driver of the Snakemake workflow: errors before runs start, jobs, and the progress view."""

from __future__ import annotations

import contextlib
import errno
import io
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from rich.console import Console

from analysis.formats.attempt import RunState
from analysis.formats.files import PROGRESS, RECORDS
from analysis.formats.json_files import read_json, write_json
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.runs.costs.estimate import estimate_resources
from onionlab.runs.plan import Plan
from onionlab.runs.store import Store
from onionlab.runs.workflow import drive
from onionlab.runs.workflow.executor import JobSize
from onionlab.runs.workflow.progress import ProgressView

from .fake_jobs import FakeJobs

REPOSITORY = Path(__file__).resolve().parents[2]


def plan_needing(tmp_path: Path, *, memory_bytes: int = 1) -> Plan:
    return Plan(
        request=Request("quick"),
        runs=(),
        store=tmp_path / "runs",
        out=tmp_path / "results",
        cpus_per_run=1,
        resources=Resources(memory_bytes, disk_bytes=1, processes=10),
    )


def test_too_little_memory_is_reported_before_any_run_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"one run needs about 1048576 GiB of memory, and"):
        drive._require_memory(plan_needing(tmp_path, memory_bytes=2**50))


def test_the_full_network_is_estimated_above_its_measured_memory(tmp_path: Path) -> None:
    # A full-size run had 1.9 GB of private memory at its peak (docs/explanation/performance.md).
    experiment = load("swrr-5mid", root=REPOSITORY)
    # This checkout has no finished runs, because their measured costs would replace the estimate.
    (tmp_path / "tor-patches").symlink_to(REPOSITORY / "tor-patches")
    full = estimate_resources(tmp_path, experiment, "shadow")
    assert 1.9e9 < full.memory_bytes < 5e9
    small = estimate_resources(tmp_path, experiment.with_overrides(scale=0.1), "shadow")
    # At a tenth of the size, 335 MB were measured.
    assert 0.335e9 < small.memory_bytes < 1e9
    assert full.processes == 3 + 34 + 2 * 400 + 100


def state(simulated_s: float) -> RunState:
    return RunState("5mid rr seed 1", simulated_s, 600.0, 100.0, 300 * 2**20, 0.0)


def numbered(*states: RunState) -> dict[str, RunState]:
    return {str(number): one for number, one in enumerate(states)}


def show(total: int, *shown: tuple[int, list[RunState], list[str]]) -> list[str]:
    """Return the lines that a progress view prints if its output is not a terminal.

    shown: for each update, the number of finished runs, the states of the runs in progress, and the
    processes that hold CPUs.
    """
    out = io.StringIO()
    with ProgressView(total, Console(file=out, force_terminal=False, width=60)) as view:
        for done, states, holders in shown:
            view.show(done, numbered(*states), holders)
    return out.getvalue().splitlines()


def test_off_a_terminal_progress_is_plain_lines() -> None:
    assert show(2, (0, [state(200)], []), (0, [state(201)], []), (1, [], [])) == [
        "[0:00] 0/2 runs done; 5mid rr seed 1: 200/600 s simulated at 2 s/s, 3:20 left, 300 MiB",
        "[0:00] 1/2 runs done",
    ]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the times at which a view is created and then updated."""

    def set_to(*times_s: float) -> None:
        now = iter(times_s)
        clock = SimpleNamespace(monotonic=lambda: next(now))
        monkeypatch.setattr("onionlab.runs.workflow.progress.time", clock)

    return set_to


def test_the_remaining_time_follows_from_the_work_done(set_clock: Callable[..., None]) -> None:
    """After 1000 s, 2 of 10 runs are finished and 2 are a quarter done. So 7.5 runs remain."""
    set_clock(0.0, 10.0, 1000.0, 4000.0)
    first, second, last = show(
        10, (0, [state(150)], []), (2, [state(150), state(150)], []), (10, [], [])
    )
    assert first.startswith("[0:10] 0/10 runs done; 5mid")
    assert second.startswith("[16:40] 2/10 runs done, about 50:00 left; 5mid")
    assert last == "[1:06:40] 10/10 runs done"


def test_waiting_does_not_count_as_work(set_clock: Callable[..., None]) -> None:
    """The first of four runs takes 1000 s.

    The second run then waits for 5000 s. For the first 4000 s nothing else runs, and for the last
    1000 s a third run works.
    """
    set_clock(0.0, 1000.0, 5000.0, 6000.0)
    waits = replace(state(0), stop_s=0.0, waiting=True)
    first, second, third = show(
        4, (1, [], []), (1, [waits], ["CPU 0 is held by another run"]), (1, [waits, state(300)], [])
    )
    assert first == "[16:40] 1/4 runs done, about 50:00 left"
    assert second.startswith("[1:23:20] 1/4 runs done, about 50:00 left; 5mid rr seed 1: waits")
    # In the last 1000 s one of two runs worked, so half of this time counts as work. The run is
    # half finished, so 2.5 runs remain.
    assert third.startswith("[1:40:00] 1/4 runs done, about 42:00 left; 5mid rr seed 1: waits")


def test_waiting_runs_and_who_holds_the_cpus_are_shown_in_lines_and_in_a_table() -> None:
    waits = replace(state(0), stop_s=0.0, waiting=True)
    holders = ["CPU 0 is held by ann's process 7 ([b]quick: x[/b])"]
    assert show(2, (0, [], holders), (0, [waits], holders), (0, [waits], holders)) == [
        "[0:00] 0/2 runs done",
        f"[0:00] 0/2 runs done; 5mid rr seed 1: waits for a CPU; {holders[0]}",
    ]
    table = io.StringIO()
    with ProgressView(2, Console(file=table, force_terminal=True, width=100)) as view:
        view.show(0, numbered(waits, state(200)), holders)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", table.getvalue())
    for shown in ("waits for a CPU", holders[0], "5mid rr seed 1", "200 of 600 s", "3:20"):
        assert shown in text


def test_an_interrupted_attempt_is_not_shown_as_running(tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun = [replace(state(1.0), title="interrupted", at_s=999.0),
             replace(state(1.0), title="at work", at_s=1000.5)]  # fmt: skip
    for one in begun:
        write_json(store.partial(one.title) / PROGRESS, asdict(one))
    names = ["interrupted", "at work", "not begun"]
    assert drive.running_states(store, names, since_s=1000.0) == {"at work": begun[1]}


MADE = {"0e3", "a2", "b3", "c1", "d1"}
"""The names of all runs in the two plans of ``Workflow``."""


class Workflow(FakeJobs):
    """A workflow with two plans, which have a common run."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(
            tmp_path, monkeypatch, option="--records", size=JobSize(1, 1, 1, disk_mb=1)
        )
        # The order by name differs from the order by network, so tests see which order is used.
        self.plans = [
            self.plan("one", {"c1": 1, "a2": 2, "b3": 3}),
            self.plan("two", {"d1": 1, "a2": 2, "0e3": 3}),
        ]

    def plan(self, name: str, runs: dict[str, int]) -> Plan:
        out = self.root / "results" / "plans" / name
        planned = tuple(PlannedRun(run, name, "rr", seed) for run, seed in runs.items())
        return Plan(Request(name), planned, self.store, out, 1, Resources(1, 1, 1))

    def make(self) -> list[str]:
        """Make the runs with one job at a time. Return the runs of all jobs so far."""
        drive.make_runs(self.root, self.plans, 1)
        return self.lines("calls")


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workflow:
    """Return a workflow in a path with spaces and characters that shells and patterns interpret."""
    root = tmp_path / "a folder, müßig & (so) [*] 'on'"
    root.mkdir()
    return Workflow(root, monkeypatch)


def test_runs_are_made_network_by_network_and_once(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/other")
    runs = workflow.make()
    assert sorted(runs) == sorted(MADE)
    assert workflow.finished() == MADE
    assert [run[-1] for run in runs] == ["1", "1", "2", "3", "3"]
    names = (Path(plan).parent.name for plan in workflow.lines("plans"))
    plans = dict(zip(runs, names, strict=True))
    assert (plans["c1"], plans["b3"]) == ("one", "one")
    assert (plans["d1"], plans["0e3"]) == ("two", "two")
    assert (workflow.root / "results" / "plans" / "workflow.log").is_file()
    # Jobs import the code of the command that starts them before any code in PYTHONPATH.
    assert workflow.lines("path") == [f"{REPOSITORY}:/other"]
    # Runs that a power failure has damaged are repeated.
    (workflow.store / "b3" / "manifest.json").write_text("")
    (workflow.store / "c1" / RECORDS / "parse.json").write_text("")
    (workflow.store / "d1" / "manifest.json").unlink()
    assert sorted(workflow.make()[len(runs) :]) == ["b3", "c1", "d1"]


def test_a_run_that_fails_leaves_the_others(workflow: Workflow) -> None:
    workflow.plans.append(workflow.plan("three", {"bad1": 1, "f1": 1}))
    with pytest.raises(UserError, match="the workflow failed"):
        workflow.make()
    assert workflow.finished() == {*MADE, "f1"}


def test_too_little_disk_for_all_missing_runs_is_reported(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished runs stay, so the disk needs room for all missing runs, not only concurrent ones."""
    free_gib = [3.1]
    monkeypatch.setattr(
        "shutil.disk_usage", lambda _: SimpleNamespace(free=int(free_gib[0] * 2**30))
    )
    workflow.size = JobSize(1, 1, 1, disk_mb=1024)
    need = r"5 missing runs need about 3.2 GiB of disk, and 3.1 GiB are free below .*/runs\n"
    with pytest.raises(UserError, match=need) as caught:
        workflow.make()
    assert str(caught.value.hint).startswith("free about 102 MiB there, request fewer runs")
    assert workflow.lines("calls") == []
    free_gib[0] = 3.3
    workflow.make()
    free_gib[0] = 1.1
    shutil.rmtree(workflow.store / "c1")
    with pytest.raises(UserError, match=r"the missing run needs about 1.2 GiB of disk"):
        workflow.make()


@pytest.mark.parametrize("other", ["b3", "bad1"])
def test_a_run_that_another_command_finishes_keeps_its_files(
    workflow: Workflow, other: str
) -> None:
    """Another command finishes the run before the run's own job starts. This job may also fail."""
    workflow.plans = [workflow.plan("one", {"a1": 1, other: 2})]
    (workflow.root / "other").write_text(other)
    with pytest.raises(UserError) if other == "bad1" else contextlib.nullcontext():
        workflow.make()
    assert workflow.lines("calls") == ["a1", other]
    records = workflow.store / other / RECORDS / "parse.json"
    assert read_json(records) == {"other": 1}


def test_a_run_without_records_and_one_that_was_removed_are_made(workflow: Workflow) -> None:
    runs = workflow.make()
    (workflow.store / "b3" / RECORDS / "parse.json").unlink()
    shutil.rmtree(workflow.store / "d1")
    # A killed command leaves its markers.
    (workflow.plans[0].out / ".made").mkdir()
    (workflow.plans[0].out / ".made" / "d1").touch()
    assert sorted(workflow.make()[len(runs) :]) == ["b3", "d1"]
    assert (workflow.store / "b3" / RECORDS / "parse.json").exists()
    assert workflow.make()[len(runs) + 2 :] == []
    assert not (workflow.plans[0].out / ".made").exists()


def test_the_report_is_made_also_if_no_run_is_missing(workflow: Workflow) -> None:
    for made in (1, 2):
        drive.make_report(workflow.root, workflow.plan("one", {"c1": 1, "a2": 2}), 1)
        assert workflow.lines("calls") == ["c1", "a2"]
        assert len(workflow.lines("reports")) == made


def test_a_command_states_what_it_makes_and_what_an_interrupt_keeps(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(process: object, store: Store, missing: list[str], **_: bool) -> None:
        store.manifest("c1").parent.mkdir()
        store.manifest("c1").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(drive, "_watch", interrupted)
    kept = pytest.raises(KeyboardInterrupt, match=r"1 of 5 runs are finished and stay in .*/runs; ")
    with Store(workflow.store).exclusive("d1"), kept:
        workflow.make()
    assert caplog.messages == [
        "5 runs: 0 finished, 5 to make, 1 at a time",
        "note: another command is making 1 of them; this one waits for it",
    ]


def test_no_job_outlives_an_interrupted_command(tmp_path: Path) -> None:
    snakemake = subprocess.Popen(
        [
            *("bash", "-c"),
            'trap "exit 0" TERM; (trap "" TERM; exec sleep 300) & echo $! > job; touch ready; wait',
        ],
        cwd=tmp_path,
        start_new_session=True,
    )
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    job = psutil.Process(int((tmp_path / "job").read_text()))
    drive._Workflow(tmp_path, [plan_needing(tmp_path)], None)._end(snakemake)
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        job.wait(5)
    assert not job.is_running() or job.status() == psutil.STATUS_ZOMBIE


def test_a_plan_that_another_command_has_replaced_is_not_carried_out(workflow: Workflow) -> None:
    """Figures and the report read the plan's files, which are now those of the other plan."""
    for plan in workflow.plans:
        plan.write()
    workflow.plan("two", {"d1": 1}).write()
    with pytest.raises(UserError, match="/two: another command has planned other runs there"):
        workflow.make()
    assert not workflow.finished()
    workflow.plans[1].write()
    workflow.make()


def test_a_refusal_of_a_job_is_the_error_of_the_command(tmp_path: Path) -> None:
    log = tmp_path / "workflow.log"
    log.write_text(
        "Execute 2 jobs...\n"
        "waiting for another build of the kernel\n"
        "error: no file system in memory has room\nname another one with TMPDIR=/path\n"
        "error: no file system in memory has room\nname another one with TMPDIR=/path\n"
        "RuleException:\nCalledProcessError in file ...\nWorkflowError:\n"
    )
    error = drive.failure({}, Store(tmp_path), log)
    assert error.message == "no file system in memory has room"
    assert error.hint == f"name another one with TMPDIR=/path\nthe whole log is {log}"


@pytest.mark.parametrize("full", ["a folder that is missing", "build/workflow"])
def test_a_folder_without_room_is_named_before_the_work(
    workflow: Workflow, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def fallocate(descriptor: int, offset: int, length: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(workflow.root / full):
            raise OSError(errno.ENOSPC, "No space left on device")

    if full == "build/workflow":
        monkeypatch.setattr("os.posix_fallocate", fallocate)
    else:
        monkeypatch.setenv("TMPDIR", str(workflow.root / full))
    with pytest.raises(UserError, match=f"{full}: no file can be written: No ") as caught:
        workflow.make()
    assert caught.value.hint
    assert not workflow.lines("calls")


def test_runs_of_two_engines_have_the_same_title(set_clock: Callable[..., None]) -> None:
    set_clock(0.0, 20.0, 40.0)
    updates: list[tuple[int, list[RunState], list[str]]] = [
        (finished, [replace(state(pace * wall_s), wall_s=wall_s) for pace in (10, 1)], [])
        for finished, wall_s in ((0, 20), (1, 40))
    ]
    last = show(2, *updates)[-1]
    assert re.findall(r"at (\S+) s/s", last) == ["10", "1"]


def test_the_pace_of_a_run_is_measured_recently() -> None:
    """The bootstrap's pace of 10 s/s does not predict the later pace of 0.2 s/s under load."""
    seen = [(30, 300), (60, 306), (100, 314), (150, 324), (400, 324), (20, 200)]
    states = [replace(state(simulated_s), wall_s=wall_s) for wall_s, simulated_s in seen]
    lines = show(2, *((number % 2, [one], []) for number, one in enumerate(states)))
    paces = [line.split(" at ")[1].removesuffix(", 300 MiB") for line in lines]
    assert paces == [
        "10 s/s, 0:30 left",
        "0.2 s/s, 24:30 left",
        "0.2 s/s, 23:50 left",
        "0.2 s/s, 23:00 left",
        # The run has not advanced in the time over which the pace is measured.
        "0 s/s",
        # The run was started again.
        "10 s/s, 0:40 left",
    ]
    assert " at 120 s/s, 0:02 left" in show(2, (0, [replace(state(360), wall_s=3.0)], []))[0]
