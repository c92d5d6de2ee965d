"""A whole small experiment, twice: the same bytes, wherever it runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onionlab import plan
from onionlab.engines.uml.engine import UmlEngine
from onionlab.paths import repository_root
from onionlab.plan import Request, make_plan, open_bench
from onionlab.tor.variants import load_registry
from onionlab.verify import verify_tor_logs

TINY = repository_root() / "tests" / "harness" / "data" / "tiny.yaml"


@pytest.mark.uml
@pytest.mark.tor
@pytest.mark.slow
def test_runs_have_the_same_names_whichever_process_composes_them(
    tmp_path: Path, uml_engine: UmlEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(str(TINY), seeds=[1, 2], engine="uml")
    planned = []
    for least in (1, 1000):
        monkeypatch.setattr(plan, "SIDE_BY_SIDE_RUNS", least)
        planned.append(make_plan(repository_root(), request, print, out=tmp_path / str(least)).runs)
    assert planned[0] == planned[1]
    assert [run.seed for run in planned[0]] == sorted(run.seed for run in planned[0])
    assert len({run.run_id for run in planned[0]}) == len(planned[0]) >= 4


@pytest.mark.uml
@pytest.mark.tor
@pytest.mark.slow
def test_the_same_seed_gives_the_same_logs_to_the_byte(
    tmp_path: Path, uml_engine: UmlEngine
) -> None:
    bench = open_bench(repository_root(), Request(str(TINY), engine="uml"), print)
    (level,) = bench.experiment.levels
    hashes = []
    for place in ("one", "a folder with a much longer name"):
        run = bench.compose(level, "rr", 1)
        directory = tmp_path / place
        directory.mkdir()
        run.write(directory)
        uml_engine.run(
            directory,
            simulation=run.simulation,
            programs=bench.executables(),
            on_progress=lambda _progress: None,
        )
        hosts = directory / "shadow.data" / "hosts"
        proofs = verify_tor_logs(
            hosts, run.expectations, load_registry(repository_root()).proof_prefixes
        )
        assert proofs == {"Circuit policy in use: RR.": 12}
        successes = [
            path.read_text().count("[stream-success]") for path in hosts.glob("webclient*/tgen.*")
        ]
        assert len(successes) == 4
        assert sum(successes) > 20
        hashes.append(
            {
                str(path.relative_to(hosts)): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(hosts.rglob("*.stdout"))
            }
        )
    assert len(hashes[0]) == 3 + 4 + 2 + 2 * 5
    assert hashes[0] == hashes[1]
