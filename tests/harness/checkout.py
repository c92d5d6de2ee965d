"""A separate checkout for a test, and the commands that users run in it.

It has a copy of the code, and links to the shipped experiments and patches. It shares finished
builds and generated keys with the checkout in which the tests run. At first it has neither runs nor
results.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import yaml
from suite_roots import FINISHED_BUILDS

from analysis.formats.files import PROGRESS
from onionlab.runs.store import Store

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "harness" / "data"
TINY = DATA / "tiny.yaml"
CONTENDED = DATA / "contended.yaml"
KILLED = DATA / "killed.yaml"
CODE = ("analysis", "onionlab")
SHIPPED = ("configs", "experiments", "libtorrent-patches", "requirements.lock", "tor-patches")
# A command may first have to build Tor and the embedded engine's kernel.
BUILD_LIMIT_S = 2400


def share_builds(root: Path) -> None:
    """Link the folders of finished builds into ``root``. No other folder of build/ is shared."""
    (root / "build").mkdir()
    for name in FINISHED_BUILDS:
        (REPOSITORY / "build" / name).mkdir(parents=True, exist_ok=True)
        (root / "build" / name).symlink_to(REPOSITORY / "build" / name)


def ship(root: Path) -> None:
    """Link the files that are shipped with the code into ``root``."""
    for name in SHIPPED:
        (root / name).symlink_to(REPOSITORY / name)


class Checkout:
    """A checkout in ``root``, which must be an empty folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # While Python compiles a module, it writes a file *.pyc.NUMBER and then renames it. Copying
        # such a file may fail.
        unfinished = shutil.ignore_patterns("*.pyc.*")
        for name in CODE:
            shutil.copytree(REPOSITORY / name, root / name, ignore=unfinished)
        ship(root)
        share_builds(root)
        self.store = Store(root / "runs")

    def results(self, name: str) -> Path:
        """Return the results folder of an experiment."""
        return self.root / "results" / name

    def onionlab(self, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and require this exit status.

        If ``status`` is None, accept any status.
        """
        done = subprocess.run(
            [sys.executable, "-m", "onionlab", *arguments],
            cwd=self.root,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command and discard its output."""
        return subprocess.Popen(
            [sys.executable, "-m", "onionlab", *arguments],
            cwd=self.root,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def _environment(self) -> dict[str, str]:
        # The workflow's jobs run in another folder. Without PYTHONPATH they would import the
        # installed code and not the code in `root`.
        return {**os.environ, "PYTHONPATH": str(self.root)}

    def run_names(self, name: str) -> list[str]:
        """Return the names of the runs in an experiment's plan."""
        plan = json.loads((self.results(name) / "plan.json").read_text())
        return [str(run["run_id"]) for run in plan["runs"]]

    def remove_run(self, run_id: str) -> None:
        """Remove a run in any state."""
        for place in (self.store.run, self.store.partial, self.store.failed):
            shutil.rmtree(place(run_id), ignore_errors=True)

    def simulated_s(self) -> float:
        """Return the simulated time of a run in progress, or 0 if it has reported none."""
        for path in self.store.directory.glob(f".partial/*/{PROGRESS}"):
            try:
                return float(json.loads(path.read_text())["simulated_s"])
            except (OSError, ValueError):
                continue
        return 0.0

    def record_hashes(self, run_id: str) -> dict[str, str]:
        """Return the SHA-256 of each file of a run's records, by name."""
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.store.run(run_id).glob("records-*/*"))
            # A process that is killed while it writes records leaves a temporary folder.
            if path.is_file()
        }


def arguments(engine: str, variant: str = "rr", experiment: Path = TINY) -> list[str]:
    """Return the arguments of a command for one run of an experiment."""
    return [str(experiment), "--variants", variant, "--engine", engine]


def extended(folder: Path, name: str, **changes: object) -> Path:
    """Write an experiment that extends a shipped one, and return the file's path.

    changes: keys of the new file.
    """
    path = folder / "one.yaml"
    content = {"extends": f"{REPOSITORY}/experiments/{name}.yaml", **changes}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def processes_below(directory: Path) -> list[int]:
    """Return the IDs of processes whose working directory is in or below a directory."""
    return [
        process.pid
        for process in psutil.process_iter(["cwd"])
        if (process.info["cwd"] or "").startswith(str(directory))
    ]
