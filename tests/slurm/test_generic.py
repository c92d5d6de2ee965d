"""EXECUTOR=generic: a cluster with a command for submitting jobs, here a small script."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from shell_scripts import write_script

from onionlab.errors import UserError
from onionlab.runs.store import Store
from onionlab.runs.workflow import drive
from onionlab.runs.workflow.executor import GENERIC, Executor, open_executor

from .fake_jobs import FakeWorkflow

# This script starts a job at once and in a new session, as a cluster does.
SUBMIT = """\
echo "$1" >>'{folder}/submitted'
env -i PATH="$PATH" HOME="$HOME" setsid sh "$2" >>'{folder}/output' 2>&1 </dev/null &
echo $!
"""


@pytest.fixture
def executor(workflow: FakeWorkflow) -> Executor:
    submit = write_script(workflow.root / "submit", SUBMIT.format(folder=workflow.root))
    profile = workflow.root / "profile"
    profile.mkdir()
    wanted = "{threads}/{resources.mem_mb}/{resources.runtime}/{resources.disk_mb}"
    (profile / "config.yaml").write_text(
        f"cluster-generic-submit-cmd: {submit} {wanted}\nlatency-wait: 5\n"
    )
    return open_executor(GENERIC, profile, {}, max_jobs=2)


@pytest.mark.slow
def test_a_command_to_submit_jobs_is_sufficient(workflow: FakeWorkflow, executor: Executor) -> None:
    with pytest.raises(UserError, match="the workflow failed"):
        workflow.make(executor, "a2", "bad1", "cc1")
    # A failed job is submitted again with more memory and time, and does not stop the others.
    assert sorted(workflow.lines("calls")) == ["a2", *["bad1"] * 3, "cc1", "cc1"]
    sizes = {"1/700/11/5": 3, "1/1400/22/5": 2, "1/2100/33/5": 1}
    assert Counter(workflow.lines("submitted")) == sizes
    assert workflow.finished() == {"a2", "cc1"}
    assert str(Path(drive.__file__).parents[3]) in workflow.lines("path")[0]


def test_a_command_waits_for_files_of_other_nodes(
    workflow: FakeWorkflow, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has succeeded, so its marker is here, but the run is not visible yet."""
    asked: list[float] = []

    def run_snakemake(self: drive._Workflow, *_: object) -> bool:
        self.made.mkdir()
        (self.made / "a2").touch()
        return True

    def await_records(store: Store, runs: object, timeout_s: float) -> set[str]:
        asked.append(timeout_s)
        return set()

    monkeypatch.setattr(drive._Workflow, "_run_snakemake", run_snakemake)
    monkeypatch.setattr(Store, "await_records", await_records)
    workflow.make(executor, "a2")
    assert asked == [5.0]


@pytest.mark.slow
def test_the_report_is_made_here(workflow: FakeWorkflow, executor: Executor) -> None:
    workflow.make(executor, "d4")
    (workflow.root / "no-report").touch()
    with pytest.raises(UserError, match="the workflow failed"):
        drive.make_report(workflow.root, workflow.plan("d4"), executor)
    # Only the run is submitted. The report is made here, and not repeated after its failure.
    assert len(workflow.lines("submitted")) == len(workflow.lines("reports")) == 1


def test_a_profile_that_lets_snakemake_make_nothing_is_an_error(
    workflow: FakeWorkflow, executor: Executor
) -> None:
    with executor.profile.open("a") as file:
        file.write("dry-run: true\n")
    with pytest.raises(UserError, match="the workflow failed"):
        workflow.make(executor, "a2")


def test_a_path_that_job_scripts_cannot_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: Executor
) -> None:
    (tmp_path / "a folder").mkdir()
    with pytest.raises(UserError, match="a folder/runs: jobs of a cluster cannot use a path"):
        FakeWorkflow(tmp_path / "a folder", monkeypatch).make(executor, "a2")
