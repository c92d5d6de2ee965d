"""One run as a job of a cluster: simulation and records, on whatever node it has been sent to.

It differs from a run on the command's own machine in how it knows that the command is there, in
whose its CPUs are, and in that nobody reads what it says: what went wrong is left in the store.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analysis.formats import files
from analysis.formats.attempt import RunFailure
from analysis.formats.json_files import read_as
from analysis.formats.plan_file import PlannedRun
from onionlab.errors import UserError
from onionlab.runs.plan import Plan
from onionlab.runs.presence import ending_with_beats
from onionlab.runs.runner import execute_watched, planned_run
from onionlab.runs.store import Store


@dataclass(frozen=True)
class Job:
    """What a job was told.

    Attributes:
        command: The file that its command writes to.
        attempt: Which one of this run it is for that command, from 1 on.
    """

    command: Path
    attempt: int


def make_as_job(root: Path, plan: Plan, run_id: str, job: Job, say: Callable[[str], None]) -> None:
    """Make a run and its records, unless they are there. Raises UserError where that fails."""
    planned = planned_run(plan, run_id)
    store = Store(plan.store)
    with ending_with_beats(job.command, say):
        if job.attempt > 1:
            _require_no_failure(store, planned)
        try:
            execute_watched(root, plan, planned, say, elsewhere=True)
            with store.exclusive(run_id, everywhere=True):
                _extract(store.run(run_id))
        except UserError as error:
            _leave_word(store, planned, error)
            raise


def _require_no_failure(store: Store, planned: PlannedRun) -> None:
    """Raises UserError where an earlier attempt failed by itself, and so would this one."""
    path = store.failed(planned.run_id) / files.ERROR
    if path.exists():
        failure = read_as(RunFailure, path, "reason of a failure")
        raise UserError(f"run {planned.title} failed: {failure.message}")


def _leave_word(store: Store, planned: PlannedRun, error: UserError) -> None:
    """Keep why a job could not even begin, as where its node lacks a program."""
    if (store.failed(planned.run_id) / files.ERROR).exists():
        return
    message = f"on node {platform.node()}: {error.message}"
    log = tuple((error.hint or "").splitlines())
    store.fail(planned.run_id, RunFailure(title=planned.title, message=message, log=log))


def _extract(directory: Path) -> None:
    """Extract a run's records, where they are not there. Raises UserError where that fails."""
    # Late: a simulation has no use for what it brings.
    from analysis.records.extract import extract

    if not (directory / files.RECORDS / files.PARSE_REPORT).exists():
        extract(directory, directory / files.RECORDS)
