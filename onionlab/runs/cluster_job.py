"""One run as a job of a cluster.

The job uses the CPUs that the cluster has allocated, and writes to its node's own disk if TMPDIR
names a folder there. Its output is not read, so it leaves the reason of a failure in the store.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

from analysis.formats import files
from analysis.formats.attempt import RunFailure
from analysis.formats.json_files import read_as
from onionlab.errors import UserError
from onionlab.runs.plan import Plan
from onionlab.runs.runner import execute, extract_records, planned_run
from onionlab.runs.store import Store


def execute_on_cluster(root: Path, plan: Plan, run_id: str, log: Callable[[str], None]) -> None:
    """Make a run and its records unless they are in the store.

    Raises:
        UserError: The run fails, or has failed before for the same command, which removes earlier
            failures. Snakemake then submits the job again, although the run would fail again.
    """
    planned, store = planned_run(plan, run_id), Store(plan.store)
    reason = store.failed(run_id) / files.ERROR
    if reason.exists():
        failure = read_as(RunFailure, reason, "reason of a failure")
        raise UserError(f"run {planned.title} failed: {failure.message}")
    try:
        execute(root, plan, run_id, log, on_cluster=True)
        extract_records(store, run_id)
    except UserError as error:
        if not reason.exists():
            # The run did not even begin, for instance because its node lacks a program.
            message = f"on node {platform.node()}: {error.message}"
            hint = tuple((error.hint or "").splitlines())
            store.fail(run_id, RunFailure(title=planned.title, message=message, log=hint))
        raise
