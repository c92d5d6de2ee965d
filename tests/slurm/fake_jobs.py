"""Plans whose runs are jobs of an executor, and do not simulate."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.fake_jobs import FakeJobs

from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.runs.plan import Plan
from onionlab.runs.workflow import drive
from onionlab.runs.workflow.executor import Executor, JobSize

SIZE = JobSize(cpus=1, memory_mb=700, runtime_min=11, disk_mb=5)


class FakeWorkflow(FakeJobs):
    """Makes runs in a temporary store (folder of runs). Each run is a job of an executor."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch, option="--cluster", size=SIZE)

    def plan(self, *runs: str) -> Plan:
        """Return a plan of some runs."""
        planned = tuple(PlannedRun(run, "level", "rr", 1) for run in runs)
        # No machine has so much memory. The memory of this machine does not matter for jobs on a
        # cluster, so the runs have to start nevertheless.
        resources = Resources(memory_bytes=2**60, disk_bytes=1, processes=1)
        return Plan(Request("one"), planned, self.store, self.root / "results", 1, resources)

    def make(self, executor: Executor, *runs: str) -> None:
        """Make the runs with these IDs."""
        drive.make_runs(self.root, [self.plan(*runs)], executor)
