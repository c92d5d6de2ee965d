"""Configure Snakemake's executors for clusters: their jobs' sizes, and which jobs they accept.

A Snakemake profile configures an executor. The profile is passed to Snakemake unchanged.
"""

from __future__ import annotations

import contextlib
import getpass
import math
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from onionlab.errors import UserError
from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.requested_runs import resolve_request
from onionlab.runs.plan import Plan

SLURM, GENERIC = "slurm", "generic"
PLUGINS = {SLURM: "slurm", GENERIC: "cluster-generic"}
"""Executor -> name of its Snakemake plugin."""
MAX_JOBS = 100
RETRIES = 2
LATENCY_WAIT_S = 60
"""Maximum delay until files of other nodes appear. NFS may cache folder contents for this time."""
STATUS_ATTEMPTS = 10_000
"""Number of failed status requests in a row that the Slurm plugin (2.8.0) tolerates, for example
while Slurm's controller restarts. After that, the plugin loses all jobs and waits for them forever.
The plugin's default is 5."""
SLURM_TIMEOUT_S = 60.0
PROFILE_FILE = re.compile(r"(profile|config)(\.v(?P<version>\d+)\+)?\.yaml")
SUBMIT = "cluster-generic-submit-cmd"

# A cluster kills jobs that exceed their limits, so the limits include a margin for costs that the
# estimate omits.
MEMORY_FACTOR = 1.3
"""Factor for memory, because control groups also count shared memory and cached files."""
EXTRA_MEMORY_MB = 1200
"""Memory of the job's own Python, of Snakemake, and of the tables while records are extracted."""
TIME_FACTOR = 3.0
"""Factor for time, because a node may be slower than this machine, or busy."""
EXTRA_TIME_MIN = 10
"""Time to start the job, to extract the records, and to wait for files of other nodes."""


class JobSize(NamedTuple):
    """The resources that the first attempt at a run requests.

    The n-th attempt requests n times the memory and time.
    """

    cpus: int
    memory_mb: int
    runtime_min: int
    disk_mb: int

    def __str__(self) -> str:
        return f"{self.cpus} CPUs, {self.memory_mb} MB and {self.runtime_min} minutes"


@dataclass(frozen=True)
class Executor:
    """An executor and its profile.

    Attributes:
        name: ``slurm`` or ``generic``.
        profile: The file of a Snakemake profile.
        options: The options in that file.
        resources: Slurm's partition, account and QOS for every job. The keys are the plugin's names
            of these options. These options override the profile.
        max_jobs: Maximum number of queued and running jobs.
    """

    name: str
    profile: Path
    options: Mapping[str, Any]
    resources: Mapping[str, str]
    max_jobs: int

    @property
    def latency_wait_s(self) -> float:
        """The maximum delay until files of other nodes appear."""
        return float(self.options.get("latency-wait", LATENCY_WAIT_S))

    def arguments(self, job_name: str, logs: Path) -> list[str]:
        """Return the options for Snakemake. Raises UserError if Slurm does not answer.

        job_name: prefix of the names of Slurm's jobs. logs: folder for the logs of these jobs.
        """
        arguments = ["--executor", PLUGINS[self.name], "--jobs", str(self.max_jobs)]
        arguments += ["--profile", str(self.profile), "--local-cores", "1"]
        arguments += ["--retries", str(RETRIES)]
        if "latency-wait" not in self.options:
            arguments += ["--latency-wait", str(LATENCY_WAIT_S)]
        if self.name == SLURM:
            arguments += ["--slurm-jobname-prefix", job_name, "--slurm-logdir", str(logs)]
            arguments += ["--slurm-status-attempts", str(STATUS_ATTEMPTS)]
            if not _has_accounting():
                # By default the plugin calls sacct, which hangs or fails without a database.
                arguments += ["--slurm-status-command", "squeue", "--slurm-no-account"]
        return arguments

    def require_acceptance(self, size: JobSize) -> None:
        """Raise UserError if Slurm would reject a job of this size. No job is submitted.

        If the profile sets default resources, nothing is checked, because only Snakemake can
        interpret them.
        """
        if self.name != SLURM or "default-resources" in self.options:
            return
        names = {"slurm_partition": "partition", "slurm_account": "account", "qos": "qos"}
        command = ["sbatch", "--test-only", "--ntasks=1", f"--cpus-per-task={size.cpus}"]
        command += [f"--mem={size.memory_mb}", f"--time={size.runtime_min}"]
        command += [f"--{names[key]}={value}" for key, value in self.resources.items()]
        try:
            _ask_slurm(*command, "--wrap=true")
        except UserError as error:
            raise UserError(f"a job needs {size}. {error.message}", error.hint) from error


def job_sizes(root: Path, plans: Sequence[Plan]) -> Mapping[str, JobSize]:
    """Return the resources that the job of each run requests, by the run's name.

    Raises UserError if an experiment is invalid.
    """
    estimator = Estimator(root)
    sizes: dict[str, JobSize] = {}
    for plan in plans:
        requested = resolve_request(root, plan.request)
        costs = estimator.level_costs(requested.experiment, requested.engine)
        for run in plan.runs:
            cost = costs[run.level]
            memory_mb = cost.memory_bytes / 2**20
            runtime_min = cost.expected.wall_s * cost.error / 60
            sizes[run.run_id] = JobSize(
                cpus=plan.cpus_per_run,
                memory_mb=math.ceil(memory_mb * MEMORY_FACTOR) + EXTRA_MEMORY_MB,
                runtime_min=math.ceil(runtime_min * TIME_FACTOR) + EXTRA_TIME_MIN,
                disk_mb=math.ceil(cost.disk_bytes / 2**20),
            )
    return sizes


def largest(sizes: Sequence[JobSize]) -> JobSize:
    """Return a size with the maximum of each resource over all given sizes."""
    return JobSize(*map(max, zip(*sizes, strict=True)))


Where = Executor | int | None
"""The executor of a cluster, or the number of concurrent runs on this machine. None means this
machine, with as many concurrent runs as the CPUs allow."""


def open_executor(
    name: str, profile: Path, resources: Mapping[str, str], max_jobs: int | None
) -> Executor:
    """Return the executor ``name`` with the profile in the folder ``profile``.

    Raises UserError if the folder contains no valid profile, if the command or the option that
    submits jobs is missing, or if ``resources`` are given for another executor than Slurm.
    """
    file = _find_profile(profile)
    try:
        options = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        options = {str(key).replace("_", "-"): value for key, value in options.items()}
        max_jobs = max_jobs or int(options.get("jobs", MAX_JOBS))
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} is not a Snakemake profile: {' '.join(str(error).split())}",
            "write one option with its value in each line, such as `jobs: 100`",
        ) from error
    if name == SLURM and shutil.which("sbatch") is None:
        raise UserError(
            "EXECUTOR=slurm needs Slurm, and this machine has no sbatch",
            "start the command where jobs are submitted: on a login node of the cluster",
        )
    if name == GENERIC and not options.get(SUBMIT):
        raise UserError(
            f"EXECUTOR=generic needs a profile with {SUBMIT}, and {file} has none",
            "PROFILE=folder names one: docs/how-to/cluster.md",
        )
    if name == GENERIC and resources:
        raise UserError(
            "PARTITION, ACCOUNT and QOS are options of Slurm", f"write them into {SUBMIT} in {file}"
        )
    return Executor(name, file.resolve(), options, resources, max_jobs)


def cancel_jobs(job_name: str) -> int:
    """Cancel this user's Slurm jobs whose names begin with ``job_name``. Return their number.

    Raises UserError if Slurm does not answer.
    """
    lines = _ask_slurm("squeue", "--noheader", "--user", getpass.getuser(), "--format=%i %j")
    # Split at the first space only: the name of another job may contain spaces, or be empty.
    jobs = [line.partition(" ") for line in lines.splitlines()]
    found = [job_id for job_id, _, name in jobs if name.startswith(job_name)]
    if found:
        _ask_slurm("scancel", *found)
    return len(found)


def _find_profile(folder: Path) -> Path:
    """Return the profile that Snakemake would choose: the profile for the newest version."""
    found: Sequence[tuple[int, Path]] = ()
    with contextlib.suppress(OSError):
        matches = [(PROFILE_FILE.fullmatch(file.name), file) for file in folder.iterdir()]
        found = [(int(match["version"] or 0), file) for match, file in matches if match]
    if not found:
        raise UserError(
            f"{folder} is not a Snakemake profile: it has no config.yaml",
            "PROFILE= names a folder, such as configs/slurm",
        )
    return max(found)[1]


def _has_accounting() -> bool:
    settings = _ask_slurm("scontrol", "show", "config")
    found = re.search(r"^AccountingStorageType\s*=\s*(\S+)", settings, re.MULTILINE)
    return found is not None and found[1] not in ("(null)", "accounting_storage/none")


def _ask_slurm(*command: str) -> str:
    """Return the output of a Slurm command. Raises UserError if it fails or does not answer."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SLURM_TIMEOUT_S,
            check=True,
        ).stdout
    except (subprocess.SubprocessError, OSError) as error:
        reason = " ".join(str(getattr(error, "stderr", None) or error).split())
        raise UserError(
            f"Slurm refuses: {reason}", f"the command was: {' '.join(command)}"
        ) from error
