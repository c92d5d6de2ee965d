"""`onionlab bench` with runs that are made up: in which order, what is written, what is said."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from analysis.formats.bench_history import BenchRepetition, read_bench_history
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.cli import main
from onionlab.errors import UserError
from onionlab.questions import engine_bench
from onionlab.questions.engine_bench import (
    FULL_SIZE,
    PTRACE,
    SHORT,
    THOROUGH,
    TRIES,
    Bench,
    Made,
    Way,
    engines_here,
    run_bench,
)
from onionlab.questions.engine_bench_words import lines_of
from onionlab.runs.costs.calibration import Calibration
from onionlab.runs.plan import Plan

from .checkout import ship

COST = {"uml": 20.0, "shadow": 50.0}
START = datetime(2026, 1, 1, 3, 0, tzinfo=UTC)


class Machine:
    """Makes measurements of runs that take what `cost` says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "bench"
        self.said: list[str] = []
        self.made: list[str] = []
        self.cost = dict(COST)
        self.records = dict.fromkeys(COST, "00ff")
        self.wall_to_cpu = 1.02
        self.others_cpus = 0.0
        self.switch_us: Iterator[float] = itertools.repeat(2.0)
        self.measurements = 0
        self.fails: BaseException | None = None
        self.found: list[str] = []

    def plan(self, root: Path, request: Request, place: Path, say: Any) -> Plan:
        seeds = request.seeds
        assert isinstance(seeds, list)
        runs = tuple(PlannedRun(f"{request.engine}{s}", "5mid", "ewma", s) for s in seeds)
        return Plan(request, runs, place / "runs", place / "out", 1, Resources(1, 1, 1))

    def make(self, root: Path, plan: Plan, run: PlannedRun, way: Way) -> Made:
        self.found = sorted(path.name for path in plan.store.glob("*"))
        if self.fails and len(self.made) == 3:
            for name in (".partial", ".failed"):
                (plan.store / name / run.run_id).mkdir(parents=True)
            raise self.fails
        engine = plan.request.engine
        assert engine == way.engine
        self.made.append(f"{way.name}{run.seed}")
        # No two runs are quite alike.
        cpu_s = self.cost[way.name] * (1 + 0.002 * (len(self.made) * 7 % 5))
        took = BenchRepetition(
            cpu_s=cpu_s,
            wall_s=cpu_s * self.wall_to_cpu,
            peak_memory_bytes=10**8 + len(self.made) * 7919 % 13 * 10**5,
            others_cpus=self.others_cpus,
        )
        return Made(took, self.records[way.name], {"name": engine}, {"tor": "ab"})

    def calibrate(self) -> Calibration:
        return Calibration(next(self.switch_us), 0.2, 0.5)

    def bench(self, repetitions: int = 3, entries: Any = SHORT, by_ptrace: bool = False) -> Bench:
        self.measurements += 1
        return run_bench(
            self.root,
            entries,
            repetitions=repetitions,
            state=self.state,
            shadow=None,
            tgen=None,
            say=self.said.append,
            by_ptrace=by_ptrace,
            plan_runs=self.plan,
            make_run=self.make,
            measure_machine=self.calibrate,
            when=START + timedelta(days=self.measurements),
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    ship(tmp_path)
    played = Machine(tmp_path)
    monkeypatch.setattr(
        engine_bench,
        "engines_here",
        lambda *args: [name for name in played.cost if name != PTRACE.name],
    )
    monkeypatch.setattr(engine_bench, "_say_cost", lambda *args: None)
    monkeypatch.setattr(engine_bench, "SPELL_S", 0.0)
    monkeypatch.setattr(engine_bench, "project_name", lambda: f"commit{played.measurements}")
    return played


def test_engines_take_turns(machine: Machine) -> None:
    machine.bench(repetitions=2)
    assert machine.made == ["uml1", "shadow1"] * 2
    machine.made.clear()
    made = machine.bench(repetitions=2, entries=THOROUGH)
    turns = [f"{engine}{seed}" for seed in (1, 1, 2, 3) for engine in ["uml", "shadow"] * 2]
    assert machine.made == turns
    assert [case.title for case in made.measurement.cases] == [
        "quick 5mid ewma seed 1",
        *(f"swrr-5mid at 0.1 5mid ewma seed {seed}" for seed in (1, 2, 3)),
    ]


def test_the_embedded_engine_is_measured_by_ptrace_too(machine: Machine) -> None:
    machine.cost["uml-ptrace"] = 60.0
    machine.records["uml-ptrace"] = machine.records["uml"]
    made = machine.bench(repetitions=2, entries=FULL_SIZE, by_ptrace=True)
    assert machine.made == ["uml-ptrace1", "uml1", "shadow1"] * 2
    (case,) = made.measurement.cases
    assert list(case.sides) == ["uml-ptrace", "uml", "shadow"]
    assert made.measurement.marks == ()
    # What is searched for steps is the engine as it runs.
    assert {(one.of, one.to) for one in made.series} == {("uml", "shadow")}
    assert set(made.measurement.slowness) == {"uml", "shadow"}
    lines = list(lines_of(made))
    assert lines[1].split() == [
        *("uml-ptrace", "uml", "shadow"),
        *("uml", "/", "shadow"),
        *("uml", "/", "uml-ptrace"),
    ]
    assert lines[2].startswith("  CPU time     60.3 s")
    assert lines[2].endswith("  0.333 (0.331 to 0.335)")
    machine.records["uml-ptrace"] = "another"
    (mark,) = machine.bench(entries=FULL_SIZE, by_ptrace=True).measurement.marks
    assert mark == "swrr-5mid 5mid ewma seed 1: by ptrace there are other records"


@pytest.mark.parametrize("own", ["", "1"])
def test_how_a_run_is_made_does_not_follow_from_who_measures(
    program: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setenv("ONIONLAB_PTRACE", own)
    file = program("echo $ONIONLAB_PTRACE > {file}")
    for way, said in ((PTRACE, "1\n"), (Way("uml", "uml"), "\n")):
        engine_bench._run_one(tmp_path, *_planned(tmp_path), way.environment)
        assert file.read_text() == said


def test_a_measurement_is_a_line_of_the_history(machine: Machine) -> None:
    machine.switch_us = itertools.chain([2.0] * 6, itertools.repeat(2.2))
    first = machine.bench()
    second = machine.bench()
    assert read_bench_history(machine.state / "history.jsonl") == [
        first.measurement,
        second.measurement,
    ]
    assert (first.measurement.before["switch_us"], first.measurement.after["switch_us"]) == (2, 2.2)
    assert set(first.measurement.slowness) == set(COST)
    assert set(first.measurement.machine) == {"cpu", "cpus", "memory_bytes"}
    assert not (machine.root / "build/bench/runs").exists()
    lines = list(lines_of(second))
    assert lines[0] == "quick 5mid ewma seed 1: mean of 3 repetitions"
    assert lines[1].split() == ["uml", "shadow", "uml", "/", "shadow"]
    assert lines[2] == "  CPU time     20.1 s  50.2 s  0.401 (0.398 to 0.402)"
    assert lines[-1] == (
        "steps: cannot be told yet: 2 measurements that can be compared, 11 to 38 are needed"
    )


def test_a_planted_step_is_an_alarm_and_no_step_is_none(machine: Machine) -> None:
    benches = [machine.bench() for _ in range(40)]
    assert not any(bench.alarm for bench in benches)
    assert not any(bench.measurement.marks for bench in benches)
    machine.cost["uml"] *= 1.2
    stepped = machine.bench()
    assert stepped.alarm
    alarm = next(line for line in lines_of(stepped) if line.startswith("ALARM"))
    assert alarm.startswith("ALARM CPU time of quick 5mid ewma seed 1, uml to shadow: 0.40")
    assert "(x 1.20)" in alarm
    assert "(commit40) and 2026-02-11T03:00:00Z (commit41)" in alarm
    again = machine.bench()
    assert not again.alarm
    assert any(line.startswith("known: CPU time") for line in lines_of(again))
    # Whatever its cost: other records are other work.
    machine.records["uml"] = "another"
    machine.cost["uml"] *= 3
    other = machine.bench()
    assert not other.alarm
    assert (
        "quick 5mid ewma seed 1: other records on uml than at 2026-02-12T03:00:00Z (commit42); "
        "costs are not comparable with those"
    ) in lines_of(other)


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ({"wall_to_cpu": 2.0}, " on uml, repetition 1: 40 s by the clock for 20 s of CPU time"),
        ({"others_cpus": 0.9}, " on uml, repetition 1: others kept 0.9 CPUs busy"),
        (
            # Each is measured twice where it differs from the one before.
            {"switch_us": itertools.chain([2.0], itertools.cycle([4.0, 4.0, 2.0, 2.0]))},
            ": the machine's speed at uml's work changed meanwhile, x 0.66",
        ),
    ],
)
def test_a_machine_that_is_never_idle_does_not_count(
    machine: Machine, change: dict[str, Any], mark: str
) -> None:
    vars(machine).update(change)
    made = machine.bench()
    assert f"quick 5mid ewma seed 1{mark}" in made.measurement.marks
    assert len(machine.made) == 2 * 3 * TRIES
    lines = list(lines_of(made))
    assert any(line.startswith("NOT COUNTED") for line in lines)
    assert lines[-1] == "steps: not looked for with this measurement"
    assert len(read_bench_history(made.history)) == 1


def test_a_repetition_that_is_disturbed_is_made_again_on_all_engines(machine: Machine) -> None:
    # Before all, behind uml, behind Shadow twice since it differs; from then on it stays.
    machine.switch_us = itertools.chain([2.0, 2.0], itertools.repeat(4.0))
    made = machine.bench(repetitions=2)
    assert machine.made == ["uml1", "shadow1"] * 3
    assert made.measurement.marks == ()
    why = "quick 5mid ewma seed 1: the machine's speed at uml's work changed meanwhile, x 0.66"
    assert made.measurement.made_again == (why,)
    lines = list(lines_of(made))
    assert lines[lines.index("made again, since disturbed:") + 1] == f"  {why}"
    # What stays is what was made last.
    sides = made.measurement.cases[0].sides
    assert [one.cpu_s for one in sides["uml"].repetitions] == pytest.approx([20.04, 20.0])
    slow = {one.slowness for side in sides.values() for one in side.repetitions}
    assert len(slow) == 2  # one for each engine, at the new speed
    # Others who come for one run alone.
    make, machine.switch_us = machine.make, itertools.repeat(2.0)

    def disturbed_once(root: Path, plan: Plan, run: PlannedRun, way: Way) -> Made:
        machine.others_cpus = 0.9 if len(machine.made) == 7 else 0.0
        return make(root, plan, run, way)

    machine.make = disturbed_once  # type: ignore[method-assign]
    made = machine.bench(repetitions=2)
    assert made.measurement.marks == ()
    assert made.measurement.made_again == (
        "quick 5mid ewma seed 1: shadow: others kept 0.9 CPUs busy",
    )


def test_a_slow_spell_of_seconds_is_no_other_speed(machine: Machine) -> None:
    machine.switch_us = itertools.chain([2.0, 4.0], itertools.repeat(2.0))
    made = machine.bench()
    assert machine.made == ["uml1", "shadow1"] * 3
    assert (made.measurement.marks, made.measurement.made_again) == ((), ())


def test_runs_that_do_not_repeat_themselves_do_not_count(machine: Machine) -> None:
    machine.records = dict.fromkeys(COST, "00ff")
    make = machine.make

    def differing(root: Path, plan: Plan, run: PlannedRun, way: Way) -> Made:
        machine.records["uml"] = str(len(machine.made))
        return make(root, plan, run, way)

    machine.make = differing  # type: ignore[method-assign]
    made = machine.bench(repetitions=2)
    assert made.measurement.marks == (
        "quick 5mid ewma seed 1 on uml: repetitions have other records",
    )


def test_without_shadow_an_engine_is_measured_by_the_machines_speed(machine: Machine) -> None:
    del machine.cost["shadow"]
    machine.switch_us = itertools.repeat(4.0)
    made = machine.bench()
    assert machine.made == ["uml1"] * 3
    slow = made.measurement.slowness["uml"]
    assert made.series[0].middle == pytest.approx(20.1 / slow, rel=0.01)
    assert list(lines_of(made))[1].split() == ["uml", "on", "the", "reference", "machine"]
    # A machine that gets slower bit by bit: each run by its own speed.
    machine.switch_us = (2.0 * 1.05**number for number in itertools.count())
    made = machine.bench()
    repetitions = made.measurement.cases[0].sides["uml"].repetitions
    slow_by = [one.slowness or 0.0 for one in repetitions]
    assert 0 < slow_by[0] < slow_by[1] < slow_by[2]
    expected = [one.cpu_s / by for one, by in zip(repetitions, slow_by, strict=True)]
    assert made.series[0].values == pytest.approx(expected)


def test_shadow_is_left_out_by_name_and_not_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SHADOW", raising=False)
    monkeypatch.delenv("TGEN", raising=False)
    said: list[str] = []
    assert engines_here(tmp_path, None, None, said.append) == ["uml"]
    assert said[0].startswith("shadow is left out, and with it all ratios to it: Shadow is not")
    with pytest.raises(UserError, match="nowhere"):
        engines_here(tmp_path, str(tmp_path / "nowhere"), None, said.append)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), UserError("the run failed")])
def test_who_ends_early_leaves_the_history_as_it_was(machine: Machine, end: BaseException) -> None:
    machine.bench()
    history = machine.state / "history.jsonl"
    before = history.read_bytes()
    machine.made.clear()
    machine.fails = end
    left = machine.root / "build/bench/runs/uml1"
    left.mkdir(parents=True)
    words = "nothing was added to the history" if isinstance(end, KeyboardInterrupt) else "failed"
    with pytest.raises(type(end), match=words):
        machine.bench()
    assert history.read_bytes() == before
    # Neither what an earlier command left, nor what this one did; but what a failed run was.
    assert machine.found == []
    assert [path.name for path in left.parent.iterdir()] == [".failed"]


def test_a_damaged_history_is_refused_before_anything_runs(machine: Machine) -> None:
    machine.bench()
    with (machine.state / "history.jsonl").open("a") as out:
        out.write("{}\n")
    machine.made.clear()
    with pytest.raises(UserError, match="line 2 is no measurement"):
        machine.bench()
    assert machine.made == []


def test_a_history_that_cannot_be_written_is_refused_before_anything_runs(machine: Machine) -> None:
    machine.state.write_text("a file")
    with pytest.raises(UserError, match="bench is no folder"):
        machine.bench()
    assert machine.made == []


def test_two_do_not_measure_at_once(machine: Machine) -> None:
    make = machine.make

    def meanwhile(root: Path, plan: Plan, run: PlannedRun, way: Way) -> Made:
        with pytest.raises(UserError, match="another measurement is under way"):
            machine.bench()
        return make(root, plan, run, way)

    machine.make = meanwhile  # type: ignore[method-assign]
    assert len(machine.bench(repetitions=1).measurement.cases) == 1


@pytest.mark.parametrize("status", [0, 1])
def test_the_alarm_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    machine: Machine,
    status: int,
) -> None:
    asked: dict[str, Any] = {}
    made = machine.bench()

    def measured(root: Path, entries: Any, **how: Any) -> SimpleNamespace:
        asked.update(how, entries=entries)
        return SimpleNamespace(**vars(made), alarm=bool(status))

    monkeypatch.setattr("onionlab.commands.bench.run_bench", measured)
    words = ["bench", "--thorough", "--repetitions", "5", "--state", str(machine.state)]
    assert main(words) == status
    assert capsys.readouterr().out.splitlines()[-1] == str(machine.state / "history.jsonl")
    assert (asked["entries"], asked["repetitions"]) == (THOROUGH, 5)
    assert not asked["by_ptrace"]
    assert main(["bench", "--full-size", "--by-ptrace"]) == status
    assert (asked["entries"], asked["by_ptrace"]) == (FULL_SIZE, True)
    assert main(["bench", "--repetitions", "0"]) == 2
    assert "--repetitions: expected a whole number" in capsys.readouterr().err


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Puts a program in the place of `python -m onionlab run-one`; returns a file for its use."""

    def put(text: str) -> Path:
        python, file = tmp_path / "python", tmp_path / "pid"
        python.write_text(f"#!/bin/sh\n{text.format(file=file)}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        return file

    return put


def _planned(tmp_path: Path) -> tuple[Plan, PlannedRun]:
    run = PlannedRun("ab01", "quick", "ewma", 1)
    plan = Plan(Request("quick"), (run,), tmp_path / "runs", tmp_path, 1, Resources(1, 1, 1))
    return plan, run


def test_a_run_that_fails_says_why(program: Callable[[str], Path], tmp_path: Path) -> None:
    program("echo 'error: run quick failed: no tor' >&2; exit 2")
    with pytest.raises(UserError, match=r"^run quick failed: no tor$"):
        engine_bench._run_one(tmp_path, *_planned(tmp_path), {})


def test_an_interrupt_ends_the_run(program: Callable[[str], Path], tmp_path: Path) -> None:
    file = program(f"echo $$ > {{file}}; sleep 0.5; kill -INT {os.getpid()}; exec sleep 60")
    with pytest.raises(KeyboardInterrupt):
        engine_bench._run_one(tmp_path, *_planned(tmp_path), {})
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), signal.SIGCONT)


def test_others_are_those_who_are_not_the_run() -> None:
    before_s = engine_bench._busy_s()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert engine_bench._busy_s() > before_s


def test_threads_of_the_kernel_are_no_others() -> None:
    """They alone are counted: children of kthreadd, of which a container sees none."""
    kernels = [
        process
        for process in psutil.process_iter(["ppid", "cmdline", "cpu_times"])
        if process.info["ppid"] == 2 and not process.info["cmdline"]
    ]
    told_s = sum(
        process.info["cpu_times"].user + process.info["cpu_times"].system for process in kernels
    )
    assert engine_bench._kernel_threads_s() == pytest.approx(told_s, abs=1, rel=0.01)
