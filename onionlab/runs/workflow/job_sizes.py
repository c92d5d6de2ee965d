"""What a job of a cluster asks for: memory, time and disk of its run, from the estimate.

There it is a limit: a run that takes more is ended. So it is the upper end of the estimate, with
room for what the estimate does not count; a job that was ended gets more at its next attempt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onionlab.runs.costs.asking import Kind
from onionlab.runs.costs.estimate import costs_of_runs
from onionlab.runs.plan import Plan
from onionlab.runs.workflow.slurm import Size

MEMORY_FACTOR = 1.3
"""What cgroups count and private memory does not: caches of files, shared memory."""
BESIDE_MB = 1200
"""The job's own Python, Snakemake twice, and the records, whose tables are in memory at first."""
TIME_FACTOR = 3.0
"""A node may be slower than this machine, and busy."""
BESIDE_MIN = 10
"""Start of the job, records, and files that come late."""
DISK_FACTOR = 1.2


@dataclass(frozen=True)
class JobSize:
    """What the first attempt at a run asks for; the n-th asks for n times memory and time."""

    cpus: int
    memory_mb: int
    runtime_min: int
    disk_mb: int


def job_sizes(root: Path, plans: Sequence[Plan]) -> Mapping[str, JobSize]:
    """What the job of each run asks for, by the run's name. Raises UserError as the estimate."""
    sizes: dict[str, JobSize] = {}
    for plan in plans:
        costs = costs_of_runs(root, plan.request)
        by_kind = {
            kind: JobSize(
                cpus=plan.cpus_per_run,
                memory_mb=math.ceil(cost.memory_bytes.high / 2**20 * MEMORY_FACTOR) + BESIDE_MB,
                runtime_min=math.ceil(cost.wall_s.high / 60 * TIME_FACTOR) + BESIDE_MIN,
                disk_mb=math.ceil(cost.disk_bytes.high / 2**20 * DISK_FACTOR),
            )
            for kind, cost in costs.items()
        }
        sizes.update({run.run_id: by_kind[Kind(run.level, run.variant)] for run in plan.runs})
    return sizes


def largest(sizes: Sequence[JobSize]) -> Size:
    """A job that holds each of some."""
    return Size(
        cpus=max(one.cpus for one in sizes),
        memory_mb=max(one.memory_mb for one in sizes),
        runtime_min=max(one.runtime_min for one in sizes),
    )
