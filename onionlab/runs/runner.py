"""Perform one run: compose its directory, simulate it, and put it into the store.

A job of a cluster uses the CPUs that the cluster has allocated, and writes to its node's own disk
if TMPDIR names a folder there. The output of the job is not shown, so if the run fails, the job
stores the reason.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from analysis.formats import files
from analysis.formats.attempt import RunFailure, RunState
from analysis.formats.json_files import read_as, write_json
from analysis.formats.manifest import Build, Manifest
from analysis.formats.plan_file import PlannedRun
from analysis.formats.scratch import scratch_folder
from onionlab import __version__
from onionlab.engines.base import EngineFailureError, Progress
from onionlab.engines.processes import SESSION_FILE, end_processes_below, kill_processes_below
from onionlab.errors import UserError
from onionlab.rundir.verify import RunRefusedError, verify_log_ends
from onionlab.runs.cpus import lock_owners, reserve_cpus
from onionlab.runs.places import DISK_MARGIN, FULL, is_full, user_error_from_os_error
from onionlab.runs.plan import Plan
from onionlab.runs.provenance import current_commit, host_facts
from onionlab.runs.results_lock import exit_with_command
from onionlab.runs.run_builder import RunBuilder, open_run_builder
from onionlab.runs.store import Store

LOG = logging.getLogger(__name__)
FULL_DISK = ": the disk was full while it ran"


def execute_on_cluster(root: Path, plan: Plan, run_id: str) -> None:
    """Perform a run and extract its records, in a job of a cluster, unless the store has both.

    Raises UserError if the run fails, or if it failed in an earlier job of the same command.
    (Snakemake submits failed jobs again, but the run would also fail again. A new command removes
    earlier failures.)
    """
    planned, store = plan.run(run_id), Store(plan.store)
    reason = store.failed(run_id) / files.ERROR
    if reason.exists():
        failure = read_as(RunFailure, reason, "reason of a failure")
        raise UserError(f"run {planned.title} failed: {failure.message}")
    execute(root, plan, run_id, on_cluster=True)
    with _reason_kept(store, planned):
        extract_records(store, run_id)


@contextlib.contextmanager
def _reason_kept(store: Store, planned: PlannedRun) -> Iterator[None]:
    """Store the reason if the block fails and has not stored a reason itself.

    Such a reason concerns the node: the node may lack a program, or its disk may be full. Later
    jobs of the same command find the stored reason and do not perform the run again. Raises
    UserError if the block raises UserError or OSError.
    """
    try:
        yield
    except (UserError, OSError) as error:
        refused = error if isinstance(error, UserError) else user_error_from_os_error(error)
        if not (store.failed(planned.run_id) / files.ERROR).exists():
            message = f"on node {platform.node()}: {refused.message}"
            hint = tuple((refused.hint or "").splitlines())
            reason = RunFailure(title=planned.title, message=message, log=hint)
            # If the store's disk is full too, only the error below reports the reason.
            with contextlib.suppress(OSError):
                store.fail(planned.run_id, reason)
        raise refused from error


def execute(root: Path, plan: Plan, run_id: str, *, on_cluster: bool = False) -> None:
    """Perform a run unless it is in the store.

    This process ends if the command that started it ends, except on a cluster. Raises UserError if
    the run fails. The files of a failed simulation are kept in the store.
    """
    store, planned = Store(plan.store), plan.run(run_id)
    waits = f"{planned.title}: another command is making this run; waiting for it"
    watch = contextlib.nullcontext() if on_cluster else exit_with_command(plan.out)
    # The reason of a failure is stored while this process holds the run's lock. Another process
    # that performs the run uses the same folder, so it has to wait for the lock.
    kept = _reason_kept(store, planned) if on_cluster else contextlib.nullcontext()
    with watch, store.exclusive(run_id, lambda: LOG.info(waits)), kept:
        if store.is_finished(run_id):
            return
        with _attempt_folder(store, plan, run_id, on_cluster=on_cluster) as folder:
            builder = open_run_builder(root, plan.request, plan.resolved)
            try:
                with reserve_cpus(
                    plan.cpus_per_run,
                    f"{plan.out.name}: {planned.title}",
                    lambda: _report_waiting(store, planned),
                    allocated=on_cluster,
                ) as cpus:
                    manifest = _simulate(builder, store, planned, cpus, folder)
            except (EngineFailureError, RunRefusedError) as failure:
                log_tail = tuple(failure.log_tail)
                reason = RunFailure(title=planned.title, message=failure.message, log=log_tail)
                store.fail(run_id, reason, folder)
                raise UserError(
                    f"run {planned.title} failed: {failure.message}",
                    store.describe_failed(run_id, failure.log_tail),
                ) from failure
            store.finish(run_id, manifest, folder)


def extract_records(store: Store, run_id: str) -> None:
    """Extract a run's records if they are missing. Raises UserError if that fails."""
    # Import this only here, because it loads large libraries that a simulation does not need.
    from analysis.records.extract import extract

    with store.exclusive(run_id):
        if not store.has_records(run_id):
            extract(store.run(run_id), store.run(run_id) / files.RECORDS)


@contextlib.contextmanager
def _attempt_folder(store: Store, plan: Plan, run_id: str, *, on_cluster: bool) -> Iterator[Path]:
    """Remove the files of earlier attempts at a run, and yield the folder for this attempt.

    The folder is `runs/.partial/<run>`. In a job of a cluster, if TMPDIR names a writable folder
    with enough room, the folder is in TMPDIR, on the node's own disk. Only the progress is then in
    `runs/.partial/<run>`. If a job is killed, the next job on this node removes its files.
    """
    partial = store.partial(run_id)
    if partial.exists():
        end_processes_below(partial)
        shutil.rmtree(partial)
    store.remove_unfinished(run_id)
    node_disk = os.environ.get("TMPDIR") if on_cluster else None
    with contextlib.ExitStack() as stack:
        folder = None
        # TMPDIR may name a folder of the machine that submitted the job, which is missing here.
        with contextlib.suppress(OSError):
            need_bytes = plan.resources.disk_bytes * DISK_MARGIN
            if node_disk and shutil.disk_usage(node_disk).free > need_bytes:
                folder = stack.enter_context(scratch_folder(Path(node_disk), "onionlab-attempt-"))
        if folder is None:
            yield partial
        else:
            partial.mkdir(parents=True)
            yield folder / run_id


def _report_waiting(store: Store, planned: PlannedRun) -> None:
    """Log that a run waits for CPUs, and which processes locked them. Update the run's state."""
    owners = "; ".join(map(str, lock_owners(sorted(os.sched_getaffinity(0)))))
    LOG.info("%s waits for a CPU%s", planned.title, f": {owners}" if owners else "")
    _write_progress(store, planned, Progress(0.0, 0.0, 0.0, 0), waiting=True)


def _write_progress(
    store: Store, planned: PlannedRun, progress: Progress, *, waiting: bool = False
) -> bool:
    """Write the state of a run. Return whether the disk is full; ignore other errors."""
    state = RunState(title=planned.title, **asdict(progress), at_s=time.time(), waiting=waiting)
    try:
        write_json(store.partial(planned.run_id) / files.PROGRESS, asdict(state), durable=False)
    except OSError as error:
        return error.errno in FULL
    return False


def _simulate(
    builder: RunBuilder, store: Store, planned: PlannedRun, cpus: list[int], place: Path
) -> Manifest:
    run = builder.compose(planned.level, planned.variant, planned.seed, planned.repeat)
    identity = run.identity(builder.programs, builder.engine)
    if run.run_id(builder.programs, builder.engine) != planned.run_id:
        raise UserError(
            f"what determines the run {planned.title} has changed since the plan was made",
            "start the experiment again: it makes a new plan and keeps all valid runs",
        )
    run.write(place)
    started = datetime.now(UTC)
    composed_s = time.monotonic()
    look = builder.watch(place / files.HOSTS, planned.level, run)
    # Read the commit now. The checkout may change during the simulation, but the loaded code stays.
    commit = current_commit()
    disk_was_full = False

    def on_progress(progress: Progress) -> None:
        nonlocal disk_was_full
        look(progress.simulated_s)
        disk_was_full |= _write_progress(store, planned, progress) or is_full(place)

    try:
        usage = builder.engine.run(
            place,
            simulation=run.simulation,
            programs=builder.executables(),
            on_progress=on_progress,
        )
        disk_was_full |= is_full(place)
    except EngineFailureError as failure:
        if disk_was_full or is_full(place):
            raise EngineFailureError(failure.message + FULL_DISK, failure.log_tail) from failure
        raise
    finally:
        kill_processes_below(place)
        (place / SESSION_FILE).unlink(missing_ok=True)
    if disk_was_full:
        # On a full disk, programs lose lines of their logs without an error.
        raise RunRefusedError(f"its logs may lack lines{FULL_DISK}", [])
    proofs = builder.verify(place / files.HOSTS, run)
    if (place / files.CLIENTS).is_file():
        verify_log_ends(place)
    return Manifest(
        format=1,
        run_id=planned.run_id,
        title=planned.title,
        seed=planned.seed,
        repeat=planned.repeat,
        variant=planned.variant,
        identity=identity,
        tor={
            name: Build(version=built.version, sha256=built.sha256, source=built.source)
            for name, built in builder.programs.items()
            if name in run.tor_programs
        },
        torrc=run.tor_options,
        proofs=proofs,
        onionlab=__version__,
        commit=commit,
        started=started.isoformat(timespec="seconds"),
        total_wall_s=round(time.monotonic() - composed_s, 3),
        wall_s=round(usage.wall_s, 3),
        cpu_s=round(usage.cpu_s, 3),
        peak_memory_bytes=usage.peak_memory_bytes,
        cpus=tuple(cpus),
        host=dict(host_facts()),
    )
