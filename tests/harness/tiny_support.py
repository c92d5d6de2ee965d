"""The tiny experiment, run as a user would run it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from onionlab.runs.store import Store

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "harness" / "data"
TINY = DATA / "tiny.yaml"
CONTENDED = DATA / "contended.yaml"
KILLED = DATA / "killed.yaml"
RESULTS = REPOSITORY / "results" / "tiny"
GENERATED = REPOSITORY / "build" / "generated"
STORE = Store(REPOSITORY / "runs")
# The first test may have to build Tor and the embedded engine's kernel.
BUILD_LIMIT_S = 2400


def onionlab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onionlab", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )


def planned_run(engine: str, experiment: Path = TINY) -> str:
    """Plan an experiment of one run (and build what is missing); return the run's name."""
    name = experiment.stem
    words = arguments(engine, experiment=experiment)
    done = onionlab("generate", *words, "--output", str(GENERATED / name))
    assert done.returncode == 0, done.stderr
    plan = json.loads((REPOSITORY / "results" / name / "plan.json").read_text())
    return str(plan["runs"][0]["run_id"])


def arguments(engine: str, variant: str = "rr", experiment: Path = TINY) -> list[str]:
    return [str(experiment), "--variants", variant, "--engine", engine]


def remove_run(run_id: str) -> None:
    for place in (STORE.run(run_id), STORE.partial(run_id), STORE.failed(run_id)):
        shutil.rmtree(place, ignore_errors=True)


def record_hashes(run_id: str) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(STORE.run(run_id).glob("records-*/*"))
    }


def processes_below(directory: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str((entry / "cwd").readlink()).startswith(str(directory)):
                found.append(entry.name)
        except OSError:
            continue
    return found
