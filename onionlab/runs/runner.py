"""One run, from composing its directory to its place in the store."""

from __future__ import annotations

import contextlib
import errno
import os
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
from onionlab import __version__
from onionlab.engines import EngineFailureError, Progress
from onionlab.engines.processes import kill_processes_below
from onionlab.errors import UserError
from onionlab.rundir.verify_logs import verify_log_ends
from onionlab.rundir.verify_tor import RunRefusedError
from onionlab.runs.attempts import attempt
from onionlab.runs.bench import Bench, open_bench
from onionlab.runs.commit import current_commit
from onionlab.runs.cpus import holders, own_cpus
from onionlab.runs.host_facts import host_facts
from onionlab.runs.plan import Plan
from onionlab.runs.presence import ending_with_command
from onionlab.runs.store import Store


def planned_run(plan: Plan, run_id: str) -> PlannedRun:
    """The run of that name. Raises UserError where the plan has none."""
    planned = next((run for run in plan.runs if run.run_id == run_id), None)
    if planned is None:
        raise UserError(f"the plan has no run {run_id}")
    return planned


def execute(root: Path, plan: Plan, run_id: str, say: Callable[[str], None]) -> None:
    """Make the run, unless it is there. Raises UserError where it fails; the attempt is kept."""
    planned = planned_run(plan, run_id)
    # Another command may be making the same run: wait for it, then there is nothing to do.
    with ending_with_command(plan.out, say):
        execute_watched(root, plan, planned, say)


def execute_watched(
    root: Path,
    plan: Plan,
    planned: PlannedRun,
    say: Callable[[str], None],
    *,
    elsewhere: bool = False,
) -> None:
    """The same, for whoever sees to it that the run ends with its command.

    elsewhere: as a job of a cluster: CPUs were given to this process, and others that make runs for
    the same store may be on other machines. Raises as `execute`.
    """
    store, run_id = Store(plan.store), planned.run_id
    with store.exclusive(run_id, everywhere=elsewhere):
        if store.is_finished(run_id):
            return
        disk_bytes = plan.resources.disk_bytes
        with attempt(store, run_id, elsewhere=elsewhere, disk_bytes=disk_bytes) as place:
            bench = open_bench(root, plan.request, say)
            try:
                what = f"{plan.out.name}: {planned.title}"
                with own_cpus(
                    plan.cpus_per_run,
                    what,
                    lambda: _say_it_waits(store, planned, say),
                    allocated=elsewhere,
                ) as cpus:
                    manifest = _simulate(bench, store, planned, cpus, place)
            except (EngineFailureError, RunRefusedError) as failure:
                store.fail(
                    run_id,
                    RunFailure(
                        title=planned.title, message=failure.message, log=tuple(failure.log_tail)
                    ),
                    place,
                )
                raise UserError(
                    f"run {planned.title} failed: {failure.message}",
                    store.kept_of_failed(run_id, failure.log_tail),
                ) from failure
            store.finish(run_id, manifest, place)


def _say_it_waits(store: Store, planned: PlannedRun, say: Callable[[str], None]) -> None:
    """Say that the run waits for its CPUs, and for whom, and leave a note for the command."""
    held = "; ".join(map(str, holders(sorted(os.sched_getaffinity(0)))))
    say(f"{planned.title} waits for a CPU{f': {held}' if held else ''}")
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
