"""Runs as jobs of a real Slurm: the records of local runs, and nothing left behind at any end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
import yaml
from harness.checkout import REPOSITORY, Checkout, arguments, processes_below

from analysis.formats.files import PROGRESS

from .cluster import NODES, Cluster, ask

pytestmark = [pytest.mark.slow, pytest.mark.uml, pytest.mark.timeout(1500)]

RUNS = ["run", *arguments("uml", "rr,ewma")]
START_LIMIT_S = 240.0
END_LIMIT_S = 60.0
"""Within which the jobs of a command have to end that was killed."""


@pytest.fixture
def here(
    cluster: Cluster, checkout: Checkout, uml_kernel: object, circuit_policy_build: None
) -> Iterator[Checkout]:
    """A checkout whose nodes have all that runs take, and a profile that does not wait long."""
    profile = yaml.safe_load((REPOSITORY / "configs/slurm/config.yaml").read_text())
    profile["slurm-init-seconds-before-status-checks"] = 3
    folder = checkout.root / "soon"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(profile))
    yield checkout
    assert cluster.jobs() == []
    assert processes_below(checkout.store.directory) == []


def on_slurm(*words: str) -> list[str]:
    return [*RUNS, "--executor", "slurm", "--profile", "soon", *words]


def wait_for(is_so: Callable[[], object], what: str, limit_s: float) -> float:
    """Wait until something is so; return how long that took."""
    started_s = time.monotonic()
    while not is_so():
        took_s = time.monotonic() - started_s
        assert took_s < limit_s, f"no {what} after {took_s:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - started_s


def start(checkout: Checkout) -> subprocess.Popen[bytes]:
    """Start the runs, and wait until one of them simulates."""
    command = checkout.start(*on_slurm())
    partial = checkout.store.directory / ".partial"
    wait_for(
        lambda: command.poll() is not None or list(partial.glob(f"*/{PROGRESS}")),
        "run under way",
        START_LIMIT_S,
    )
    assert command.poll() is None
    return command


def hashes(checkout: Checkout) -> dict[str, dict[str, str]]:
    return {run: checkout.record_hashes(run) for run in checkout.run_names("tiny")}


def test_records_are_those_of_runs_made_here(here: Checkout) -> None:
    made = here.onionlab(*on_slurm("--partition", "main"))
    assert made.returncode == 0, made.stderr + log_of(here)
    assert "2 runs: 0 are there, 2 to do, at most 2 in the queue at a time, through slurm" in (
        made.stdout
    )
    # Both nodes made one.
    lines = ask("squeue", "--noheader", "--states=all", "--format=%N %T")
    assert {line.split()[0] for line in lines if line.endswith(" COMPLETED")} == set(NODES)
    through_slurm = hashes(here)
    assert all(through_slurm.values())
    for run in through_slurm:
        here.remove_run(run)
    again = here.onionlab(*RUNS)
    assert again.returncode == 0, again.stderr
    assert hashes(here) == through_slurm


def log_of(checkout: Checkout) -> str:
    """What Snakemake said, and the jobs."""
    logs = [*checkout.results("tiny").glob("workflow.log")]
    logs += checkout.results("tiny").glob("job-logs/**/*.log")
    return "\n".join(path.read_text(errors="replace")[-3000:] for path in logs)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_jobs_end_with_their_command(
    here: Checkout, cluster: Cluster, number: signal.Signals
) -> None:
    command = start(here)
    os.kill(command.pid, number)
    assert command.wait(60) == (130 if number == signal.SIGTERM else -number)
    wait_for(lambda: not cluster.jobs(), "empty queue", END_LIMIT_S)
    assert processes_below(here.store.directory) == []
    # The same command goes on from there.
    made = here.onionlab(*on_slurm())
    assert made.returncode == 0, made.stderr + log_of(here)
    assert all(hashes(here).values())


def test_a_job_that_is_cancelled_is_made_again(here: Checkout, cluster: Cluster) -> None:
    command = start(here)
    first = cluster.jobs()[0].split()[0]
    ask("scancel", first)
    assert command.wait(600) == 0, log_of(here)
    assert all(hashes(here).values())
