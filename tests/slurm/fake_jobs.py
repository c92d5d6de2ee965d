"""Plans with jobs that do not simulate: a shell script replaces Python in each job."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.formats.files import RECORDS
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.runs.plan import Plan
from onionlab.runs.workflow import drive
from onionlab.runs.workflow.executor import Executor, JobSize

# A run whose name begins with bad always fails, c1 fails the first time, and runs that begin with e
# wait for the file `end`.
JOB = """\
#!/bin/sh
if test "$3" = report; then
    echo made >>'{folder}/reports'
    test ! -e '{folder}/no-report'
    exit
fi
echo "$9" >>'{folder}/calls'
echo "$PYTHONPATH" >'{folder}/path'
test "${{10}}" = --cluster || exit 9
case "$9" in
bad*) exit 1 ;;
c1) test "$(grep -c c1 '{folder}/calls')" -gt 1 || exit 1 ;;
e*) until test -e '{folder}/end'; do sleep 0.2; done ;;
esac
mkdir -p '{store}'/"$9"/{records} && echo '{{}}' >'{store}'/"$9"/manifest.json
echo '{{}}' >'{store}'/"$9"/{records}/parse.json
"""
SIZE = JobSize(cpus=1, memory_mb=700, runtime_min=11, disk_mb=5)


class FakeWorkflow:
    """Makes runs in a temporary store (folder of runs). Each run is a job of an executor."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.store = root, root / "runs"
        self.store.mkdir()
        job = root / "job"
        job.write_text(JOB.format(folder=root, store=self.store, records=RECORDS))
        job.chmod(0o755)
        original = drive._Workflow._configuration
        monkeypatch.setattr(
            drive._Workflow,
            "_configuration",
            lambda *arguments: {**original(*arguments), "python": str(job)},
        )
        monkeypatch.setattr(
            drive,
            "job_sizes",
            lambda root, plans: {run.run_id: SIZE for plan in plans for run in plan.runs},
        )

    def plan(self, *runs: str) -> Plan:
        """Return a plan of some runs."""
        planned = tuple(PlannedRun(run, "level", "rr", 1) for run in runs)
        # No machine has so much memory. For a cluster this must not be checked here, so the runs
        # have to start nevertheless.
        resources = Resources(memory_bytes=2**60, disk_bytes=1, processes=1)
        return Plan(Request("one"), planned, self.store, self.root / "results", 1, resources)

    def make(self, executor: Executor, *runs: str) -> None:
        """Make some runs."""
        drive.make_runs(self.root, [self.plan(*runs)], executor)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that the jobs wrote, or none if it is missing."""
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []

    def log(self) -> str:
        """Return Snakemake's log."""
        return (self.root / "results" / drive.LOG_NAME).read_text()
