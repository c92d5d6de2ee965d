"""A whole small experiment, twice: the same bytes, wherever it runs."""

from __future__ import annotations

import compileall
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.formats.plan_file import Request
from onionlab.engines.uml import engine
from onionlab.engines.uml.engine import UmlEngine
from onionlab.paths import code_root, working_root
from onionlab.programs.tor.variants import load_registry
from onionlab.rundir.compose import RunDirectory
from onionlab.rundir.verify_tor import verify_tor_logs
from onionlab.runs import planning
from onionlab.runs.bench import Bench, open_bench
from onionlab.runs.planning import make_plan

DATA = working_root() / "tests" / "harness" / "data"
TINY = DATA / "tiny.yaml"
LOOK_FOR_FILES = "import os\n[os.path.exists('/nowhere') for _ in range(3000)]\n"
SHORTENED = DATA / "shortened.yaml"
TRANSFER = DATA / "transfer.yaml"


@pytest.fixture
def checkouts(
    tmp_path: Path, uml_engine: UmlEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Folders to run in, one after the other, each with the guest's code from another checkout.

    In the first Python compiles every module that it imports, in the second it finds them compiled,
    and looks for other files. There it also looks for a few thousand that are not there, as where
    packages are spread over many folders. So the guest takes other steps before the first program
    starts, and none of them may take simulated time.
    """

    def each() -> Iterator[str]:
        for name, compiled in (("one", False), ("a folder with a much longer name", True)):
            checkout = tmp_path / name / "checkout"
            for package in ("analysis", "onionlab"):
                shutil.copytree(
                    code_root() / package,
                    checkout / package,
                    ignore=shutil.ignore_patterns("__pycache__"),
                )
            monkeypatch.setattr(
                engine, "__file__", str(checkout / "onionlab/engines/uml/engine.py")
            )
            monkeypatch.setattr(engine, "code_root", lambda here=checkout: here)
            if compiled:
                start = checkout / "onionlab/engines/uml/guest/__main__.py"
                first, mark, rest = start.read_text().partition("if __name__")
                assert mark
                start.write_text(first + LOOK_FOR_FILES + mark + rest)
                compileall.compile_dir(checkout, quiet=1)
            yield name

    return each()


@pytest.mark.uml
@pytest.mark.tor
@pytest.mark.slow
def test_runs_have_the_same_names_whichever_process_composes_them(
    tmp_path: Path, uml_engine: UmlEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(str(TINY), seeds=[1, 2], engine="uml")
    planned = []
    for least in (1, 1000):
        monkeypatch.setattr(planning, "SIDE_BY_SIDE_RUNS", least)
        planned.append(make_plan(working_root(), request, print, out=tmp_path / str(least)).runs)
    assert planned[0] == planned[1]
    assert [run.seed for run in planned[0]] == sorted(run.seed for run in planned[0])
    assert len({run.run_id for run in planned[0]}) == len(planned[0]) >= 4


def composed(experiment: Path, variant: str) -> tuple[Bench, RunDirectory]:
    """The bench of an experiment with one level, and its run of seed 1."""
    bench = open_bench(working_root(), Request(str(experiment), engine="uml"), print)
    (level,) = bench.experiment.levels
    return bench, bench.compose(level, variant, 1)


def hashes_of_run(run: RunDirectory, bench: Bench, directory: Path) -> dict[str, str]:
    """Make a run; file below its hosts -> SHA-256, for all that the programs printed."""
    directory.mkdir()
    run.write(directory)
    bench.engine.run(
        directory,
        simulation=run.simulation,
        programs=bench.executables(),
        on_progress=lambda _progress: None,
    )
    hosts = directory / "shadow.data" / "hosts"
    return {
        str(path.relative_to(hosts)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(hosts.rglob("*.stdout"))
    }


@pytest.mark.uml
@pytest.mark.tor
@pytest.mark.slow
def test_the_same_seed_gives_the_same_logs_to_the_byte(
    tmp_path: Path, checkouts: Iterator[str]
) -> None:
    bench, run = composed(SHORTENED, "rr")
    hashes = []
    for place in checkouts:
        directory = tmp_path / place / "run"
        hashes.append(hashes_of_run(run, bench, directory))
        hosts = directory / "shadow.data" / "hosts"
        proofs = verify_tor_logs(
            hosts, run.expectations, load_registry(working_root()).proof_prefixes
        )
        assert proofs == {"Circuit policy in use: RR.": 3 + 4 + 12}
        successes = [
            path.read_text().count("[stream-success]") for path in hosts.glob("webclient*/tgen.*")
        ]
        assert len(successes) == 10
        assert sum(successes) > 10
    assert len(hashes[0]) == 3 + 4 + 4 + 2 * 12
    assert hashes[0] == hashes[1]


@pytest.mark.uml
@pytest.mark.slow
def test_the_same_seed_gives_the_same_transfer_to_the_byte(
    tmp_path: Path, checkouts: Iterator[str]
) -> None:
    bench, run = composed(TRANSFER, "slow-start")
    hashes = [hashes_of_run(run, bench, tmp_path / place / "run") for place in checkouts]
    assert len(hashes[0]) == 2
    assert hashes[0] == hashes[1]
