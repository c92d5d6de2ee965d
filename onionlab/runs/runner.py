"""One run, from composing its directory to its place in the store."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from analysis.formats import files
from analysis.formats.attempt import RunFailure, RunState
from analysis.formats.json_files import write_json
from analysis.formats.manifest import Build, Manifest
from analysis.formats.plan_file import PlannedRun
from analysis.formats.scratch import scratch_folder
from onionlab import __version__
from onionlab.engines import EngineFailureError, Progress
from onionlab.engines.processes import end_processes_below, kill_processes_below
from onionlab.errors import UserError
from onionlab.rundir.verify import RunRefusedError, verify_log_ends
from onionlab.runs.bench import Bench, open_bench
from onionlab.runs.commit import current_commit
from onionlab.runs.cpus import lock_owners, reserve_cpus
from onionlab.runs.host_facts import host_facts
from onionlab.runs.plan import Plan
from onionlab.runs.results_lock import exit_with_command
from onionlab.runs.store import Store

DISK_MARGIN = 1.2


def planned_run(plan: Plan, run_id: str) -> PlannedRun:
    """Return a run of a plan by its name. Raises UserError if the plan has none."""
    planned = next((run for run in plan.runs if run.run_id == run_id), None)
    if planned is None:
        raise UserError(f"the plan has no run {run_id}")
    return planned


def execute(
    root: Path, plan: Plan, run_id: str, say: Callable[[str], None], *, on_cluster: bool = False
) -> None:
    """Make a run unless it is in the store. It ends with the command, but not on a cluster.

    Raises:
        UserError: The run fails. The attempt is kept.
    """
    store, planned = Store(plan.store), planned_run(plan, run_id)

    def say_it_is_made() -> None:
        say(f"{planned.title}: another command is making this run; waiting for it")

    watch = contextlib.nullcontext() if on_cluster else exit_with_command(plan.out, say)
    with watch, store.exclusive(run_id, say_it_is_made):
        if store.is_finished(run_id):
            return
        with _attempt_folder(store, plan, run_id, on_cluster=on_cluster) as folder:
            bench = open_bench(root, plan.request, say, resolved=plan.resolved)
            try:
                with reserve_cpus(
                    plan.cpus_per_run,
                    f"{plan.out.name}: {planned.title}",
                    lambda: _say_it_waits(store, planned, say),
                    allocated=on_cluster,
                ) as cpus:
                    manifest = _simulate(bench, store, planned, cpus, folder)
            except (EngineFailureError, RunRefusedError) as failure:
                log_tail = tuple(failure.log_tail)
                reason = RunFailure(title=planned.title, message=failure.message, log=log_tail)
                store.fail(run_id, reason, folder)
                raise UserError(
                    f"run {planned.title} failed: {failure.message}",
                    store.kept_of_failed(run_id, failure.log_tail),
                ) from failure
            store.finish(run_id, manifest, folder)


def extract_records(store: Store, run_id: str) -> None:
    """Extract a run's records if they are missing. Raises UserError if that fails."""
    # Imported late: a simulation does not need the memory of these libraries.
    from analysis.records.extract import extract

    folder = store.run(run_id) / files.RECORDS
    with store.exclusive(run_id):
        if not (folder / files.PARSE_REPORT).exists():
            extract(store.run(run_id), folder)


@contextlib.contextmanager
def _attempt_folder(store: Store, plan: Plan, run_id: str, *, on_cluster: bool) -> Iterator[Path]:
    """Remove what earlier attempts at a run left, and yield the folder for this one.

    That is `runs/.partial/<run>`. A job of a cluster writes to its node's own disk instead if
    TMPDIR names a folder there with enough room, and only its progress to the store. The next
    command on that node removes what a killed job left there.
    """
    partial = store.partial(run_id)
    if partial.exists():
        end_processes_below(partial)
        shutil.rmtree(partial)
    store.remove_unfinished(run_id)
    node_disk, need_bytes = os.environ.get("TMPDIR"), plan.resources.disk_bytes * DISK_MARGIN
    if on_cluster and node_disk and shutil.disk_usage(node_disk).free > need_bytes:
        partial.mkdir(parents=True)
        with scratch_folder(Path(node_disk), "onionlab-attempt-") as folder:
            yield folder / run_id
    else:
        yield partial


def _say_it_waits(store: Store, planned: PlannedRun, say: Callable[[str], None]) -> None:
    """Say that a run waits for CPUs and who holds them, and write that into its progress."""
    owners = "; ".join(map(str, lock_owners(sorted(os.sched_getaffinity(0)))))
    say(f"{planned.title} waits for a CPU{f': {owners}' if owners else ''}")
    state = RunState(
        title=planned.title,
        simulated_s=0.0,
        stop_s=0.0,
        wall_s=0.0,
        memory_bytes=0,
        at_s=time.time(),
        waiting=True,
    )
    with contextlib.suppress(OSError):
        write_json(store.partial(planned.run_id) / files.PROGRESS, asdict(state), durable=False)


def _simulate(
    bench: Bench, store: Store, planned: PlannedRun, cpus: list[int], place: Path
) -> Manifest:
    run = bench.compose(planned.level, planned.variant, planned.seed, planned.repeat)
    identity = run.identity(bench.programs, bench.engine)
    if run.run_id(bench.programs, bench.engine) != planned.run_id:
        raise UserError(
            f"what determines the run {planned.title} has changed since the plan was made",
            "start the experiment again: it plans anew and keeps every run that is still valid",
        )
    run.write(place)
    started = datetime.now(UTC)
    composed_s = time.monotonic()

    disk = _FullDisk()
    look = bench.watch(place / files.HOSTS, planned.level, run)

    def on_progress(progress: Progress) -> None:
        look(progress.simulated_s)
        state = RunState(title=planned.title, **asdict(progress), at_s=time.time())
        with disk.noticed():
            write_json(store.partial(planned.run_id) / files.PROGRESS, asdict(state), durable=False)

    try:
        usage = bench.engine.run(
            place,
            simulation=run.simulation,
            programs=bench.executables(),
            on_progress=on_progress,
        )
    except EngineFailureError as failure:
        raise EngineFailureError(failure.message + disk.words, failure.log_tail) from failure
    finally:
        kill_processes_below(place)
    if disk.words:
        # Programs lose lines of their logs there without a word.
        raise RunRefusedError(f"its logs may lack lines{disk.words}", [])
    proofs = bench.verify(place / files.HOSTS, run)
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
            for name, built in bench.programs.items()
            if name in run.tor_programs
        },
        torrc=run.tor_options,
        proofs=proofs,
        onionlab=__version__,
        commit=current_commit(),
        started=started.isoformat(timespec="seconds"),
        total_wall_s=round(time.monotonic() - composed_s, 3),
        wall_s=round(usage.wall_s, 3),
        cpu_s=round(usage.cpu_s, 3),
        peak_memory_bytes=usage.peak_memory_bytes,
        cpus=tuple(cpus),
        host=dict(host_facts()),
    )


class _FullDisk:
    """Whether the disk was full while a simulation ran, which progress may not end."""

    def __init__(self) -> None:
        self._was_full = False

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        """Write something that the run can do without."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._was_full = True

    @property
    def words(self) -> str:
        """To stand behind a message; nothing where it never was."""
        return ": the disk was full while it ran" if self._was_full else ""
