"""Jobs of one workflow: what they ask for, what is said of those that were ended."""

from __future__ import annotations

import math
import re
import subprocess
import time
from pathlib import Path

import pytest

from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.errors import UserError
from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.requested_runs import RunKind, resolve_request
from onionlab.runs.plan import Plan
from onionlab.runs.store import Store
from onionlab.runs.workflow import drive, job_sizes, slurm
from onionlab.runs.workflow.executor import SLURM, Executor, OpenExecutor, Profile
from onionlab.runs.workflow.job_sizes import JobSize, largest
from onionlab.runs.workflow.remote import NOTICE_S, SILENCE_S, Remote

REPOSITORY = Path(__file__).resolve().parents[2]
RUN = PlannedRun("0a1b", "5mid", "rr", 1)
SIZE = JobSize(cpus=1, memory_mb=1500, runtime_min=20, disk_mb=10)


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """Jobs of one run, on a cluster that would take them."""
    monkeypatch.setattr(slurm, "require_cluster", lambda place, size: slurm.Cluster(accounts=False))
    opened = OpenExecutor(Executor(SLURM, partition="main"), Profile(tmp_path / "config.yaml", {}))
    found = Remote(opened, {RUN.run_id: SIZE}, tmp_path)
    found.require_cluster([RUN.run_id])
    return found


def queue_of(monkeypatch: pytest.MonkeyPatch, *jobs: slurm.QueuedJob) -> None:
    monkeypatch.setattr(slurm, "queue", lambda name: list(jobs))


def job(number: int, state: str, run_id: str = RUN.run_id) -> slurm.QueuedJob:
    return slurm.QueuedJob(str(number), "onionlab", state, "n2", "None", run_id)


def test_snakemake_is_told_all_of_it(remote: Remote, tmp_path: Path) -> None:
    words = " ".join(remote.arguments())
    assert "--executor slurm --jobs 100" in words
    assert "--retries 2" in words
    assert "--slurm-status-command squeue --slurm-no-account" in words
    assert re.search(r"--slurm-jobname-prefix onionlab-[0-9a-f]{12} ", words)
    assert remote.config(tmp_path / "beat")["resources"] == {"slurm_partition": "main"}


def test_runs_that_slurm_ended_are_told_with_what_they_had(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue_of(monkeypatch, job(9, "OUT_OF_MEMORY"), job(12, "TIMEOUT"), job(13, "RUNNING", "0b"))
    error = drive._failure({RUN.run_id: RUN}, Store(tmp_path), tmp_path / "log", remote)
    assert error.message == (
        "1 of 1 runs were ended; the first, 5mid rr seed 1: Slurm ended its job 12 on n2: TIMEOUT, "
        "the last of 2; the first of them had 1500 MB and 20 minutes, each later one as much more"
    )


def test_where_slurm_knows_nothing_the_log_is_shown(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue_of(monkeypatch)
    (tmp_path / "log").write_text("SLURM sbatch failed.")
    error = drive._failure({RUN.run_id: RUN}, Store(tmp_path), tmp_path / "log", remote)
    assert error.message == "the workflow failed"
    assert "SLURM sbatch failed." in (error.hint or "")


def test_a_slurm_that_is_away_ends_nothing(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(name: str) -> list[slurm.QueuedJob]:
        raise UserError("Slurm does not answer")

    monkeypatch.setattr(slurm, "queue", away)
    monkeypatch.setattr("onionlab.runs.workflow.remote.ASK_S", 0.0)
    assert remote.notes() == []
    remote.cancel()


class Clock:
    """Time, as `remote` asks for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = time.monotonic()
        monkeypatch.setattr("onionlab.runs.workflow.remote.time.monotonic", lambda: self.now_s)


@pytest.mark.parametrize(("all_there", "limit_s"), [(True, NOTICE_S), (False, SILENCE_S)])
def test_jobs_that_ended_without_snakemakes_notice_are_lost(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, all_there: bool, limit_s: float
) -> None:
    clock = Clock(monkeypatch)

    def is_lost(after_s: float, *jobs: slurm.QueuedJob, is_busy: bool = False) -> bool:
        queue_of(monkeypatch, *jobs)
        clock.now_s += after_s
        remote.notes()
        return remote.has_lost_its_jobs(all_there=all_there, is_busy=is_busy)

    remote.begin()
    # Those of an earlier command, before Snakemake has submitted any: planning may take minutes.
    assert not is_lost(900, job(1, "CANCELLED"))
    assert not is_lost(900, job(1, "CANCELLED"))
    assert not is_lost(900, job(1, "CANCELLED"), job(2, "PENDING"))
    assert not is_lost(900, job(2, "RUNNING"))
    assert not is_lost(20, job(2, "COMPLETED"))
    # Slurm forgets them after a while.
    assert not is_lost(limit_s - 1)
    # The report, or Snakemake's own question.
    assert not is_lost(20, is_busy=True)
    assert not is_lost(20)
    assert not is_lost(limit_s - 1)
    assert is_lost(1)
    remote.begin()
    assert not is_lost(900)


def test_a_slurm_that_does_not_answer_has_not_lost_them(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    remote.begin()
    queue_of(monkeypatch, job(1, "RUNNING"))
    clock.now_s += 20
    remote.notes()

    def away(name: str) -> list[slurm.QueuedJob]:
        raise UserError("Slurm does not answer")

    monkeypatch.setattr(slurm, "queue", away)
    clock.now_s += 900
    remote.notes()
    assert not remote.has_lost_its_jobs(all_there=True, is_busy=False)


@pytest.mark.parametrize(("made_each_time", "begun"), [(0, 3), (1, 6)])
def test_snakemake_is_begun_anew_as_long_as_that_brings_runs(
    remote: Remote,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    made_each_time: int,
    begun: int,
) -> None:
    store = Store(tmp_path / "runs")
    runs = [f"{number:x}0" for number in range(5)]
    calls: list[object] = []

    def loses_its_jobs(process: subprocess.Popen[bytes], *_: object) -> None:
        calls.append(process)
        left = [run for run in runs if not store.is_finished(run)]
        if not left:
            process.wait()
            return
        for run in left[:made_each_time]:
            store.manifest(run).parent.mkdir(parents=True)
            store.manifest(run).write_text("{}")
        raise drive._LostJobsError

    monkeypatch.setattr(drive, "_watch", loses_its_jobs)
    monkeypatch.setattr(slurm, "cancel", lambda name: 0)
    with (tmp_path / "log").open("wb") as log:
        succeeded = drive._follow(["true"], tmp_path, log, store, runs, remote)
    assert succeeded is (made_each_time > 0)
    assert len(calls) == begun
    assert (tmp_path / "log").read_text() == (drive.ANEW + "\n") * (begun - 1)


def test_a_job_asks_for_more_than_its_run_is_estimated_to_take(tmp_path: Path) -> None:
    plan = Plan(
        Request("quick", seeds=[1], engine="uml"),
        (PlannedRun("0a", "quick", "rr", 1),),
        tmp_path,
        tmp_path,
        1,
        Resources(1, 1, 1),
    )
    sizes = job_sizes.job_sizes(REPOSITORY, [plan])
    costs = Estimator(REPOSITORY).run_costs(resolve_request(REPOSITORY, plan.request))
    cost, size = costs[RunKind("quick", "rr")], sizes["0a"]
    assert size.memory_mb > cost.memory_bytes / 2**20 + 1000
    limit_min = job_sizes.TIME_FACTOR * cost.error * cost.expected.wall_s / 60
    assert size.runtime_min == math.ceil(limit_min) + job_sizes.EXTRA_TIME_MIN
    assert size.disk_mb >= cost.disk_bytes / 2**20
    assert largest([size, JobSize(2, 10, 99999, 1)]) == slurm.Size(2, size.memory_mb, 99999)
