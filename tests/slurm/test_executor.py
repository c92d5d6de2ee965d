"""Executors: errors before a job is submitted, and the arguments of Snakemake."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.commands._arguments import add_run_arguments
from onionlab.commands._request import parse_executor
from onionlab.errors import UserError
from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.requested_runs import resolve_request
from onionlab.runs.plan import Plan
from onionlab.runs.workflow import executor
from onionlab.runs.workflow.executor import Executor, JobSize, job_sizes, largest

REPOSITORY = Path(__file__).resolve().parents[2]
SIZE = JobSize(cpus=1, memory_mb=1500, runtime_min=20, disk_mb=1)


@pytest.fixture(autouse=True)
def slurm_commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Replace Slurm by a fake that has no accounting and accepts all jobs.

    Return a list to which each query to Slurm appends its command.
    """
    commands: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        commands.append(command)
        return "AccountingStorageType   = accounting_storage/none\n"

    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(executor, "_ask_slurm", ask)
    return commands


def parse(*words: str) -> Executor | None:
    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    return parse_executor(parser.parse_args(words))


def slurm(*words: str) -> Executor:
    found = parse("--executor", "slurm", *words)
    assert found is not None
    return found


def write_profile(folder: Path, text: str, name: str = "config.yaml") -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return ["--profile", str(folder)]


def test_without_an_executor_runs_are_made_here() -> None:
    assert parse() is None
    assert parse("--jobs", "3") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--partition", "main"], "are for the jobs of a cluster"),
        (["--executor", "slurm", "--jobs", "3"], "--jobs is for simulations on this machine"),
        (["--executor", "slurm", "--profile", "/gone"], "/gone is not a Snakemake profile"),
        (["--executor", "generic"], "needs a profile with cluster-generic-submit-cmd"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(*words)


@pytest.mark.parametrize("text", ["a: [", "- a", "jobs: many"])
def test_a_profile_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"config\.yaml is not a Snakemake profile"):
        slurm(*write_profile(tmp_path, text))


def test_options_of_slurm_are_refused_for_another_cluster(tmp_path: Path) -> None:
    words = write_profile(tmp_path, "cluster-generic-submit-cmd: qsub")
    with pytest.raises(UserError, match="PARTITION, ACCOUNT and QOS are options of Slurm"):
        parse("--executor", "generic", *words, "--qos", "b")


def test_a_machine_without_slurm_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match="this machine has no sbatch"):
        slurm()


def test_the_command_line_overrides_the_profile(tmp_path: Path) -> None:
    write_profile(tmp_path, "jobs: 1")
    write_profile(tmp_path, "jobs: 8", "config.v8+.yaml")
    words = write_profile(tmp_path, "jobs: 9", "config.v9+.yaml")
    assert slurm(*words).max_jobs == 9
    assert slurm(*words, "--max-jobs", "12").max_jobs == 12
    assert slurm("--partition", "fast").resources == {"slurm_partition": "fast"}


def test_snakemake_gets_the_profile_and_options_for_this_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = slurm(*write_profile(tmp_path, "")).arguments("onionlab-0a", tmp_path / "logs")
    options = dict(zip(words[::2], words[1::2], strict=False))
    assert options["--profile"] == str(tmp_path / "config.yaml")
    assert (options["--executor"], options["--jobs"]) == ("slurm", "100")
    assert options["--slurm-jobname-prefix"] == "onionlab-0a"
    assert words[-3:] == ["--slurm-status-command", "squeue", "--slurm-no-account"]
    database = "AccountingStorageType = accounting_storage/slurmdbd\n"
    monkeypatch.setattr(executor, "_ask_slurm", lambda *command: database)
    assert "--slurm-no-account" not in slurm().arguments("onionlab-0a", tmp_path)


def test_slurm_is_asked_before_anything_is_submitted(
    tmp_path: Path, slurm_commands: list[tuple[str, ...]]
) -> None:
    slurm("--partition", "fast", "--qos", "low").require_acceptance(SIZE)
    (command,) = slurm_commands
    assert {"--test-only", "--partition=fast", "--qos=low", "--mem=1500"} <= set(command)
    # The partition is in a profile, which only Snakemake reads. So Slurm is not asked.
    resources = write_profile(tmp_path, "default-resources: [slurm_partition=fast]")
    slurm(*resources).require_acceptance(SIZE)
    assert len(slurm_commands) == 1


def test_a_job_requests_more_than_its_run_is_estimated_to_need(tmp_path: Path) -> None:
    request = Request("quick", seeds=[1], engine="uml")
    requested = resolve_request(REPOSITORY, request)
    cost = Estimator(REPOSITORY).level_costs(requested.experiment, "uml")["quick"]
    run = PlannedRun("0a", "quick", "rr", 1)
    plan = Plan(request, (run,), tmp_path, tmp_path, 1, Resources(1, 1, 1))
    size = job_sizes(REPOSITORY, [plan])["0a"]
    assert size.memory_mb > cost.memory_bytes / 2**20 + 1000
    assert size.runtime_min > 3 * cost.expected.wall_s * cost.error / 60
    together = JobSize(2, size.memory_mb, 99999, size.disk_mb)
    assert largest([size, JobSize(2, 10, 99999, 1)]) == together


def test_only_jobs_of_that_name_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        commands.append(command)
        return "17 my other job\n18 onionlab-abc-7\n19 \n20_3 onionlab-abc-8\n"

    monkeypatch.setattr(executor, "_ask_slurm", ask)
    assert executor.cancel_jobs("onionlab-abc") == 2
    assert commands[-1] == ("scancel", "18", "20_3")
