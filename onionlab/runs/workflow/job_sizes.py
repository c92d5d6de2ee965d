"""Compute the limits of a cluster's jobs (memory, time, disk) from the estimated costs of runs.

A cluster kills jobs that exceed their limits. Limits therefore include a margin for costs that the
estimate omits, and each further attempt at a run has higher limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.requested_runs import RunKind, resolve_request
from onionlab.runs.costs.run_cost import RunCost
from onionlab.runs.plan import Plan
from onionlab.runs.workflow.executor import JobSize

MEMORY_FACTOR = 1.3
"""Factor for memory, because control groups also count shared memory and cached files."""
EXTRA_MEMORY_MB = 1200
"""Memory of the job's own Python, of Snakemake, and of the tables while records are extracted."""
TIME_FACTOR = 3.0
"""Factor for time, because a node may be slower than this machine, or busy."""
EXTRA_TIME_MIN = 10
"""Time to start the job, to extract the records, and to wait for files of other nodes."""


def job_sizes(root: Path, plans: Sequence[Plan]) -> Mapping[str, JobSize]:
    """Return the resources that the job of each run requests, by the run's name.

    Raises UserError if an experiment is invalid.
    """
    estimator = Estimator(root)
    sizes: dict[str, JobSize] = {}
    for plan in plans:
        costs = estimator.run_costs(resolve_request(root, plan.request))
        for run in plan.runs:
            cost = costs[RunKind(run.level, run.variant)]
            sizes[run.run_id] = _job_size(plan.cpus_per_run, cost)
    return sizes


def _job_size(cpus: int, cost: RunCost) -> JobSize:
    memory_mb = cost.memory_bytes / 2**20
    runtime_min = cost.expected.wall_s * cost.error / 60
    return JobSize(
        cpus=cpus,
        memory_mb=math.ceil(memory_mb * MEMORY_FACTOR) + EXTRA_MEMORY_MB,
        runtime_min=math.ceil(runtime_min * TIME_FACTOR) + EXTRA_TIME_MIN,
        disk_mb=math.ceil(cost.disk_bytes / 2**20),
    )


def largest(sizes: Sequence[JobSize]) -> JobSize:
    """Return a size with the maximum of each resource over all given sizes."""
    return JobSize(*map(max, zip(*sizes, strict=True)))
