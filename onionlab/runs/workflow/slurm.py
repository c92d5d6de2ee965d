"""Slurm's own words: what a cluster refuses before anything is submitted, what its queue holds.

Its commands are asked and nothing else; what they say about a mistake is passed on. They were tried
with Slurm 22.05.
"""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onionlab.errors import UserError

NEEDED = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
TIMEOUT_S = 60.0
LEAST_JOB_AGE_S = 240.0
"""The plugin asks every 180 s at the latest, and waits for ever for a job forgotten before."""
QUEUE_FORMAT = "%i|%j|%T|%N|%r|%k"
ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
RUN_OF_COMMENT = re.compile(r"_wildcards_(?:run=)?([0-9a-f]+)$")
"""What the plugin writes into a job's comment."""


@dataclass(frozen=True)
class Size:
    """What the largest job asks for."""

    cpus: int
    memory_mb: int
    runtime_min: int

    def words(self) -> str:
        """For people."""
        return f"{_cpus(self.cpus)}, {self.memory_mb} MB and {self.runtime_min} minutes"


SMALL = Size(cpus=1, memory_mb=1500, runtime_min=15)
"""About what the smallest experiments ask for."""


@dataclass(frozen=True)
class Place:
    """Where jobs are to go: as Slurm's options name it; None where Slurm decides."""

    partition: str | None
    account: str | None
    qos: str | None

    def options(self) -> list[str]:
        """Words of sbatch."""
        named = {"partition": self.partition, "account": self.account, "qos": self.qos}
        return [f"--{name}={value}" for name, value in named.items() if value is not None]


@dataclass(frozen=True)
class QueuedJob:
    """A job as squeue tells of it. run_id: of the run that it makes, if that can be told."""

    job_id: str
    name: str
    state: str
    nodes: str
    reason: str
    run_id: str | None

    @property
    def is_over(self) -> bool:
        """Whether it will do no more."""
        return self.state in ENDED


@dataclass(frozen=True)
class Cluster:
    """What a cluster keeps of its jobs. accounts: whether it has a database of them."""

    accounts: bool

    def arguments(self) -> list[str]:
        """Snakemake's words for it."""
        # Left to itself the plugin asks sacct, which Debian always installs, and which hangs or
        # fails where there is nothing behind it.
        return [] if self.accounts else ["--slurm-status-command", "squeue", "--slurm-no-account"]


def require_commands() -> None:
    """Raises UserError where this machine has no Slurm."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise UserError(
            f"EXECUTOR=slurm, and this machine has no {', '.join(missing)}",
            "start the command where jobs are submitted: on a login node of the cluster",
        )


def require_cluster(place: Place, size: Size) -> Cluster:
    """Ask whether jobs of that size may go there; nothing is submitted. Return what is there.

    Raises UserError: no answer, a partition, an account or a quality of service that it refuses, or
    limits below what one job needs.
    """
    settings = _settings()
    accounts = settings.get("AccountingStorageType", "").lower() not in (
        *("", "(null)"),
        "accounting_storage/none",
    )
    if not accounts:
        _require_memory_of_jobs(settings)
        if place.account is not None:
            raise UserError(
                f"ACCOUNT={place.account}: this cluster has no accounts", "leave ACCOUNT out"
            )
    _require_limits(place, size)
    _require_acceptance(place, size)
    return Cluster(accounts)


def nodes_of(place: Place) -> int:
    """How many nodes jobs may go to there, as far as they are up. Raises UserError."""
    named = [f"--partition={place.partition}"] if place.partition else []
    states = "idle,mixed,allocated,completing"
    lines = _ask("sinfo", "--noheader", f"--states={states}", "--format=%P|%D", *named)
    counts: dict[str, int] = {}
    for line in lines.splitlines():
        name, _, count = line.strip().partition("|")
        if named or name.endswith("*"):
            counts[name] = counts.get(name, 0) + int(count)
    return max(counts.values(), default=0)


def queue(name: str) -> list[QueuedJob]:
    """The jobs of this user whose name begins so, also those that ended a moment ago.

    Raises UserError where Slurm does not answer.
    """
    lines = _ask(
        *("squeue", "--noheader", "--states=all", "--user", getpass.getuser()),
        f"--format={QUEUE_FORMAT}",
    )
    return [job for job in parse_queue(lines) if job.name.startswith(name)]


def parse_queue(text: str) -> list[QueuedJob]:
    """Jobs from squeue's lines in `QUEUE_FORMAT`."""
    jobs = []
    for line in text.splitlines():
        parts = line.strip().split("|", 5)
        if len(parts) == 6:
            job_id, name, state, nodes, reason, comment = parts
            found = RUN_OF_COMMENT.search(comment)
            run_id = found[1] if found else None
            jobs.append(QueuedJob(job_id, name, state, nodes, reason, run_id))
    return jobs


def cancel(name: str) -> int:
    """Cancel all jobs whose name begins so; return how many there were. Raises as `queue`."""
    jobs = [job.job_id for job in queue(name) if not job.is_over]
    for first in range(0, len(jobs), 100):
        _ask("scancel", *jobs[first : first + 100])
    return len(jobs)


def words_of_queue(jobs: Iterable[QueuedJob]) -> list[str]:
    """Who waits and why, and who runs where, for people."""
    waiting: dict[str, int] = {}
    nodes: dict[str, int] = {}
    for job in jobs:
        if job.state == "PENDING":
            waiting[job.reason] = waiting.get(job.reason, 0) + 1
        elif not job.is_over:
            nodes[job.nodes or "?"] = nodes.get(job.nodes or "?", 0) + 1
    lines = [f"{count} queued ({reason})" for reason, count in sorted(waiting.items())]
    if nodes:
        where = ", ".join(
            node if count == 1 else f"{node} ({count})" for node, count in sorted(nodes.items())
        )
        lines.append(f"{sum(nodes.values())} in jobs on {where}")
    return lines


def _require_memory_of_jobs(settings: Mapping[str, str]) -> None:
    """Without a database, jobs that have ended are known as long as the controller keeps them."""
    found = re.match(r"\d+", settings.get("MinJobAge", ""))
    if found and float(found[0]) < LEAST_JOB_AGE_S:
        raise UserError(
            f"this Slurm has no database of jobs and forgets them {found[0]} s after their end "
            "(MinJobAge): nobody could tell how they ended",
            f"whoever runs it can set MinJobAge to {LEAST_JOB_AGE_S:.0f} or more, or set up "
            "slurmdbd",
        )


def _require_limits(place: Place, size: Size) -> None:
    """Raises UserError where a partition is not there or its limits are below a job's needs.

    Slurm itself may take such a job and let it wait for ever (EnforcePartLimits=NO).
    """
    offers = parse_partitions(_ask("sinfo", "--noheader", "--exact", "--format=%P|%l|%m|%c"))
    names = list(dict.fromkeys(offer.name for offer in offers))
    chosen = place.partition.split(",") if place.partition else []
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise UserError(
            f"this cluster has no partition {', '.join(unknown)}",
            f"its partitions are: {', '.join(names)}",
        )
    if not chosen:
        chosen = [offer.name for offer in offers if offer.is_default]
        if not chosen:
            raise UserError(
                "this cluster has no partition of its own choice, and none is named",
                f"PARTITION=name; its partitions are: {', '.join(names)}",
            )
    fitting = [offer for offer in offers if offer.name in chosen and offer.holds(size)]
    if not fitting:
        limits = "; ".join(offer.words() for offer in offers if offer.name in chosen)
        raise UserError(
            f"one run needs {size.words()}, and no node of {', '.join(chosen)} gives that",
            f"{limits}\ntake another PARTITION, or a smaller SCALE",
        )


@dataclass(frozen=True)
class Offer:
    """What some nodes of a partition give a job. Limits: None where there is none."""

    name: str
    is_default: bool
    runtime_min: float | None
    memory_mb: int
    cpus: int

    def holds(self, size: Size) -> bool:
        """Whether a job of that size fits."""
        in_time = self.runtime_min is None or size.runtime_min <= self.runtime_min
        return in_time and size.memory_mb <= self.memory_mb and size.cpus <= self.cpus

    def words(self) -> str:
        """For people."""
        time = "any time" if self.runtime_min is None else f"{self.runtime_min:.0f} minutes"
        return f"{self.name}: {_cpus(self.cpus)}, {self.memory_mb} MB, {time}"


def parse_partitions(text: str) -> list[Offer]:
    """What sinfo says in lines of partition, time limit, memory (MB) and CPUs of a node."""
    offers = []
    for line in text.splitlines():
        name, limit, memory, cpus = line.strip().split("|")
        offers.append(
            Offer(
                name.removesuffix("*"),
                name.endswith("*"),
                minutes_of(limit),
                int(memory.rstrip("+")),
                int(cpus.rstrip("+")),
            )
        )
    return offers


def minutes_of(limit: str) -> float | None:
    """A time limit as Slurm writes it (days-hours:minutes:seconds), in minutes; None: no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", limit)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + minutes + seconds / 60


def _cpus(count: int) -> str:
    return "1 CPU" if count == 1 else f"{count} CPUs"


def _require_acceptance(place: Place, size: Size) -> None:
    """Raises UserError where Slurm would not take a job of that size, with Slurm's reason."""
    words = [
        *("sbatch", "--test-only", "--ntasks=1", f"--cpus-per-task={size.cpus}"),
        *(f"--mem={size.memory_mb}", f"--time={size.runtime_min}", *place.options()),
        "--wrap=true",
    ]
    asked = _run(words)
    if asked.returncode != 0:
        said = " ".join(
            re.sub(r"^(sbatch: (error: )?|allocation failure: )+", "", line)
            for line in asked.stderr.strip().splitlines()
        )
        raise UserError(
            f"Slurm would not take a job of {size.words()}: {said}",
            f"asked with: {' '.join(words)}",
        )


def _settings() -> dict[str, str]:
    """The cluster's configuration, as far as it tells."""
    lines = _ask("scontrol", "show", "config").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _ask(*words: str) -> str:
    """What a command of Slurm prints. Raises UserError where it fails or does not answer."""
    asked = _run(words)
    if asked.returncode != 0:
        raise UserError(
            f"Slurm does not answer: {words[0]}: {' '.join(asked.stderr.split())}",
            "is its controller (slurmctld) there?",
        )
    return asked.stdout


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"Slurm does not answer: {words[0]} took more than {TIMEOUT_S:.0f} s",
            "is its controller (slurmctld) there?",
        ) from error
