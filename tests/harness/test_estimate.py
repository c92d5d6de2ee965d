"""The estimated cost of runs: totals, existing runs, corrections by finished runs, and texts."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.formats.json_files import write_json
from analysis.formats.manifest import Manifest, identity_hash, write_manifest
from analysis.formats.plan_file import Request
from onionlab.cli import main
from onionlab.commands import estimate as command
from onionlab.engines import ENGINES
from onionlab.errors import UserError
from onionlab.programs.building import NotBuiltError
from onionlab.rundir.arti import BOOTSTRAPPED
from onionlab.runs.costs import estimate as estimate_module
from onionlab.runs.costs import finished_runs
from onionlab.runs.costs.estimate import Estimate, Estimator, cost_text
from onionlab.runs.costs.requested_runs import resolve_request
from onionlab.runs.costs.run_cost import CONSTANTS, OTHER_LEVELS, SAME_LEVEL, RunCost
from onionlab.runs.provenance import host_facts

from .checkout import ship

VARIANTS = ("rr", "ewma")
NETWORKS, TORS, STOP_S = 7, 19, 255.0
RUNS = NETWORKS * len(VARIANTS)
"""`quick` has these variants, networks and runs. Each run has TORS processes of Tor, and simulates
STOP_S seconds."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout without runs, and let the command `estimate` work in this checkout."""
    ship(tmp_path)
    monkeypatch.setattr(command, "working_root", lambda: tmp_path)
    return tmp_path


def request(name: str = "quick", **asked: Any) -> Request:
    return Request(name, **{"engine": "uml", **asked})


def estimate(root: Path, *requests: Request, jobs: int | None = 1) -> Estimate:
    return Estimator(root).estimate(requests, jobs)


def run_cost(root: Path, asked: Request, level: str = "quick") -> RunCost:
    requested = resolve_request(root, asked)
    return Estimator(root).level_costs(requested.experiment, requested.engine)[level]


# Totals


def test_every_run_is_counted(root: Path) -> None:
    found = estimate(root, request())
    assert (found.runs, found.missing, found.sources) == (RUNS, RUNS, (CONSTANTS,))
    one = run_cost(root, request()).expected
    assert found.cpu_s == pytest.approx(RUNS * one.cpu_s)
    assert found.wall_s == pytest.approx(RUNS * one.wall_s)
    assert found.disk_bytes == pytest.approx(RUNS * one.disk_bytes)
    assert found.memory_bytes == one.memory_bytes


def test_a_run_of_two_experiments_is_counted_once(root: Path) -> None:
    # Each request compares three variants in the same networks, and both include swrr-linear.
    asked = [request(name, seeds=2, scale=0.1) for name in ("swrr-5mid", "weights-5mid")]
    found = estimate(root, *asked)
    assert found.runs == found.missing == 2 * (3 + 3 - 1)
    engines = [request(seeds=1, engine=engine) for engine in ENGINES]
    assert estimate(root, *engines).runs == len(VARIANTS) * len(ENGINES)


def test_levels_that_share_a_run_are_counted_once(root: Path) -> None:
    # The levels have different options of Shadow, which the other engine does not use.
    for engine, runs in (("uml", 1), ("shadow", 8)):
        found = estimate(root, request("engine-options", seeds=1, engine=engine))
        assert (found.runs, found.missing) == (runs, runs)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request(seeds=0), "NETWORKS|networks"),
        (request(variants=("nobody",)), 'unknown variant "nobody"'),
        (request(engine="abacus"), "unknown engine 'abacus'"),
    ],
)
def test_a_request_that_cannot_be_run_is_rejected(root: Path, asked: Request, message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimate(root, asked)


# Parallel runs


def test_concurrent_runs_are_limited_by_cpus(root: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    assert estimate(root, request(), jobs=10**6).concurrent == min(cpus, RUNS)
    assert estimate(root, request(seeds=1, variants=("rr",)), jobs=None).concurrent == 1


def test_no_more_runs_go_side_by_side_than_fit_into_memory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    one = run_cost(root, request()).memory_bytes
    for available, runs in ((8.5 * one, 8), (3.5 * one, 3), (0.5 * one, 1)):
        monkeypatch.setattr(
            estimate_module, "available_memory_bytes", lambda available=available: int(available)
        )
        assert estimate(root, request(), jobs=None).concurrent == runs
    # The memory of a cluster's nodes is not known, so only the number of jobs limits the runs.
    assert Estimator(root, max_jobs=5).estimate([request()]).concurrent == 5


# Existing runs


def identity(
    variant: str, seed: int, engine: str = "uml", tors: int = TORS, program: str = "a"
) -> dict[str, Any]:
    torrcs = [f"shadow.data.template/hosts/h{number}/torrc" for number in range(tors)]
    files = {**dict.fromkeys(torrcs, ""), "variant": variant, "seed": str(seed)}
    return {"engine": {"name": engine}, "programs": {"tor": program}, "files": files}


def finish(
    root: Path, variant: str = "rr", seed: int = 1, *, cpu_s: float = 100.0, level: str = "quick",
    here: bool = True, engine: str = "uml", tors: int = TORS, program: str = "a", artis: int = 0,
) -> None:  # fmt: skip
    """Put a finished run into the store of a checkout.

    here: whether this machine performed it. tors, artis: numbers of hosts with Tor and with Arti.
    """
    described = identity(variant, seed, engine, tors, program)
    run_id = identity_hash(described)
    folder = root / "runs" / run_id
    folder.mkdir(parents=True)
    write_json(folder / "run.json", {"epoch_unix_s": 0, "stop_s": STOP_S})
    write_manifest(
        folder / "manifest.json",
        Manifest(
            run_id=run_id,
            title=f"{level} {variant} seed {seed}",
            seed=seed,
            variant=variant,
            identity=described,
            cpu_s=cpu_s,
            total_wall_s=2 * cpu_s,
            peak_memory_bytes=2**28,
            log_bytes={"log": 10**6},
            proofs={BOOTSTRAPPED: artis} if artis else {},
            host=dict(host_facts()) if here else {"cpu": "abacus", "cpus": 1},
        ),
    )


class FakeRunBuilder:
    """Composes runs with the same identities as the runs that ``finish`` puts into the store."""

    programs = engine = None

    def __init__(self) -> None:
        self.composed: list[tuple[str, int]] = []
        self.drawn = True

    def is_drawn(self, _seed: int) -> bool:
        return self.drawn

    def compose(self, _level: str, variant: str, seed: int, _repeat: int = 1) -> SimpleNamespace:
        self.composed.append((variant, seed))
        return SimpleNamespace(identity=lambda programs, engine: identity(variant, seed))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeRunBuilder:
    made = FakeRunBuilder()
    monkeypatch.setattr(finished_runs, "open_run_builder", lambda *_: made)
    return made


def test_finished_runs_are_not_made_again(root: Path, bench: FakeRunBuilder) -> None:
    for seed in (1, 2):
        finish(root, "rr", seed)
    found = estimate(root, request())
    assert (found.runs, found.missing) == (RUNS, RUNS - 2)
    # Composing a run gives its name, but takes time, so only the first run of rr is composed. The
    # second run of rr counts as existing because it has the same programs.
    assert bench.composed == [("rr", 1)]
    for variant, seed in itertools.product(VARIANTS, range(1, NETWORKS + 1)):
        if variant != "rr" or seed > 2:
            finish(root, variant, seed)
    found = estimate(root, request())
    assert (found.missing, found.cpu_s, found.wall_s) == (0, 0.0, 0.0)
    assert cost_text(found) == f"none: all {RUNS} runs are finished"


def test_runs_with_other_inputs_do_not_count(root: Path, bench: FakeRunBuilder) -> None:
    finish(root, "rr", 1, tors=5)
    assert estimate(root, request()).missing == RUNS
    finish(root, "rr", 1)
    finish(root, "rr", 2, program="b")
    finish(root, "ewma", 1, engine="shadow")
    finish(root, "rr", 99)
    assert estimate(root, request()).missing == RUNS - 1


def test_runs_are_unknown_before_programs_are_built(
    root: Path, bench: FakeRunBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(root)
    bench.drawn = False
    found = estimate(root, request())
    assert (found.missing, found.unknown, bench.composed) == (RUNS, 1, [])

    def fail(*_: object) -> None:
        raise NotBuiltError("Tor is not built")

    monkeypatch.setattr(finished_runs, "open_run_builder", fail)
    found = estimate(root, request())
    assert (found.missing, found.unknown) == (RUNS, 1)
    assert f"(0 of {RUNS} exist, perhaps 1 more)" in cost_text(found)


# Corrections by finished runs


def test_finished_runs_of_a_level_give_its_cost(root: Path, bench: FakeRunBuilder) -> None:
    finish(root, "rr", 1, cpu_s=50)
    finish(root, "ewma", 2, cpu_s=200)
    cost = run_cost(root, request())
    assert cost.source == SAME_LEVEL
    assert cost.expected.cpu_s == pytest.approx(100)  # the geometric mean
    assert cost.expected.wall_s == pytest.approx(200)
    assert cost.expected.memory_bytes == pytest.approx(2**28)
    assert cost.expected.disk_bytes == pytest.approx(1.6e6)
    assert cost.memory_bytes > 1.4 * 2**28
    # Clients of Arti have no torrc, but count like clients of Tor.
    finish(root, "rr", 3, cpu_s=100, tors=TORS - 12, artis=12)
    assert run_cost(root, request()).expected.cpu_s == pytest.approx(100)
    # For a larger network of the same level, the cost of these runs is scaled up.
    double = run_cost(root, request(scale=2.0))
    assert double.expected.cpu_s == pytest.approx(100 * 33 / TORS, rel=0.1)


def test_finished_runs_of_other_levels_correct_the_constants(root: Path) -> None:
    asked = request("swrr-5mid", scale=0.1, seeds=1)
    alone = run_cost(root, asked, "5mid")
    quick = run_cost(root, request()).expected.cpu_s
    for seed in range(1, 4):
        finish(root, "rr", seed, cpu_s=3 * quick)
    finish(root, "rr", 4, cpu_s=12 * quick, level="other")
    corrected = run_cost(root, asked, "5mid")
    assert (alone.source, corrected.source) == (CONSTANTS, OTHER_LEVELS)
    # The runs of two levels cost 3 and 12 times the estimate. The correction is the geometric mean
    # of the two factors, 6. The levels' numbers of runs do not matter.
    assert corrected.expected.cpu_s == pytest.approx(6 * alone.expected.cpu_s)
    assert corrected.error == alone.error > run_cost(root, request()).error
    assert run_cost(root, request(engine="shadow")).source == CONSTANTS


def test_runs_of_another_machine_and_damaged_ones_are_ignored(root: Path) -> None:
    finish(root, "rr", 1, here=False)
    finish(root, "rr", 2)
    finish(root, "rr", 3)
    damaged, without_clock = (path for path in sorted((root / "runs").iterdir())
                              if "abacus" not in (path / "manifest.json").read_text())  # fmt: skip
    (damaged / "manifest.json").write_text("[]")
    (without_clock / "run.json").unlink()
    assert run_cost(root, request()).source == CONSTANTS


# Texts and commands


def test_the_command_prints_a_table(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "quick", "--engine", "uml", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "quick",
        f"  runs       {RUNS}, of which 0 exist",
        f"  to make    {RUNS} on uml",
    ]
    assert [line.split()[0] for line in lines[3:]] == [
        "CPU", "wall", "memory", "disk", "from", "error",
    ]  # fmt: skip
    assert lines[8] == "  error      CPU time within a factor of 3 in nine of ten experiments"
    assert not (root / "runs").exists(), "nothing is run"
    assert not (root / "build").exists(), "nothing is built"


@pytest.mark.parametrize(
    ("words", "starts", "runs"),
    [
        (["experiment", "swrr-5mid"], "make_plan", 30),
        (["run", "swrr-5mid", "--seeds", "2"], "make_plan", 6),
        (["figures", "--seeds", "1"], "reproduce_paper", 15),
        (["compare-engines", "swrr-5mid", "--seeds", "2"], "compare_engines", 12),
        (["nightly", "--seeds", "20"], "run_nightly", 20),
    ],
)
def test_commands_print_the_cost_before_anything_else(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    starts: str,
    runs: int,
) -> None:
    printed: list[str] = []

    def started(*_: object, **__: object) -> None:
        printed.append(capsys.readouterr().out)
        raise UserError("far enough")

    module = f"onionlab.commands.{words[0].replace('-', '_')}"
    monkeypatch.setattr(f"{module}.working_root", lambda: root)
    monkeypatch.setattr(f"{module}.{starts}", started)
    engine = [] if words[0] == "compare-engines" else ["--engine", "uml"]
    assert main([*words, *engine]) == 2
    (line,) = printed[0].splitlines()
    assert line.startswith(f"cost: {runs} runs to make (0 of {runs} exist), about ")
