"""Plans: notes, repeated runs, and interrupts and kills while the names of runs are computed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from analysis.formats.manifest import Manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.errors import UserError
from onionlab.runs import plan
from onionlab.runs.outdated_runs import explain_outdated_runs
from onionlab.runs.store import Store

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0

# This program computes run names in other processes, like `onionlab run`. Each network takes
# argv[2] seconds.
PLANNER = """
import sys
import time
from multiprocessing import util
from pathlib import Path
from types import SimpleNamespace

from onionlab import cli
from onionlab.runs import plan

spawn = util.spawnv_passfds

def spawn_slowly(*args):
    pid = spawn(*args)
    time.sleep(0.2)
    return pid

# Wait after each start of a process, so that an interrupt can arrive before the process gets work.
util.spawnv_passfds = spawn_slowly

def open_builder(root, request):
    pass

def name_runs(seed):
    Path(sys.argv[1], str(seed)).touch()
    time.sleep(float(sys.argv[2]))
    return [seed]

plan._open_builder = open_builder
plan._name_with_opened_builder = name_runs

def run(args):
    print("planning", flush=True)
    print(plan._name_concurrently(Path("."), None, [1, 2, 3, 4], 2))
    return 0

if __name__ == "__main__":
    verb = SimpleNamespace(HELP="plan", setup_arguments=lambda parser: None, run=run)
    cli.command_modules, cli.load_command = lambda: {"plan": "plan"}, lambda name: verb
    sys.exit(cli.main(["plan"]))
"""


def start(tmp_path: Path, takes_s: float = 60.0) -> subprocess.Popen[str]:
    program = tmp_path / "planner.py"
    program.write_text(PLANNER)
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    planner = subprocess.Popen(
        [sys.executable, str(program), str(seeds), str(takes_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        # Tests send signals to this process group, as Ctrl-C in a terminal does.
        start_new_session=True,
    )
    assert planner.stdout is not None
    assert planner.stdout.readline() == "planning\n"
    return planner


def wait_for(planner: subprocess.Popen[str], tmp_path: Path, moment: str) -> list[psutil.Process]:
    """Wait until the planner's two worker processes have started, or until they work. Return them.

    moment: "helpers start" or "helpers work".
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        children = psutil.Process(planner.pid).children()
        found = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
        working = len(list((tmp_path / "seeds").iterdir()))
        if len(found) == 2 and (moment == "helpers start" or working == 2):
            return found
        time.sleep(0.002)
    raise AssertionError("no helpers")


@pytest.mark.parametrize("moment", ["helpers start", "helpers work"])
def test_an_interrupt_prints_one_word_and_leaves_no_process(tmp_path: Path, moment: str) -> None:
    planner = start(tmp_path)
    found = wait_for(planner, tmp_path, moment)
    os.killpg(planner.pid, signal.SIGINT)
    _, errors = planner.communicate(timeout=PATIENCE_S)
    assert errors == "interrupted\n"
    assert planner.returncode == 130
    _, alive = psutil.wait_procs(found, PATIENCE_S)
    assert not alive


def test_helpers_name_the_runs_in_order(tmp_path: Path) -> None:
    output, errors = start(tmp_path, 0.01).communicate(timeout=PATIENCE_S)
    assert (output, errors) == ("[[1], [2], [3], [4]]\n", "")


def test_a_helper_that_is_killed_is_one_line(tmp_path: Path) -> None:
    planner = start(tmp_path)
    wait_for(planner, tmp_path, "helpers work")[0].kill()
    _, errors = planner.communicate(timeout=PATIENCE_S)
    assert errors.startswith(
        "error: a process that named runs was killed, probably because memory ran out"
    )
    assert "Traceback" not in errors
    assert planner.returncode == 2


def test_unwritable_folders_are_reported_before_any_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """os.access() is replaced, because root may write everywhere."""
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "results")
    monkeypatch.setattr(plan, "open_run_builder", lambda *_: pytest.fail("it went on"))
    (tmp_path / "results").mkdir()
    with pytest.raises(UserError, match="results is not writable"):
        plan.make_plan(tmp_path, Request("quick"))


@pytest.mark.parametrize("selected", [["rr", "ewma"], ["rr", "stock"], ["rr"]])
def test_levels_that_share_runs_and_a_missing_baseline_are_named(
    selected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = [
        PlannedRun(f"{run_id}{seed}", level, "ewma", seed)
        for level, run_id in (("short", "a"), ("long", "a"), ("other", "b"))
        for seed in (1, 2)
    ]
    # With a deployment of 0 %, rr has the same run as ewma. The note does not mention this, because
    # it is only about levels.
    runs.append(PlannedRun("b1", "other", "rr", 1))
    monkeypatch.setattr(plan, "resolve_experiment", lambda _: {})
    bench = SimpleNamespace(
        experiment=SimpleNamespace(
            name="e", baseline="ewma", warnings=(), levels={"short": SimpleNamespace(settings=None)}
        ),
        engine=SimpleNamespace(name="uml"),
        selected=selected,
        added_variants=[],
        notes=(),
    )
    resources = Resources(1, 1, 1)
    results = {"open_run_builder": bench, "_name_runs": runs, "estimate_resources": resources}
    others = ("engine_options", "explain_outdated_runs", "with_earlier_looks", "build_study")
    for name in (*results, *others, "write_study"):
        monkeypatch.setattr(plan, name, lambda *_, name=name: results.get(name))
    plan.make_plan(tmp_path, Request("e"))
    compared = (
        "note: nothing is compared, because the baseline ewma is not among the variants; "
        "`make compare` compares any two of them"
    )
    same = "note: short and long have the same runs: nothing that they set makes a difference"
    assert caplog.messages == ([compared, same] if selected == ["rr", "stock"] else [same])


def test_a_written_plan_keeps_the_order_of_client_classes(tmp_path: Path) -> None:
    # Another order of the client classes would give other runs.
    levels: dict[str, Any] = {"web": {"traffic": {"web": {}, "bulk": {}}}, "bulk": {}}
    resources = Resources(1, 1, 1)
    planned = plan.Plan(
        Request("e"), (), tmp_path / "runs", tmp_path, 1, resources, {"levels": levels}
    )
    planned.write()
    assert json.dumps(plan.read_plan(planned.file).resolved) == json.dumps(planned.resolved)


OLD: dict[str, Any] = {
    "files": {"run.json": "f"},
    "programs": {"tor-circuit-policy": "1", "tor-stock": "2"},
    "libraries": {"libssl.so.3": "3", "libz.so.1": "4"},
    "processor": {"aes": True},
    "engine": {"name": "shadow", "version": "3.2.0"},
}
OTHER_BUILD = {"programs": {"tor-circuit-policy": "9", "tor-stock": "2"}}


def runs(prefix: str) -> list[PlannedRun]:
    return [
        PlannedRun(f"{prefix}{variant}{seed}", "5mid", variant, seed)
        for seed in (1, 2)
        for variant in ("rr", "ewma")
    ]


@pytest.mark.parametrize(
    ("change", "finished", "prefix", "reason"),
    [
        (OTHER_BUILD, "rr", "b", "2 finished runs are repeated: tor-circuit-policy is another"),
        ({"libraries": {"libssl.so.3": "5"}}, "rr ewma", "b", "another version of libssl.so.3"),
        ({"processor": {"aes": False}}, "rr ewma", "b", "this machine's processor differs"),
        ({"engine": {"name": "uml"}}, "rr ewma", "b", "the engine is another one than theirs"),
        (OTHER_BUILD, "", "b", ""),
        (OTHER_BUILD | {"files": {"run.json": "g"}}, "rr ewma", "b", ""),
        (OTHER_BUILD, "rr ewma", "a", ""),
    ],
)
def test_a_plan_names_the_reason_for_repeated_runs(
    tmp_path: Path, change: dict[str, Any], finished: str, prefix: str, reason: str
) -> None:
    store = Store(tmp_path)
    for run in runs("a"):
        if run.variant in finished:
            store.partial(run.run_id).mkdir(parents=True)
            store.finish(run.run_id, Manifest(run_id=run.run_id, identity=OLD))
    composed = SimpleNamespace(identity=lambda *_: OLD | change)
    builder: Any = SimpleNamespace(compose=lambda *_: composed, programs={}, engine=None)
    text = explain_outdated_runs(runs("a"), runs(prefix), store, builder)
    assert reason in text
    assert bool(text) is bool(reason)
    assert explain_outdated_runs([], runs(prefix), store, builder) == ""
