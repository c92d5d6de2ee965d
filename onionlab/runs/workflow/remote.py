"""A workflow whose jobs go through an executor: checked, described to Snakemake, watched, ended."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.runs.plan import Plan
from onionlab.runs.workflow import slurm
from onionlab.runs.workflow.executor import Executor, OpenExecutor
from onionlab.runs.workflow.job_sizes import JobSize, job_sizes, largest

SNAKEFILE = Path(__file__).with_name("Snakefile.executor")
ASK_S = 15.0
"""Between two questions to Slurm on how far it is."""
NOTICE_S = 30.0
"""So long after the last job's end Snakemake may go on waiting where all runs are there."""
SILENCE_S = 300.0
"""The same where runs are missing: its plugin asks every 180 s at the latest, and then Snakemake
waits for files for a minute."""
RETRIES = 2
LOGS = "job-logs"


class Remote:
    """Jobs through an executor, for one workflow.

    Where it is Slurm, its jobs' names begin with letters that follow from where the results go:
    jobs that a killed command left are found by them.
    """

    def __init__(self, opened: OpenExecutor, sizes: Mapping[str, JobSize], out: Path) -> None:
        self._opened = opened
        self._sizes = sizes
        self._out = out
        self._cluster: slurm.Cluster | None = None
        self._name = f"onionlab-{hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:12]}"
        self._asked_at_s = time.monotonic()
        self._jobs: list[slurm.QueuedJob] = []
        self._had_jobs = False
        self._idle_since_s: float | None = None

    @property
    def max_jobs(self) -> int:
        """Jobs in the queue at a time."""
        return self._opened.max_jobs

    @property
    def name(self) -> str:
        """What the executor is called."""
        return self._opened.asked.name

    def require_cluster(self, runs: Sequence[str]) -> None:
        """Ask whether these runs' jobs will be taken. Raises UserError where they will not."""
        if self._opened.is_slurm and runs:
            place = slurm.Place(self._opened.partition, self._opened.account, self._opened.qos)
            size = largest([self._sizes[run] for run in runs])
            self._cluster = slurm.require_cluster(place, size)

    def cancel_left(self, say: Callable[[str], None]) -> None:
        """Cancel jobs that an earlier command for the same results left when it was killed."""
        if self._cluster is not None and (left := slurm.cancel(self._name)):
            say(f"{left} jobs of an earlier command, which was killed, are cancelled")

    def config(self, command: Path) -> dict[str, Any]:
        """What the Snakefile knows besides. command: the file by which jobs see this command."""
        return {
            "command": str(command),
            "resources": self._opened.job_resources(),
        }

    def config_of_run(self, run_id: str) -> dict[str, Any]:
        """What the Snakefile knows of a run's job."""
        size = self._sizes[run_id]
        return {
            "memory_mb": size.memory_mb,
            "runtime_min": size.runtime_min,
            "disk_mb": size.disk_mb,
        }

    def arguments(self) -> list[str]:
        """Snakemake's words for it."""
        words = [*self._opened.arguments(), "--retries", str(RETRIES)]
        if self._opened.is_slurm:
            words += ["--slurm-jobname-prefix", self._name]
            words += ["--slurm-logdir", str(self._out / LOGS)]
        return words + (self._cluster.arguments() if self._cluster else [])

    def notes(self) -> list[str]:
        """What to show beside the runs: who waits, and who runs where."""
        if self._cluster is None:
            return []
        if time.monotonic() - self._asked_at_s >= ASK_S:
            self._ask()
        return slurm.words_of_queue(self._jobs)

    def has_lost_its_jobs(self, *, all_there: bool, is_busy: bool) -> bool:
        """Whether Snakemake waits for jobs of which Slurm has none any more.

        Its plugin gives jobs up when it asks for them and Slurm does not answer just then (2.8.0,
        a round of five questions in a second or two), and waits for ever. `notes` asks Slurm.

        Args:
            all_there: Whether all runs are in the store.
            is_busy: Whether Snakemake is doing something itself, such as the report.
        """
        if is_busy or self._idle_since_s is None:
            self._idle_since_s = None if is_busy else self._idle_since_s
            return False
        limit_s = NOTICE_S if all_there else SILENCE_S
        return time.monotonic() - self._idle_since_s >= limit_s

    def begin(self) -> None:
        """Forget the queue: Snakemake is being started, and has no jobs in it yet."""
        self._had_jobs = False
        self._idle_since_s = None

    def cancel(self) -> None:
        """End all jobs, whatever Snakemake did about them."""
        if self._cluster is not None:
            with contextlib.suppress(UserError):
                slurm.cancel(self._name)

    def ends_of(self, run_id: str) -> str | None:
        """How the last job of a run ended, as Slurm tells, with what it had asked for."""
        if self._cluster is None:
            return None
        self._ask()
        ended = [job for job in self._jobs if job.run_id == run_id and job.is_over]
        if not ended:
            return None
        last = max(ended, key=lambda job: int(job.job_id.split("_")[0]))
        size = self._sizes[run_id]
        return (
            f"Slurm ended its job {last.job_id}"
            + (f" on {last.nodes}" if last.nodes else "")
            + f": {last.state}, the last of {len(ended)}; the first of them had "
            f"{size.memory_mb} MB and {size.runtime_min} minutes, each later one as much more"
        )

    def _ask(self) -> None:
        self._asked_at_s = time.monotonic()
        # Slurm may be away for a while; the runs are not shown then.
        with contextlib.suppress(UserError):
            self._jobs = slurm.queue(self._name)
            is_idle = all(job.is_over for job in self._jobs)
            self._had_jobs = self._had_jobs or not is_idle
            if not is_idle:
                self._idle_since_s = None
            elif self._had_jobs and self._idle_since_s is None:
                self._idle_since_s = self._asked_at_s


def open_remote(root: Path, executor: Executor, plans: Sequence[Plan], out: Path) -> Remote:
    """Read what an executor is told, and what its jobs take. Raises UserError."""
    return Remote(executor.opened(root), job_sizes(root, plans), out)
