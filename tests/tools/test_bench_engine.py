"""The engine benchmark with invented costs: order of runs, history, and alarms."""

from __future__ import annotations

from pathlib import Path

import bench_engine
import pytest
from bench_engine import Case, Side, main, read_history

from onionlab.errors import UserError

LINE_OF_0_2_0 = (
    '{"after":{"switch_us":2.0},"before":{"switch_us":2.0},"cases":[{"experiment":"quick",'
    '"level":"quick","scale":null,"seed":1,"sides":{"uml":{"engine":{"name":"uml"},"programs":'
    '{"tor":"ab"},"records":"00ff","repetitions":[{"cpu_s":20.0,"others_cpus":0.0,'
    '"peak_memory_bytes":100,"slowness":null,"wall_s":20.4}]}},"variant":"ewma"}],"format":1,'
    '"host":{"kernel":"6.18"},"machine":{"cpus":2},"made_again":[],"marks":[],'
    '"measured_at":"2026-11-01T00:00:00Z","project":"0.2.0","slowness":{"uml":1.0}}\n'
)


class Machine:
    """Measures invented costs.

    cost: engine -> CPU time of a run in seconds. busy: the runs that other programs disturb. A run
    is given by its number in the order of measurement, from 1.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cost = {"uml": 20.0, "shadow": 50.0}
        self.records = {"uml": "00ff", "shadow": "00ff", "uml-ptrace": "00ff"}
        self.made: list[str] = []
        self.busy: set[int] = set()

    def measure(self, root: Path, plan: object, side: str) -> Side:
        self.made.append(side)
        cpu_s = self.cost[side] * (1 + 0.002 * (len(self.made) * 7 % 5))
        wall_s = 2 * cpu_s if len(self.made) in self.busy else 1.02 * cpu_s
        cost = {"cpu_s": cpu_s, "wall_s": wall_s, "peak_memory_bytes": 10**8 + len(self.made) % 13}
        engine, records = {"name": side}, self.records[side]
        return Side.model_validate({"engine": engine, "records": records, "repetitions": [cost]})

    def bench(self, *options: str) -> int:
        return main(["--state-dir", str(self.root / "bench"), *options])

    @property
    def history(self) -> Path:
        return self.root / "bench/history.jsonl"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    played = Machine(tmp_path)

    def plan(root: Path, case: Case, side: str, place: Path, args: object) -> None:
        place.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(bench_engine, "working_root", lambda: tmp_path)
    monkeypatch.setattr(bench_engine, "project_name", lambda: "0.2.0")
    monkeypatch.setattr(bench_engine, "plan_run", plan)
    monkeypatch.setattr(bench_engine, "measure_run", played.measure)
    monkeypatch.setattr(
        bench_engine,
        "resolve_engine_name",
        lambda *_, **__: "shadow" if "shadow" in played.cost else "uml",
    )
    return played


def test_the_engines_take_turns(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.bench("--suite", "long", "--repetitions", "2") == 0
    assert machine.made == ["uml", "shadow"] * 2 * 4
    (measured,) = read_history(machine.history)
    titles = ["quick ewma seed 1", *(f"swrr-5mid at 0.1 ewma seed {seed}" for seed in (1, 2, 3))]
    assert [case.title for case in measured.cases] == titles
    assert measured.marks == []
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "quick ewma seed 1: mean of 2",
        "              uml         shadow      uml / shadow",
        "  CPU time    20.1 s      50.3 s      0.398 (0.398 to 0.398)",
    ]
    assert not (machine.root / "build/bench").exists()


def test_a_planted_rise_is_an_alarm_once(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [machine.bench() for _ in range(40)] == [0] * 40
    machine.cost["uml"] *= 1.2
    assert "no search for changes yet" in capsys.readouterr().out
    statuses = [machine.bench() for _ in range(3)]
    assert statuses[0] == 1
    assert statuses[-1] == 0
    out = capsys.readouterr().out
    assert "ALARM: CPU time of quick ewma seed 1: x 1.20 between " in out
    assert "known: CPU time of quick ewma seed 1: x 1.20 between " in out
    # Runs whose records differ do different work, so their costs are not compared.
    machine.records["uml"] = "another"
    machine.cost["uml"] *= 3
    assert machine.bench() == 0
    assert ": 1 comparable measurements" in capsys.readouterr().out


def test_a_disturbed_repetition_is_made_again(machine: Machine) -> None:
    machine.busy = {3}
    machine.bench("--repetitions", "2")
    assert machine.made == ["uml", "shadow"] * 3
    machine.busy = set(range(100))
    machine.bench("--repetitions", "1")
    first, second = read_history(machine.history)
    assert first.marks == []
    assert second.marks[0] == "quick ewma seed 1 on uml: 40 s of wall time for 20 s of CPU time"
    assert len(machine.made) == 6 + 2 * bench_engine.MAX_ATTEMPTS


def test_ptrace_must_have_the_same_records(machine: Machine) -> None:
    machine.cost["uml-ptrace"] = 60.0
    machine.records["uml-ptrace"] = "another"
    machine.bench("--ptrace", "--repetitions", "1")
    assert machine.made == ["uml-ptrace", "uml", "shadow"]
    (measured,) = read_history(machine.history)
    assert measured.marks == ["quick ewma seed 1: runs of one engine have different records"]


def test_a_history_of_0_2_0_is_read_and_a_damaged_one_refused(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    del machine.cost["shadow"]
    machine.history.parent.mkdir()
    machine.history.write_text(LINE_OF_0_2_0)
    assert machine.bench() == 0
    assert "Shadow is not installed" in capsys.readouterr().out
    costs_s = [one.cases[0].values("cpu_s")[0] for one in read_history(machine.history)]
    assert costs_s == pytest.approx([20.0, 20.0], rel=0.01)
    machine.history.write_text(LINE_OF_0_2_0 + LINE_OF_0_2_0[:50] + "\n")
    before, made = machine.history.read_bytes(), len(machine.made)
    assert machine.bench() == 2
    assert "line 2 is not a measurement" in capsys.readouterr().err
    assert (machine.history.read_bytes(), len(machine.made)) == (before, made)


@pytest.mark.parametrize(("end", "status"), [(KeyboardInterrupt(), 130), (UserError("no"), 2)])
def test_a_measurement_that_ends_early_adds_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, end: BaseException, status: int
) -> None:
    def fail(*args: object) -> Side:
        raise end

    machine.bench()
    before = machine.history.read_bytes()
    monkeypatch.setattr(bench_engine, "measure_run", fail)
    assert machine.bench() == status
    assert machine.history.read_bytes() == before
