"""Runs on a real Slurm cluster: the same records as locally, no job left over, clear errors.

All tests are in one file, because files run in parallel and a machine can only run one cluster.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.checkout import REPOSITORY, Checkout, arguments
from shell_scripts import write_script

from onionlab.cli import build_parser
from onionlab.commands import doctor
from onionlab.errors import UserError
from onionlab.runs.workflow import executor
from onionlab.runs.workflow.executor import SLURM, Executor, JobSize, open_executor

from .cluster import NODE_MEMORY_MB, NODES, Cluster, ask
from .fake_jobs import FakeWorkflow

AWAY_S = 90.0
"""How long slurmctld is down, in seconds. Snakemake's plugin by default asks for jobs five times
before it gives up. Five attempts last longer than 70 s, but not 90 s. The executor sets more
attempts."""
END_LIMIT_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return the shipped profile, changed so that Slurm is asked about jobs earlier."""
    shipped = (REPOSITORY / "configs/slurm/config.yaml").read_text()
    folder = tmp_path / "profile"
    folder.mkdir()
    soon = "slurm-init-seconds-before-status-checks: "
    assert f"{soon}20" in shipped
    (folder / "config.yaml").write_text(shipped.replace(f"{soon}20", f"{soon}3"))
    return folder


@pytest.fixture
def slurm(cluster: Cluster, profile: Path) -> Iterator[Executor]:
    yield open_executor(SLURM, profile, {"slurm_partition": "main"}, None)
    left = cluster.jobs()
    cluster.cancel_all()  # The next tests must not have to wait for these jobs.
    assert left == []


def are_running(cluster: Cluster, count: int) -> Callable[[], bool]:
    return lambda: sum(" RUNNING " in line for line in cluster.jobs()) == count


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.tor
@pytest.mark.uml
def test_records_equal_those_of_local_runs(
    cluster: Cluster,
    checkout: Checkout,
    profile: Path,
    uml_kernel: object,
    circuit_policy_build: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    node_disk = tmp_path / "node-disk"
    node_disk.mkdir()
    monkeypatch.setenv("TMPDIR", str(node_disk))
    here = ["run", *arguments("uml", "rr,ewma")]
    through_slurm = [*here, "--executor", "slurm", "--profile", str(profile)]
    made = checkout.onionlab(*through_slurm, status=None)
    assert made.returncode == 0, made.stderr + cluster.ends_of_logs()
    assert "2 runs: 0 finished, 2 to make, at most 2 in the queue at a time, through slurm" in (
        made.stdout
    )
    ended = ask("squeue", "--noheader", "--states=all", "--format=%N %T")
    assert {line.split()[0] for line in ended if line.endswith(" COMPLETED")} == set(NODES)
    runs = checkout.run_names("tiny")
    hashes = {run: checkout.record_hashes(run) for run in runs}
    assert all(hashes.values())
    assert not list(node_disk.iterdir())
    for run in runs:
        checkout.remove_run(run)
    checkout.onionlab(*here)
    assert {run: checkout.record_hashes(run) for run in runs} == hashes


def test_an_interrupt_cancels_all_jobs(
    cluster: Cluster, workflow: FakeWorkflow, slurm: Executor
) -> None:
    def interrupt() -> None:
        cluster.wait(are_running(cluster, 2), "jobs that run")
        os.kill(os.getpid(), signal.SIGINT)

    thread = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt, match="its jobs are cancelled; 0 of 3 runs are finished"):
        workflow.make(slurm, "e1", "e2", "e3")
    thread.join()
    cluster.wait(lambda: not cluster.jobs(), "empty queue", END_LIMIT_S)


def test_jobs_of_a_killed_command_do_not_block_the_next(
    cluster: Cluster, workflow: FakeWorkflow, slurm: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    command = os.fork()
    if command == 0:
        workflow.make(slurm, "e1", "e2")
        os._exit(0)
    cluster.wait(are_running(cluster, 2), "jobs that run")
    os.kill(command, signal.SIGKILL)
    os.waitpid(command, 0)
    left = set(cluster.jobs())
    assert len(left) == 2

    def end_new_jobs() -> None:
        cluster.wait(lambda: not left & set(cluster.jobs()), "end of the jobs that were left")
        (workflow.root / "end").touch()

    thread = in_thread(end_new_jobs)
    workflow.make(slurm, "e1", "e2", "a3")
    thread.join()
    assert "2 jobs of an earlier command, which was killed, are cancelled" in caplog.messages
    assert workflow.finished() == {"e1", "e2", "a3"}


def test_neither_a_cancelled_job_nor_a_restart_of_the_controller_stops_a_command(
    cluster: Cluster,
    workflow: FakeWorkflow,
    slurm: Executor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # While the controller is down, the plugin uses sacct if `which` finds it. On a cluster without
    # accounting, such as this one, sacct never succeeds, so it is hidden.
    hides_sacct = 'test "$1" != sacct && exec /usr/bin/which "$@"\n'
    which = write_script(tmp_path / "bin" / "which", hides_sacct)
    monkeypatch.setenv("PATH", f"{which.parent}:{os.environ['PATH']}")
    command = in_thread(lambda: workflow.make(slurm, "e1", "e2"))
    try:
        cluster.wait(lambda: len(workflow.lines("calls")) == 2, "jobs at work")
        ask("scancel", cluster.jobs()[0].split()[0])
        cluster.wait(lambda: len(workflow.lines("calls")) == 3, "second attempt")
        # Because of setpriv --pdeathsig, a daemon ends with the thread that starts it. So the main
        # thread restarts slurmctld, and another thread makes the runs.
        cluster.end_daemon("slurmctld")
        time.sleep(AWAY_S)
        cluster.start_controller()
    finally:
        (workflow.root / "end").touch()
        command.join(END_LIMIT_S)
    assert workflow.finished() == {"e1", "e2"}
    assert not command.is_alive()


def test_the_error_states_how_slurm_ended_a_job(
    workflow: FakeWorkflow, slurm: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "RETRIES", 0)
    with pytest.raises(UserError, match=r"the workflow failed: .*SLURM status is: 'FAILED'"):
        workflow.make(slurm, "bad1")


@pytest.mark.parametrize(
    ("partition", "size", "message"),
    [
        ("fast", JobSize(1, 700, 11, 1), "invalid partition specified: fast"),
        ("main", JobSize(1, NODE_MEMORY_MB + 1, 11, 1), "node configuration is not available"),
        ("main", JobSize(2, 700, 11, 1), "node configuration is not available"),
    ],
)
def test_a_job_that_slurm_would_refuse_is_an_error(
    cluster: Cluster, profile: Path, partition: str, size: JobSize, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        open_executor(SLURM, profile, {"slurm_partition": partition}, None).require_acceptance(size)
    assert cluster.jobs() == []


def test_the_doctor_asks_the_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = build_parser("doctor").parse_args(["doctor", "--executor", "slurm"])
    (found,) = doctor.check_cluster(arguments)
    assert found.status == "ok"
    monkeypatch.setattr(executor, "SLURM_TIMEOUT_S", 10.0)
    cluster.end_daemon("slurmctld")
    try:
        (found,) = doctor.check_cluster(arguments)
        assert (found.status, found.subject) == ("missing", "cluster")
    finally:
        cluster.start_controller()
