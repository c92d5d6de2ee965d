"""Carry a plan out: hand it to Snakemake, show how far it is, say what failed."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.attempt import RunFailure, RunState
from analysis.formats.json_files import read_as, write_json
from analysis.formats.plan_file import PlannedRun
from analysis.formats.study import load_study
from onionlab.engines.examination import SMALLER
from onionlab.engines.processes import ended_with_caller
from onionlab.errors import UserError
from onionlab.paths import build_directory, code_root
from onionlab.runs.costs.estimate import available_memory_bytes
from onionlab.runs.cpus import holders
from onionlab.runs.places import require_room
from onionlab.runs.plan import Plan, read_plan
from onionlab.runs.presence import beating, presence
from onionlab.runs.store import Store
from onionlab.runs.workflow import remote
from onionlab.runs.workflow.executor import Executor
from onionlab.runs.workflow.progress import ProgressView
from onionlab.runs.workflow.remote import Remote, open_remote

SNAKEFILE = Path(__file__).with_name("Snakefile")
SNAKEMAKE_HERE = "onionlab.runs.workflow.snakemake_here"
REPORT, RUNS, FIRST_TIME = "report", "runs", "first_time"
"""The Snakefile's rules that can be asked for."""
POLL_INTERVAL_S = 0.5
LOOK_SHARE = 0.05
"""Of the time at most that the store is being looked at: it may be slow, and hold thousands."""
LONGEST_POLL_INTERVAL_S = 10.0
MOST_IN_VAIN = 3
"""So often Snakemake is begun one after the other and makes no run."""
ANEW = "onionlab: Slurm has no more jobs of this workflow, and Snakemake waits for them: begun anew"
TEMPORARY_HINT = "name a folder that is writable and has free space: TMPDIR=/path make ..."
ERROR_PREFIX = "error: "
"""How the console program starts an error's message; its hint follows."""
AFTER_ERROR = (ERROR_PREFIX, "RuleException:", "Error in rule ", "[")
"""How lines start that follow an error: other jobs' errors, and what Snakemake prints."""
# Shadow keeps its shared memory there, and so do the logs' page caches: room to spare.
DISK_MARGIN = 1.2


class _LostJobsError(Exception):
    """Snakemake waits for jobs that have ended."""


def make_report(
    root: Path,
    plan: Plan,
    *,
    jobs: int | None,
    say: Callable[[str], None],
    executor: Executor | None = None,
) -> Path:
    """Make all runs that are missing, extract their records and build the report; return its path.

    jobs: simulations side by side (default: as many as there are CPUs for). executor: makes the
    runs, in place of this machine. Raises UserError where the machine is too small, the executor
    refuses or a run failed; runs that are finished stay, and so does an earlier report.
    """
    report = plan.out / files.REPORT
    try:
        _carry_out(root, [plan], REPORT, jobs=jobs, say=say, executor=executor)
    except UserError as error:
        if not report.is_file():
            raise
        # It must not be taken for the present one.
        raise UserError(
            error.message, f"{error.hint or ''}\n{report} is that of an earlier command".lstrip()
        ) from error
    return report


def make_runs(
    root: Path,
    plans: Sequence[Plan],
    *,
    jobs: int | None,
    say: Callable[[str], None],
    executor: Executor | None = None,
) -> None:
    """Make all runs of some plans that are missing and extract their records, network by network.

    All plans at once, so that no CPU waits for the last run of one of them. Otherwise as
    `make_report`. All plans have one store.
    """
    _carry_out(root, plans, RUNS, jobs=jobs, say=say, executor=executor)


def _carry_out(
    root: Path,
    plans: Sequence[Plan],
    target: str,
    *,
    jobs: int | None,
    say: Callable[[str], None],
    executor: Executor | None,
) -> None:
    # Snakemake uses TMPDIR unchecked, unlike Python, which looks for another folder.
    require_room(Path(os.environ.get("TMPDIR") or tempfile.gettempdir()), TEMPORARY_HINT)
    (directory,) = {plan.store for plan in plans}
    if executor:
        _require_plain_names((Path(sys.executable), directory))
    store = Store(directory)
    distinct = _distinct_runs(plans)
    store.remove_damaged(distinct, say)
    finished = store.finished_among(distinct)
    missing = [run_id for run_id in distinct if run_id not in finished]
    out = Path(os.path.commonpath([plan.out for plan in plans]))
    elsewhere = open_remote(root, executor, plans, out) if executor else None
    cpus_per_run = max(plan.cpus_per_run for plan in plans)
    jobs = elsewhere.max_jobs if elsewhere else jobs
    jobs = jobs or max(1, (os.cpu_count() or 1) // cpus_per_run)
    side_by_side = min(jobs, len(missing))
    for plan in plans:
        _require_resources(plan, side_by_side, elsewhere=elsewhere is not None)
    if elsewhere:
        elsewhere.require_cluster(missing)
    targets = [target]
    if target == REPORT and missing and not elsewhere and not _is_compiled():
        targets.append(FIRST_TIME)
    there = len(distinct) - len(missing)
    say(
        f"{len(distinct)} {'run' if len(distinct) == 1 else 'runs'}: "
        f"{there} {'is' if there == 1 else 'are'} there, {len(missing)} to do"
        + (f", {_at_a_time(side_by_side, elsewhere)}" if missing else "")
    )

    with contextlib.ExitStack() as present:
        for plan in plans:
            present.enter_context(presence(plan.out))
        for plan in plans:
            _require_not_replaced(plan)
        for run_id in store.failed_among(distinct if elsewhere else missing):
            shutil.rmtree(store.failed(run_id), ignore_errors=True)
        log = present.enter_context((out / "workflow.log").open("wb"))
        command = present.enter_context(beating(out)) if elsewhere else None
        if elsewhere:
            elsewhere.cancel_left(say)
        config = _config_file(out, command)
        if command:
            present.callback(config.unlink, missing_ok=True)
        write_json(config, _workflow_config(root, plans, elsewhere, command))
        words = _command(root, plans, config, targets, jobs * cpus_per_run, elsewhere)
        try:
            succeeded = _follow(words, root, log, store, missing, elsewhere)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(distinct, store, elsewhere)) from None
        if not succeeded:
            raise _failure(distinct, store, out / "workflow.log", elsewhere)


def _require_not_replaced(plan: Plan) -> None:
    """Raises UserError where another command has planned other runs in the same place.

    Nobody holds the place while it is planned, which takes minutes where there are several plans.
    From now on it is this command's. What cannot be read is for its readers to say.
    """
    found: list[set[PlannedRun]] = []
    with contextlib.suppress(AnalysisError, UserError):
        found.append(set(read_plan(plan.file).runs))
        study = load_study(plan.study)
        found.append(
            {PlannedRun(r.run_id, r.level, r.variant, r.seed, r.repeat) for r in study.runs}
        )
    if any(runs != set(plan.runs) for runs in found):
        raise UserError(
            f"{plan.out}: another command has planned other runs there meanwhile",
            "start this one again; runs that are finished stay",
        )


def _follow(
    words: Sequence[str],
    root: Path,
    log: BinaryIO,
    store: Store,
    missing: list[str],
    elsewhere: Remote | None,
) -> bool:
    """Start Snakemake and watch it until it ends; return whether it succeeded.

    It is begun anew where it has lost its jobs, as long as that brings more runs.
    """
    if elsewhere:
        # Its jobs end by themselves with this command; it would wait for them.
        words = ended_with_caller(words)
    vain = 0
    while True:
        before = len(store.finished_among(missing))
        process = subprocess.Popen(
            words,
            cwd=root,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A group of its own, so that an interruption can be passed on to all jobs at once.
            start_new_session=True,
        )
        try:
            _watch(process, store, missing, elsewhere)
            return process.returncode == 0
        except _LostJobsError:
            _end_group(process, elsewhere)
        except BaseException:
            _end_group(process, elsewhere)
            raise
        vain = 0 if len(store.finished_among(missing)) > before else vain + 1
        if vain == MOST_IN_VAIN:
            return False
        log.write(ANEW.encode() + b"\n")
        log.flush()


def _at_a_time(side_by_side: int, elsewhere: Remote | None) -> str:
    """How many runs are made together, for people."""
    if elsewhere is None:
        return f"{side_by_side} side by side"
    return f"at most {side_by_side} in the queue at a time, through {elsewhere.name}"


def _config_file(out: Path, command: Path | None) -> Path:
    """Where the Snakefile's knowledge goes: what a job in a queue reads is its own command's."""
    return out / ("workflow.json" if command is None else f"{command.name}.json")


def _kept(runs: Mapping[str, PlannedRun], store: Store, elsewhere: Remote | None) -> str:
    """What an interruption leaves, for people."""
    finished = len(store.finished_among(runs))
    cancelled = "its jobs are cancelled; " if elsewhere else ""
    return (
        f"{cancelled}{finished} of {len(runs)} runs are finished and stay in {store.directory}; "
        "what was under way is dropped, and the same command goes on from there"
    )


def _require_plain_names(paths: Iterable[Path]) -> None:
    """Raises UserError for what a shell would take apart: Snakemake's job scripts quote nothing."""
    for path in paths:
        if shlex.quote(str(path)) != str(path):
            raise UserError(
                f"{path}: no job of a cluster can have this path, with a space or another "
                "sign that a shell reads",
                "move the checkout to a place without, and run `make setup` there",
            )


def _environment() -> dict[str, str]:
    """The jobs' environment: they run the code that started them.

    They start in another folder, where Python would look for what is installed: another checkout's
    code, or none, where this one was copied or moved.
    """
    paths = [str(code_root()), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _workflow_config(
    root: Path,
    plans: Sequence[Plan],
    elsewhere: Remote | None = None,
    command: Path | None = None,
) -> dict[str, Any]:
    """What the Snakefile knows. command: the file by which jobs elsewhere see this command."""
    ranks = {
        seed: rank for rank, seed in enumerate(sorted({r.seed for p in plans for r in p.runs}))
    }
    return {
        "plan": str(plans[0].file),
        "python": sys.executable,
        "root": str(root),
        "store": str(plans[0].store),
        "records": f"{files.RECORDS}/{files.PARSE_REPORT}",
        "manifest": files.MANIFEST,
        "runs": {
            run.run_id: {
                "plan": str(plan.file),
                "rank": ranks[run.seed],
                "cpus": plan.cpus_per_run,
                "memory_mb": _memory_mb(plan),
                **(elsewhere.config_of_run(run.run_id) if elsewhere else {}),
            }
            for plan in plans
            for run in plan.runs
        },
        **(
            {"code": _environment()["PYTHONPATH"], **elsewhere.config(command)}
            if elsewhere and command
            else {}
        ),
    }


def _memory_mb(plan: Plan) -> int:
    return max(1, round(plan.resources.memory_bytes / 2**20))


def _command(
    root: Path,
    plans: Sequence[Plan],
    config: Path,
    targets: Sequence[str],
    cpus: int,
    elsewhere: Remote | None,
) -> list[str]:
    workdir = build_directory(root) / "workflow"
    workdir.mkdir(parents=True, exist_ok=True)
    require_room(workdir)
    memory_mb = max(available_memory_bytes() // 2**20, *(_memory_mb(plan) for plan in plans))
    here = ("--cores", str(cpus), "--resources", f"mem_mb={memory_mb}")
    snakefile = remote.SNAKEFILE if elsewhere else SNAKEFILE
    return [
        *(sys.executable, "-m", "snakemake" if elsewhere else SNAKEMAKE_HERE),
        *("--snakefile", str(snakefile)),
        *("--directory", str(workdir)),
        *(elsewhere.arguments() if elsewhere else here),
        # The run store has its own locks and never holds half a run.
        *("--nolock", "--rerun-incomplete", "--ignore-incomplete"),
        *("--rerun-triggers", "mtime"),
        # The ILP scheduler leaves PuLP's files in TMPDIR if it is interrupted; both schedulers
        # order by priority and keep to the resources.
        *("--scheduler", "greedy"),
        "--keep-going",
        *("--quiet", "rules"),
        *("--configfile", str(config)),
        "--",
        *targets,
    ]


def _is_compiled() -> bool:
    """Whether Python has compiled what a report takes, or would not keep it."""
    report = code_root() / "analysis" / "pages" / "report.py"
    compiled = Path(cache_from_source(str(report)))
    writable = os.access(report.parent, os.W_OK)
    return compiled.is_file() or sys.dont_write_bytecode or not writable


def _distinct_runs(plans: Sequence[Plan]) -> dict[str, PlannedRun]:
    """Return the plans' runs by id, each once: levels and experiments may share a run."""
    return {run.run_id: run for plan in plans for run in plan.runs}


def _watch(
    process: subprocess.Popen[bytes],
    store: Store,
    missing: list[str],
    elsewhere: Remote | None = None,
) -> None:
    """Show how far it is until it ends. Raises _LostJobsError where it would not."""
    started_at_s = time.time()
    if elsewhere:
        elsewhere.begin()
    left = set(missing)
    with ProgressView(total=len(missing)) as view:
        while process.poll() is None:
            begun_s = time.monotonic()
            left -= store.finished_among(left)
            states = running_states(store, left, started_at_s)
            waits = any(state.waiting for state in states) and not elsewhere
            held = holders(sorted(os.sched_getaffinity(0))) if waits else ()
            looked_s = time.monotonic() - begun_s
            notes = elsewhere.notes() if elsewhere else ()
            view.show(len(missing) - len(left), states, held, notes)
            if elsewhere and elsewhere.has_lost_its_jobs(
                all_there=not left, is_busy=_has_children(process)
            ):
                raise _LostJobsError
            pause_s = max(POLL_INTERVAL_S, looked_s / LOOK_SHARE)
            _wait_for(process, min(pause_s, LONGEST_POLL_INTERVAL_S))
        left -= store.finished_among(left)
        view.show(len(missing) - len(left), [])


def _has_children(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has started something that still works."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(process.pid).children())
    return False


def _wait_for(process: subprocess.Popen[bytes], at_most_s: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(at_most_s)


def running_states(store: Store, run_ids: Collection[str], since_s: float) -> list[RunState]:
    """What those of the runs that are under way last said of themselves.

    since_s: Unix time; what a run said before was said by an attempt that has been interrupted.
    """
    states = []
    for run_id in sorted(store.begun_among(run_ids)):
        try:
            state = read_as(RunState, store.partial(run_id) / files.PROGRESS, "state of a run")
        except AnalysisError:
            continue  # Not started, just finished, or being written.
        if state.at_s >= since_s:
            states.append(state)
    return states


def _end_group(process: subprocess.Popen[bytes], elsewhere: Remote | None = None) -> None:
    # At the first of them it cancels its jobs elsewhere; at SIGTERM it would wait for them.
    first = signal.SIGINT if elsewhere else signal.SIGTERM
    for number in (first, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    if elsewhere:
        elsewhere.cancel()


def _require_resources(plan: Plan, side_by_side: int, *, elsewhere: bool = False) -> None:
    """Raises UserError where memory or disk are too small; of others' memory nothing is known."""
    if not side_by_side:
        return
    available = available_memory_bytes()
    if plan.resources.memory_bytes > available and not elsewhere:
        raise UserError(
            f"one run needs about {_size(plan.resources.memory_bytes)} of memory, "
            f"and {_size(available)} are available",
            f"{SMALLER}, or use a machine with more memory",
        )
    plan.store.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(plan.store).free
    need = round(plan.resources.disk_bytes * side_by_side * DISK_MARGIN)
    if need > free:
        raise UserError(
            f"{side_by_side} runs side by side need about {_size(need)} of disk, "
            f"and {_size(free)} are free below {plan.store}",
            f"free some, use fewer {'MAX_JOBS' if elsewhere else 'JOBS'}, or {SMALLER}",
        )


def _size(size_bytes: int) -> str:
    """A size in the largest unit of which there is one, and so never zero of something."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes / 2**10:.1f} KiB"


def _failure(
    runs: Mapping[str, PlannedRun],
    store: Store,
    log_path: Path,
    elsewhere: Remote | None = None,
) -> UserError:
    """Collect what the failed runs left into one error."""
    failures = []
    for run_id, run in runs.items():
        path = store.failed(run_id) / files.ERROR
        if path.exists():
            failures.append((run, read_as(RunFailure, path, "reason of a failure")))
    if not failures and elsewhere and (ended := _ended(runs, store, elsewhere)):
        return ended
    if not failures:
        lines = log_path.read_text(errors="replace").splitlines()
        refusal = _refusal(lines)
        if refusal:
            return UserError(refusal[0], "\n".join([*refusal[1:], f"the whole log is {log_path}"]))
        tail = "\n".join(lines[-15:])
        return UserError("the workflow failed", f"its log is {log_path}; its last lines:\n{tail}")
    run, error = failures[0]
    return UserError(
        f"{len(failures)} of {len(runs)} runs failed; the first, {run.title}: {error.message}",
        f"{store.kept_of_failed(run.run_id, error.log)}\n"
        "runs that finished are kept: the same command goes on from there",
    )


def _refusal(lines: Sequence[str]) -> list[str]:
    """Return the first error that one of our jobs printed, its hint included; empty without one."""
    start = next((i for i, line in enumerate(lines) if line.startswith(ERROR_PREFIX)), None)
    if start is None:
        return []
    hint = itertools.takewhile(lambda line: not line.startswith(AFTER_ERROR), lines[start + 1 :])
    return [lines[start].removeprefix(ERROR_PREFIX), *hint]


def _ended(runs: Mapping[str, PlannedRun], store: Store, elsewhere: Remote) -> UserError | None:
    """The error of runs that were ended from outside; None where nobody can tell."""
    ends = {
        run_id: words
        for run_id in runs
        if not store.is_finished(run_id) and (words := elsewhere.ends_of(run_id))
    }
    if not ends:
        return None
    run_id, words = next(iter(ends.items()))
    return UserError(
        f"{len(ends)} of {len(runs)} runs were ended; the first, {runs[run_id].title}: {words}",
        "runs that finished are kept: the same command goes on from there",
    )
