"""The cost of runs before they are made: totals, what is there already, and the words."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formats.manifest import Manifest, write_manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.cli import main
from onionlab.commands import _cost
from onionlab.commands import estimate as verb
from onionlab.engines import ENGINES
from onionlab.errors import UserError
from onionlab.programs.building import NotBuiltError
from onionlab.runs.costs import calibration as calibrating
from onionlab.runs.costs import past
from onionlab.runs.costs.asking import Kind, ask
from onionlab.runs.costs.calibration import Calibration, NoCalibrationError, calibrate
from onionlab.runs.costs.cheaper import cheaper_ways
from onionlab.runs.costs.estimate import Costs, Estimate, costs_of_runs, makespan
from onionlab.runs.costs.estimator import CORRECTED, MODEL, SAME
from onionlab.runs.costs.model import Range, load_model
from onionlab.runs.costs.split import split_rows
from onionlab.runs.costs.words import bytes_text, one_line, time_text
from onionlab.runs.host_facts import host_facts
from onionlab.runs.plan import Plan, write_plan

from .checkout import ship

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = load_model(REPOSITORY).reference


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout in which nothing was run."""
    ship(tmp_path)
    return tmp_path


NETWORKS, RUNS = 7, 21
"""Of `quick`."""


def request(name: str = "quick", **asked: object) -> Request:
    return Request(name, **{"engine": "uml", **asked})  # type: ignore[arg-type]


def estimate(root: Path, *requests: Request, jobs: int | None = 1) -> Estimate:
    return Costs(root, HERE).estimate(requests, jobs)


def all_ranges(found: Estimate) -> Iterator[Range]:
    yield from (found.cpu_s, found.wall_s, found.memory_bytes, found.disk_bytes)
    for one in found.to_make:
        cost = one.cost
        yield from (cost.cpu_s, cost.wall_s, cost.memory_bytes, cost.disk_bytes)


# What is asked for


def test_every_run_is_counted(root: Path) -> None:
    found = estimate(root, request())
    assert (found.runs, found.there, found.missing) == (RUNS, 0, RUNS)
    assert found.sources == [MODEL]
    assert found.cpu_s.middle == pytest.approx(
        sum(one.cost.cpu_s.middle * len(one.replicates) for one in found.to_make)
    )


def test_a_run_of_two_experiments_is_made_once(root: Path) -> None:
    # Both compare swrr-linear in the same network.
    asked = [request(name, seeds=2, scale=0.1) for name in ("swrr-5mid", "weights-5mid")]
    assert estimate(root, *asked).runs == 2 * (3 + 3 - 1)
    engines = [request(seeds=1, engine=engine) for engine in ENGINES]
    assert estimate(root, *engines).runs == 3 * len(ENGINES)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 8), st.sampled_from(list(ENGINES)))
def test_more_seeds_never_cost_less(one: int, other: int, jobs: int, engine: str) -> None:
    few, many = sorted((one, other))
    costs = Costs(REPOSITORY, HERE)
    costs._finished, costs._past = [], []
    less, more = (costs.estimate([request(seeds=n, engine=engine)], jobs) for n in (few, many))
    for name in ("cpu_s", "wall_s", "memory_bytes", "disk_bytes"):
        for end in ("low", "middle", "high"):
            assert getattr(getattr(more, name), end) >= getattr(getattr(less, name), end)
    for found in (*all_ranges(less), *all_ranges(more)):
        assert 0 < found.low <= found.middle <= found.high


@settings(deadline=None, max_examples=20)
@given(st.floats(0.03, 1), st.floats(0.03, 1))
def test_a_smaller_network_never_costs_more(one: float, other: float) -> None:
    small, large = sorted((one, other))
    costs = Costs(REPOSITORY, HERE)
    costs._finished, costs._past = [], []
    less, more = (
        costs.estimate([request("swrr-5mid", scale=scale, seeds=1)]) for scale in (small, large)
    )
    # Hosts are whole, capacities are not: of two scales alike the smaller may carry a bit more.
    assert less.cpu_s.middle <= 1.05 * more.cpu_s.middle
    assert less.memory_bytes.middle <= more.memory_bytes.middle


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request("no-such"), 'no experiment called "no-such"'),
        (request(scale=0.0), "SCALE: expected a number more than 0"),
        (request(scale=1000.0), "SCALE: expected a number more than 0"),
        (request(seeds=0), "NETWORKS|networks"),
        (request(variants=("nobody",)), 'there is no variant "nobody"'),
        (request(engine="abacus"), "there is no engine 'abacus'"),
        (request("slowstart", scale=0.1), "has no counts to scale"),
    ],
)
def test_what_cannot_be_run_cannot_be_estimated(root: Path, asked: Request, message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimate(root, asked)


# Time by the clock


def shortest_of_all(times: Sequence[float], slots: int) -> float:
    """The best schedule there is, by trying all."""
    best = sum(times)
    for places in itertools.product(range(slots), repeat=len(times)):
        ends = [0.0] * slots
        for time_s, place in zip(times, places, strict=True):
            ends[place] += time_s
        best = min(best, max(ends))
    return best


@given(st.lists(st.floats(0, 100), max_size=6), st.integers(1, 3))
def test_runs_go_where_a_place_is_free(times: list[float], slots: int) -> None:
    found = makespan(times, slots)
    best = shortest_of_all(times, slots)
    # R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969: no worse than 2 - 1/m.
    assert best - 1e-9 <= found <= (2 - 1 / slots) * best + 1e-9


def test_one_place_takes_the_sum() -> None:
    assert makespan([3.0, 4.0, 5.0], 1) == 12.0
    assert makespan([3.0, 4.0, 5.0], 2) == 8.0
    assert makespan([], 2) == 0.0


def test_no_more_runs_go_side_by_side_than_there_are_cpus(root: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    assert estimate(root, request(), jobs=10**6).side_by_side == min(cpus, 9)
    assert estimate(root, request(seeds=1, variants=("rr",)), jobs=None).side_by_side == 1


def test_a_run_of_several_cpus_has_them_for_itself(root: Path) -> None:
    found = estimate(root, request("engine-options", engine="shadow"))
    one, two = (
        next(o.cost for o in found.to_make if o.kind.level == level)
        for level in ("default", "parallelism-2")
    )
    assert (one.cpus, two.cpus) == (1, 2)
    # docs/explanation/performance.md: 1.27 times the CPU time, 0.66 of the time by the clock.
    assert two.cpu_s.middle / one.cpu_s.middle == pytest.approx(1.27)
    assert 0.6 < two.wall_s.middle / one.wall_s.middle < 0.72


# Runs that are there


TEMPLATE = "shadow.data.template/hosts/h{}/torrc"
QUICK_TORS = 19


def finish(
    root: Path, run_id: str, variant: str = "rr", seed: int = 1, *, cpu_s: float = 100.0,
    tors: int = QUICK_TORS, engine: str = "uml", here: bool = True,
) -> None:  # fmt: skip
    """Put a finished run into a root's store."""
    host = dict(host_facts()) if here else {"cpu": "abacus", "cpus": 1, "memory_bytes": 1}
    folder = root / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / "log").write_bytes(bytes(100_000))
    write_manifest(
        folder / "manifest.json",
        Manifest(
            run_id=run_id,
            seed=seed,
            variant=variant,
            identity={
                "files": {TEMPLATE.format(i): "" for i in range(tors)},
                "engine": {"name": engine},
            },
            cpu_s=cpu_s,
            wall_s=cpu_s,
            peak_memory_bytes=2**28,
            host=host,
        ),
    )


def plan(root: Path, asked: Request, *runs: tuple[str, str, str, int]) -> None:
    """Write the plan of an experiment that was run."""
    write_plan(
        Plan(
            request=asked,
            runs=tuple(PlannedRun(*run) for run in runs),
            store=root / "runs",
            out=root / "results" / Path(asked.experiment).stem,
            cpus_per_run=1,
            resources=Resources(1, 1, 1),
        )
    )


class FakeBench:
    """Composes runs whose names say what they are, in no time."""

    def __init__(self, root: Path, takes_s: float = 0.0) -> None:
        self.root, self.programs, self.engine = root, None, None
        self.takes_s = takes_s
        self.composed: list[int] = []
        self.drawn = True

    def is_drawn(self, _seed: int) -> bool:
        return self.drawn

    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> SimpleNamespace:
        self.composed.append(seed)
        time.sleep(self.takes_s)
        return SimpleNamespace(run_id=lambda programs, engine: f"a{variant}{seed}".encode().hex())


def name_of(variant: str, seed: int) -> str:
    return f"a{variant}{seed}".encode().hex()


@pytest.fixture
def bench(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    made = FakeBench(root)
    monkeypatch.setattr(past, "open_bench", lambda *_: made)
    return made


def test_the_split_of_runs_needs_finished_runs_with_repeats(root: Path) -> None:
    asked = ask(root, request(seeds=10))
    ((_, text),) = split_rows(root, asked)
    assert text.endswith("make experiment NAME=quick NETWORKS=3 REPEATS=2")
    folder = root / "results" / "quick"
    folder.mkdir(parents=True)
    look = {"color": "#000000", "marker": "o", "linestyle": "solid"}
    span = {"measured_start_s": 0, "measured_end_s": 1, "stop_s": 1, "classes": {}}
    study = {
        "format": 1, "name": "quick", "title": "quick", "runs": [], "asked": {"scale": 1},
        "variants": [{"name": "rr", "label": "RR", **look}],
        "levels": [{"name": "quick", "label": "quick", **span}],
    }  # fmt: skip
    (folder / "study.json").write_text(json.dumps(study))
    (folder / "summary.csv").write_text(
        "class,metric,endpoint,ratio,sd_between,sd_within\n"
        "web,ttfb_p50_s,2,1.2,1,1\n"
        "web,time_to_320kib_p50_s,1,1.2,0.1,0.2\n"
        "web,time_to_320kib_p90_s,,1.2,5,5\n"
    )
    (_, text), (_, spreads) = split_rows(root, asked)
    assert text == (
        "NETWORKS=10 REPEATS=1: a factor of 1.17; NETWORKS=5 REPEATS=2: a factor of 1.24 (95% "
        "interval of web time_to_320kib_p50_s)"
    )
    assert spreads == "spread between networks 0.1, within them 0.2"
    # Of another scale nothing is known.
    assert len(split_rows(root, ask(root, request(seeds=10, scale=0.5)))) == 1
    assert split_rows(root, ask(root, request(seeds=1))) == []


def test_finished_runs_are_not_made_again(root: Path, bench: FakeBench) -> None:
    before = estimate(root, request())
    for seed in (1, 2):
        finish(root, name_of("rr", seed), "rr", seed)
    after = estimate(root, request())
    assert (after.runs, after.there, after.missing) == (RUNS, 2, RUNS - 2)
    assert after.disk_bytes.middle < before.disk_bytes.middle
    assert sorted(bench.composed) == [1, 2]


def test_what_only_looks_like_a_run_is_not_there(root: Path, bench: FakeBench) -> None:
    finish(root, "abcd", "rr", 1)  # Another Tor: another name.
    finish(root, name_of("rr", 2), "rr", 2, tors=5)  # Another network.
    finish(root, name_of("ewma", 3), "ewma", 3, engine="shadow")
    finish(root, "ef01", "rr", 99)
    assert estimate(root, request()).there == 0
    assert bench.composed == [1]


def test_with_all_runs_there_is_nothing_to_pay(root: Path, bench: FakeBench) -> None:
    for variant, seed in itertools.product(("rr", "ewma", "swrr-linear"), range(1, NETWORKS + 1)):
        finish(root, name_of(variant, seed), variant, seed)
    found = estimate(root, request())
    assert (found.there, found.missing) == (RUNS, 0)
    assert found.cpu_s == found.wall_s == Range(0.0, 0.0, 0.0)
    assert one_line(found) == f"cost: none: all {RUNS} runs are there"


def test_programs_that_are_not_built_leave_it_open(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> None:
        raise NotBuiltError("Tor is not built")

    monkeypatch.setattr(past, "open_bench", lacking)
    finish(root, "abcd", "rr", 1)
    found = estimate(root, request())
    assert (found.there, found.unknown, found.missing) == (0, 1, RUNS)


def test_large_runs_are_compared_as_long_as_it_is_worth(
    root: Path, bench: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "COMPARING_S", 0.05)
    bench.takes_s = 0.06
    for seed in range(1, 6):
        finish(root, name_of("rr", seed), "rr", seed)
    found = estimate(root, request(seeds=5, variants=("rr",)))
    assert (found.there, found.assumed) == (5, 4)
    assert bench.composed == [1]


def test_no_keys_are_drawn_for_an_estimate(root: Path, bench: FakeBench) -> None:
    bench.drawn = False
    finish(root, name_of("rr", 1), "rr", 1)
    found = estimate(root, request())
    assert (found.there, found.unknown) == (0, 1)
    assert bench.composed == []


# Where figures come from


def cost_of_rr(found: Estimate) -> tuple[float, str]:
    (one,) = (one for one in found.to_make if one.kind == Kind("quick", "rr"))
    return one.cost.cpu_s.middle, one.cost.source


def test_finished_runs_of_a_kind_tell_what_the_others_take(root: Path, bench: FakeBench) -> None:
    for seed, cpu_s in ((1, 50.0), (2, 200.0)):
        finish(root, name_of("rr", seed), "rr", seed, cpu_s=cpu_s)
    found = estimate(root, request())
    cpu_s, source = cost_of_rr(found)
    assert cpu_s == pytest.approx(100.0)  # the geometric mean
    assert source == SAME
    (one,) = (one for one in found.to_make if one.kind.variant == "rr")
    assert one.replicates == tuple((network, 1) for network in range(3, NETWORKS + 1))
    assert one.cost.memory_bytes.middle == pytest.approx(2**28)
    assert one.cost.disk_bytes.middle == pytest.approx(100_000, rel=0.1)
    assert one.cost.cpu_s.low < 50 < 200 < one.cost.cpu_s.high
    # Ten alike say more than two that differ; one machine wanders all the same.
    for seed in range(11, 21):
        finish(root, name_of("rr", seed), "rr", seed)
    sure = estimate(root, request(seeds=[*range(11, 22)], variants=("rr",))).to_make[0].cost
    assert sure.cpu_s.high / sure.cpu_s.low < one.cost.cpu_s.high / one.cost.cpu_s.low
    drift = load_model(root).drift_factor
    assert sure.cpu_s.high / sure.cpu_s.middle == pytest.approx(drift**2)


def test_runs_of_another_machine_tell_nothing(root: Path, bench: FakeBench) -> None:
    finish(root, name_of("rr", 1), "rr", 1, here=False)
    found = estimate(root, request())
    assert found.there == 1
    assert cost_of_rr(found)[1] == MODEL


def test_other_runs_correct_it_in_part_and_those_of_the_level_most(root: Path) -> None:
    asked = request("swrr-5mid", scale=0.1, seeds=1, variants=("rr",))
    alone = estimate(root, asked).cpu_s
    other = request("swrr-5mid", scale=0.05, seeds=1, variants=("ewma",))
    small = estimate(root, other).cpu_s.middle
    quick = estimate(root, request(seeds=1, variants=("rr",))).cpu_s.middle
    finish(root, "ab01", "rr", 1, cpu_s=3 * quick)
    plan(root, request(), ("ab01", "quick", "rr", 1))
    corrected = estimate(root, asked)
    assert corrected.sources == [CORRECTED]
    assert alone.middle < corrected.cpu_s.middle < 3 * alone.middle
    # The same experiment and level at another scale: more is known.
    finish(root, "ab02", "ewma", 1, cpu_s=3 * small, tors=27)
    plan(root, other, ("ab02", "5mid", "ewma", 1))
    better = estimate(root, asked).cpu_s
    assert corrected.cpu_s.middle < better.middle < 3 * alone.middle
    assert better.high / better.middle < corrected.cpu_s.high / corrected.cpu_s.middle
    # Of another engine they say nothing.
    shadow = estimate(root, request("swrr-5mid", scale=0.1, seeds=1, engine="shadow"))
    assert shadow.sources == [MODEL]


def test_a_plan_that_is_broken_or_of_an_experiment_that_is_gone_is_left_out(root: Path) -> None:
    finish(root, "ab01", "rr", 1)
    plan(root, request("gone"), ("ab01", "quick", "rr", 1))
    plan(root, request(), ("ab01", "another-level", "rr", 1))
    (root / "results" / "bad").mkdir()
    (root / "results" / "bad" / "plan.json").write_text("{")
    (root / "runs" / "ab02").mkdir()
    (root / "runs" / "ab02" / "manifest.json").write_text("[]")
    assert estimate(root, request("swrr-5mid", scale=0.1)).sources == [MODEL]


# The machine


def test_this_machine_is_measured_in_seconds() -> None:
    cpu = min(os.sched_getaffinity(0))
    begin_s = time.monotonic()
    found = calibrate([cpu])
    assert time.monotonic() - begin_s < 10
    # Orders of magnitude of any machine of this century.
    assert 0.2 < found.switch_us < 100
    assert 0.02 < found.call_us < 10
    assert 0.05 < found.aes_ns_per_byte < 100


@pytest.mark.parametrize("of_two", [0, 1])
def test_a_measure_that_is_killed_leaves_nothing(tmp_path: Path, of_two: int) -> None:
    text = calibrating.PROBE.read_text()
    for old, new in (
        ("SWITCH_ROUNDS = 6_000", "SWITCH_ROUNDS = 10**9"),
        # What it imports starts processes too: it tells which one is its second.
        ("    child = os.fork()\n", "    child = os.fork()\n    print(child, flush=True)\n"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (endless := tmp_path / "p.py").write_text(text)
    cpu = min(os.sched_getaffinity(0))
    with subprocess.Popen(
        [sys.executable, "-I", str(endless), str(cpu)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as probe:
        assert probe.stdout is not None
        (second,) = {int(probe.stdout.readline()) for _ in range(2)} - {0}
        both = (probe.pid, second)
        os.kill(both[of_two], signal.SIGKILL)
        try:
            # Both hold the output: its end is the end of both.
            probe.communicate(timeout=10)
        finally:
            for pid in both:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert probe.returncode != 0


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "print('{}')", "print('no')"])
def test_a_machine_that_cannot_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path, program: str
) -> None:
    (tmp_path / "p.py").write_text(program)
    monkeypatch.setattr(calibrating, "PROBE", tmp_path / "p.py")
    with pytest.raises(NoCalibrationError):
        calibrate([0])
    found = Costs(root).estimate([request(seeds=1)])
    assert found.calibration is None
    assert found.cpu_s == estimate(root, request(seeds=1)).cpu_s


def test_a_slower_machine_takes_longer(root: Path) -> None:
    slow = Calibration(*(3 * getattr(HERE, name) for name in calibrating.MEASURES))
    before, after = (Costs(root, machine).estimate([request()], 1) for machine in (HERE, slow))
    assert after.cpu_s.middle == pytest.approx(3 * before.cpu_s.middle)
    assert after.memory_bytes == before.memory_bytes


# For others


def test_what_each_run_takes_can_be_asked(root: Path) -> None:
    found = costs_of_runs(root, request())
    assert list(found) == [Kind("quick", name) for name in ("rr", "swrr-linear", "ewma")]
    for cost in found.values():
        assert cost.cpu_s.middle > 1
        assert cost.wall_s.middle > cost.cpu_s.middle  # its logs are read too
        assert cost.memory_bytes.middle > 50 * 2**20
        assert cost.disk_bytes.middle > 2**18


# Words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1 s"), (59.4, "59 s"), (119, "119 s"), (120, "2.0 min"), (3600, "60 min"),
     (7200, "2.0 h"), (36000, "10 h"), (172800, "2.0 days"), (8640000, "100 days")],
)  # fmt: skip
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "1 KiB"), (2**20 - 1, "1024 KiB"), (2**20, "1.0 MiB"), (2**30 * 12, "12 GiB")],
)
def test_sizes(size: float, text: str) -> None:
    assert bytes_text(size) == text


def test_where_it_comes_to_hours_it_is_said_what_would_be_cheaper(root: Path) -> None:
    costs = Costs(root, HERE)
    asked = request("swrr-5mid")
    ways = cheaper_ways(costs, [ask(root, asked)], costs.estimate([asked], 1), 1)
    assert [way.what for way, _ in ways] == [
        "SCALE=0.1", "NETWORKS=auto, from 3 networks on", "VARIANTS=ewma,swrr-linear",
    ]  # fmt: skip
    runs = {way.what: other.runs for way, other in ways}
    assert list(runs.values()) == [30, 9, 20]
    small = request(seeds=1)
    assert cheaper_ways(costs, [ask(root, small)], costs.estimate([small], 1), 1) == []


def run(root: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(verb, "working_root", lambda: root)
    return main(["estimate", *words])


def test_the_verb(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, monkeypatch, "quick", "--engine", "uml", "--jobs", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "quick",
        f"  runs       {RUNS}, of which 0 are there",
        f"  to make    {RUNS} on uml",
    ]
    assert [line.split()[0] for line in lines[3:]] == [
        "CPU", "wall", "memory", "disk", "from", "machine", "split",
    ]  # fmt: skip
    assert not list((root).glob("runs")), "nothing is made"
    assert not (root / "build").exists(), "nothing is built"


def test_the_verb_with_seeds_as_needed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("quick", "--engine", "uml", "--seeds", "auto", "--max-seeds", "5")
    assert run(root, monkeypatch, *words) == 0
    out = capsys.readouterr().out
    assert "quick, at least, 3 networks\n  runs       9," in out
    assert "quick, at most, 5 networks\n  runs       15," in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such"], 'no experiment called "no-such"'),
        (["quick", "--scale", "nan"], '--scale: expected a number such as 0.1, got "nan"'),
        (["quick", "--scale", "-1"], "SCALE: expected a number more than 0"),
        (["quick", "--jobs", "0"], '--jobs: expected a whole number of at least 1, got "0"'),
        (["quick", "--max-seeds", "5"], "--max-networks goes with --networks auto"),
        (["quick", "--variants", ","], "--variants: expected names"),
    ],
)
def test_what_is_wrong_is_said_as_elsewhere(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert run(root, monkeypatch, *words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "starts", "runs"),
    [
        (["experiment", "swrr-5mid"], "make_plan", 30),
        (["run", "swrr-5mid", "--seeds", "2"], "make_plan", 6),
        (["figures", "--seeds", "1"], "repeat_paper", 15),
        (["compare-engines", "swrr-5mid", "--seeds", "2"], "compare_engines", 12),
        (["nightly", "--seeds", "20"], "run_night", 20),
    ],
)
def test_commands_say_the_cost_before_anything_else(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    starts: str,
    runs: int,
) -> None:
    said: list[str] = []

    def started(*_: object, **__: object) -> None:
        said.append(capsys.readouterr().out)
        raise UserError("far enough")

    module = f"onionlab.commands.{words[0].replace('-', '_')}"
    monkeypatch.setattr(f"{module}.working_root", lambda: root)
    monkeypatch.setattr(f"{module}.{starts}", started)
    # As fast as the machine of the model, whatever this one is.
    monkeypatch.setattr("onionlab.runs.costs.estimate.calibrate", lambda cpus: HERE)
    engine = [] if words[0] == "compare-engines" else ["--engine", "uml"]
    assert main([*words, *engine]) == 2
    cost, *cheaper = said[0].splitlines()
    assert cost.startswith(f"cost: {runs} runs to make (0 of {runs} there), about ")
    if runs >= 12 and words[0] != "nightly":
        assert cheaper[0].startswith("cheaper: SCALE=0.1 (")
    assert len(cheaper) <= 1


def test_figures_of_what_is_there_cost_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(*_: object, **__: object) -> None:
        raise UserError("far enough")

    monkeypatch.setattr("onionlab.commands.figures.working_root", lambda: root)
    monkeypatch.setattr("onionlab.commands.figures.repeat_paper", started)
    assert main(["figures", "--no-run"]) == 2
    assert "cost" not in capsys.readouterr().out


def test_several_requests_are_one_line(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onionlab.runs.costs.estimate.calibrate", lambda cpus: HERE)
    _cost.say_cost(root, [request(seeds=1, engine=engine) for engine in ENGINES], 1)
    (line,) = capsys.readouterr().out.splitlines()
    assert "6 runs to make (0 of 6 there)" in line
    assert "on uml and shadow" in line or "on shadow and uml" in line


def test_the_model_is_json_that_people_can_read() -> None:
    text = (REPOSITORY / "configs" / "costs" / "model.json").read_text()
    assert list(json.loads(text)) == sorted(json.loads(text))
