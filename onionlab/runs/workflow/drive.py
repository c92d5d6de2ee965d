"""Perform the runs of plans with Snakemake: start it, show progress, report failures."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import operator
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.attempt import RunFailure, RunState
from analysis.formats.json_files import read_as, write_json
from analysis.formats.plan_file import PlannedRun
from analysis.formats.study import load_study
from onionlab.engines.examination import SMALLER, format_bytes
from onionlab.engines.processes import with_parent_death_signal
from onionlab.errors import UserError
from onionlab.paths import build_directory, code_root
from onionlab.runs.costs.estimate import available_memory_bytes
from onionlab.runs.costs.run_cost import DISK_RESERVE
from onionlab.runs.cpus import lock_owners
from onionlab.runs.places import DISK_MARGIN, require_room
from onionlab.runs.plan import Plan, read_plan
from onionlab.runs.results_lock import results_lock
from onionlab.runs.store import Store
from onionlab.runs.workflow.executor import (
    SLURM,
    Executor,
    JobSize,
    Where,
    cancel_jobs,
    job_sizes,
    largest,
)
from onionlab.runs.workflow.progress import ProgressView

LOG = logging.getLogger(__name__)
SNAKEFILE = Path(__file__).with_name("Snakefile")
SNAKEMAKE_HERE = "onionlab.runs.workflow.snakemake_here"
REPORT, RUNS = "report", "runs"
"""Rules of the Snakefile that a command requests."""
LOG_NAME = "workflow.log"
JOB_LOGS = "job-logs"
MADE = ".made"
"""Folder with a marker for each run that the current command has performed. Each command begins
without markers. It gives Snakemake only the runs that are missing in the store."""
MIN_POLL_INTERVAL_S, MAX_POLL_INTERVAL_S = 0.5, 10.0
POLL_SHARE = 0.05
"""Maximum share of the time that is spent on reading the store. The store may be slow and have
thousands of runs."""
END_TIMEOUT_S = 10.0
CANCEL_TIMEOUT_S = 60.0
"""Timeout for Snakemake to cancel the jobs of a cluster."""
TEMPORARY_HINT = "name a folder that is writable and has free space: TMPDIR=/path make ..."
ERROR_PREFIX = "error: "
"""Prefix of an error message of `python -m onionlab`. The lines after the message are its hint."""
JOB_MESSAGE = "    message: "
"""Prefix of Snakemake's line about the end of a cluster job."""
AFTER_ERROR = (ERROR_PREFIX, "RuleException:", "Error in rule ", "[")
"""Prefixes of lines that do not belong to a hint, and so end it: errors of other jobs, and lines of
Snakemake itself."""


def make_report(root: Path, plan: Plan, where: Where) -> Path:
    """Perform the runs of a plan as `make_runs` does, build the report and return its path.

    Raises UserError if `make_runs` or the report fails. An earlier report is kept.
    """
    report = plan.out / files.REPORT
    try:
        _Workflow(root, [plan], where).make(REPORT)
    except UserError as error:
        if not report.is_file():
            raise
        # The existing report could be mistaken for this command's report, so say that it is old.
        raise UserError(
            error.message, f"{error.hint or ''}\n{report} is that of an earlier command".lstrip()
        ) from error
    return report


def make_runs(root: Path, plans: Sequence[Plan], where: Where) -> None:
    """Perform all missing runs of some plans, network by network, and extract their records.

    The plans have the same store. They share one queue, so that no CPU is idle while the last run
    of a plan continues. Raises UserError if the machine is too small, the cluster rejects the jobs,
    or a run fails. Finished runs are kept.
    """
    _Workflow(root, plans, where).make(RUNS)


class _Workflow:
    """The runs of some plans, which one call of Snakemake performs."""

    def __init__(self, root: Path, plans: Sequence[Plan], where: Where) -> None:
        self.root, self.plans = root, plans
        self.executor = where if isinstance(where, Executor) else None
        self.jobs = where.max_jobs if isinstance(where, Executor) else where
        (directory,) = {plan.store for plan in plans}
        self.store = Store(directory)
        # Levels and experiments may share a run, which is performed only once.
        self.runs = {run.run_id: run for plan in plans for run in plan.runs}
        self.out = Path(os.path.commonpath([plan.out for plan in plans]))
        self.log = self.out / LOG_NAME
        self.made = plans[0].out / MADE  # This command locks the parent folder.
        name = hashlib.sha256(str(self.out.resolve()).encode()).hexdigest()[:12]
        self.job_name = f"onionlab-{name}"

    def make(self, target: str) -> None:
        """Run the rule `target` of the Snakefile. Snakemake performs the missing runs before it."""
        # Unlike Python, Snakemake does not try other folders if TMPDIR is unusable, so report an
        # unusable TMPDIR here.
        require_room(Path(os.environ.get("TMPDIR") or tempfile.gettempdir()), TEMPORARY_HINT)
        self.store.remove_damaged(self.runs)
        finished = self.store.finished_among(self.runs)
        missing = [run_id for run_id in self.runs if run_id not in finished]
        cpus_per_run = max(plan.cpus_per_run for plan in self.plans)
        jobs = self.jobs or max(1, len(os.sched_getaffinity(0)) // cpus_per_run)
        at_a_time = min(jobs, len(missing))
        if missing and not self.executor:
            # The memory of a cluster's nodes is unknown.
            for plan in self.plans:
                _require_memory(plan)
        sizes = self._job_sizes(missing)
        _require_disk(self.store, [sizes[run_id] for run_id in missing], at_a_time)
        self._report_missing(missing, at_a_time)
        with contextlib.ExitStack() as stack:
            for plan in self.plans:
                stack.enter_context(results_lock(plan.out))
            for plan in self.plans:
                _require_not_replaced(plan)
            for run_id in self.store.failed_among(self.runs if self.executor else missing):
                shutil.rmtree(self.store.failed(run_id), ignore_errors=True)
            is_slurm = self.executor is not None and self.executor.name == SLURM
            if left := cancel_jobs(self.job_name) if is_slurm else 0:
                LOG.info("%d jobs of an earlier command, which was killed, are cancelled", left)
            config = self.out / "workflow.json"
            write_json(config, self._configuration(sizes, self._unmade()))
            if self.made.exists():
                shutil.rmtree(self.made)  # A killed command has left this folder.
            stack.callback(shutil.rmtree, self.made, ignore_errors=True)
            try:
                command = self._command(config, target, jobs * cpus_per_run)
                succeeded = self._run_snakemake(command, missing)
            except KeyboardInterrupt:
                count = len(self.store.finished_among(self.runs))
                raise KeyboardInterrupt(
                    f"{'its jobs are cancelled; ' if self.executor else ''}{count} of "
                    f"{len(self.runs)} runs are finished and stay in {self.store.directory}; the "
                    "same command makes the others"
                ) from None
            if not succeeded or self._left():
                raise failure(self.runs, self.store, self.log)

    def _unmade(self) -> set[str]:
        """Return the runs that are not finished, or have no records."""
        return self.runs.keys() - self.store.extracted_among(self.runs)

    def _left(self) -> set[str]:
        """Return the runs that Snakemake left unmade although it succeeded, as in a dry run.

        If the runs' jobs on a cluster succeeded, first wait until the files of other nodes appear.
        """
        unmade = self._unmade()
        if not self.executor or not all((self.made / run_id).exists() for run_id in unmade):
            return unmade
        return self.store.await_records(unmade, self.executor.latency_wait_s)

    def _job_sizes(self, missing: Sequence[str]) -> Mapping[str, JobSize]:
        """Return the resources that each run's job requests on a cluster, by the run's name.

        Jobs on this machine request less (`_local_size`). For them, the mapping is empty if no run
        is missing. Raises UserError if the cluster would reject the jobs.
        """
        if not self.executor:
            return job_sizes(self.root, self.plans) if missing else {}
        for path in (Path(sys.executable), self.store.directory, self.made):
            # Job scripts do not quote paths, so the shell would interpret special characters.
            if shlex.quote(str(path)) != str(path):
                raise UserError(
                    f"{path}: jobs of a cluster cannot use a path with a space or another "
                    "character that a shell interprets",
                    "move the checkout to a path without, and run `make setup` there",
                )
        sizes = job_sizes(self.root, self.plans)
        if missing:
            self.executor.require_acceptance(largest([sizes[run_id] for run_id in missing]))
        return sizes

    def _report_missing(self, missing: Sequence[str], at_a_time: int) -> None:
        count = len(self.runs)
        text = f"{count} run{'' if count == 1 else 's'}: {count - len(missing)} finished, "
        text += f"{len(missing)} to make"
        if missing and self.executor:
            text += f", at most {at_a_time} in the queue at a time, through {self.executor.name}"
        elif missing:
            text += f", {at_a_time} at a time"
        LOG.info("%s", text)
        if others := len(self.store.locked_among(missing)):
            LOG.info("note: another command is making %d of them; this one waits for it", others)

    def _configuration(
        self, sizes: Mapping[str, JobSize], unmade: Collection[str]
    ) -> dict[str, Any]:
        """Return the configuration of the Snakefile for jobs that perform the runs in `unmade`."""
        seeds = sorted({run.seed for run in self.runs.values()})
        ranks = {seed: rank for rank, seed in enumerate(seeds)}
        return {
            "python": sys.executable,
            "code": _environment()["PYTHONPATH"],
            "root": str(self.root),
            "made": str(self.made),
            "plan": str(self.plans[0].file),
            "latency_s": self.executor.latency_wait_s if self.executor else 0.0,
            "options": "--cluster" if self.executor else "--records",
            "resources": dict(self.executor.resources) if self.executor else {},
            "runs": {
                run.run_id: {
                    "plan": str(plan.file),
                    "rank": ranks[run.seed],
                    **(sizes[run.run_id] if self.executor else _local_size(plan))._asdict(),
                }
                for plan in self.plans
                for run in plan.runs
                if run.run_id in unmade
            },
        }

    def _command(self, config: Path, target: str, cpus: int) -> list[str]:
        workdir = build_directory(self.root) / "workflow"
        workdir.mkdir(parents=True, exist_ok=True)
        require_room(workdir)
        if self.executor:
            module = "snakemake"
            where = self.executor.arguments(self.job_name, self.out / JOB_LOGS)
        else:
            module = SNAKEMAKE_HERE
            memory_mb = max(_local_size(plan).memory_mb for plan in self.plans)
            memory_mb = max(memory_mb, available_memory_bytes() // 2**20)
            where = ["--cores", str(cpus), "--resources", f"mem_mb={memory_mb}"]
        return [
            *(sys.executable, "-m", module),
            *("--snakefile", str(SNAKEFILE)),
            *("--directory", str(workdir)),
            *where,
            # Snakemake's locks are not needed: the run store has its own locks, and it never
            # contains incomplete runs.
            *("--nolock", "--rerun-incomplete", "--ignore-incomplete"),
            *("--rerun-triggers", "mtime"),
            # The ILP scheduler leaves PuLP's files in TMPDIR if it is interrupted. Both schedulers
            # order jobs by priority and respect resources.
            *("--scheduler", "greedy"),
            "--keep-going",
            # Snakemake's own reports on jobs are needed only on a cluster, where nothing else
            # reports errors of jobs. Jobs on this machine print their errors into the log.
            *([] if self.executor else ["--quiet", "rules"]),
            *("--configfile", str(config)),
            "--",
            target,
        ]

    def _run_snakemake(self, command: Sequence[str], missing: Sequence[str]) -> bool:
        """Run Snakemake and show progress until it ends; return whether it succeeded."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                # If onionlab is killed, Snakemake must end, too, and not start any more jobs.
                with_parent_death_signal(command),
                cwd=self.root,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # The separate process group lets an interrupt reach all jobs at once.
                start_new_session=True,
            )
            try:
                _watch(process, self.store, missing, on_cluster=self.executor is not None)
            except BaseException:
                self._end(process)
                raise
        return process.returncode == 0

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End Snakemake and all jobs."""
        # At SIGINT, Snakemake cancels the jobs of a cluster. At SIGTERM it would wait for them.
        first = signal.SIGINT if self.executor else signal.SIGTERM
        # Always kill the process group, because a job may still run when Snakemake has ended.
        for number in (first, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(CANCEL_TIMEOUT_S if self.executor else END_TIMEOUT_S)
        if self.executor and self.executor.name == SLURM:
            with contextlib.suppress(UserError):
                cancel_jobs(self.job_name)


def _local_size(plan: Plan) -> JobSize:
    """Return the size of a run's job on this machine, where only memory and CPUs are limited."""
    memory_mb = max(1, round(plan.resources.memory_bytes / 2**20))
    return JobSize(plan.cpus_per_run, memory_mb, runtime_min=1, disk_mb=1)


def _environment() -> dict[str, str]:
    """Return the environment for jobs, so that jobs run the same code as this command.

    Jobs start in another folder. Without PYTHONPATH, they would import the installed package, which
    may belong to another checkout, or be missing.
    """
    paths = [str(code_root()), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _require_not_replaced(plan: Plan) -> None:
    """Raise UserError if another command has planned other runs in the same place.

    Planning several experiments takes minutes, during which the folder is not locked. Files that
    cannot be read are ignored here: the code that needs such a file reports the error.
    """
    place = operator.attrgetter("run_id", "level", "variant", "seed", "repeat")
    found = []
    with contextlib.suppress(AnalysisError, UserError):
        found.append(set(map(place, read_plan(plan.file).runs)))
        found.append(set(map(place, load_study(plan.study).runs)))
    if any(runs != set(map(place, plan.runs)) for runs in found):
        raise UserError(
            f"{plan.out}: another command has planned other runs there meanwhile",
            "start this one again; runs that are finished stay",
        )


def _require_memory(plan: Plan) -> None:
    """Raise UserError if this machine has too little memory for one run."""
    available = available_memory_bytes()
    if plan.resources.memory_bytes > available:
        raise UserError(
            f"one run needs about {format_bytes(plan.resources.memory_bytes)} of memory, "
            f"and {format_bytes(available)} are available",
            f"{SMALLER}, or use a machine with more memory",
        )


def _require_disk(store: Store, sizes: Sequence[JobSize], at_a_time: int) -> None:
    """Raise UserError if the disk has too little room for all missing runs.

    Finished runs stay on the disk. The largest runs may be in progress at the end, so they need
    their reserve. All other runs need the expected space. sizes: the sizes of the missing runs.
    at_a_time: the number of concurrent runs.
    """
    if not sizes:
        return
    store.directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(store.directory).free
    disk_mb = sorted((size.disk_mb for size in sizes), reverse=True)
    in_progress_mb, finished_mb = sum(disk_mb[:at_a_time]), sum(disk_mb[at_a_time:])
    need = round((in_progress_mb * DISK_MARGIN + finished_mb / DISK_RESERVE) * 2**20)
    if need > free:
        runs = "the missing run needs" if len(sizes) == 1 else f"{len(sizes)} missing runs need"
        raise UserError(
            f"{runs} about {format_bytes(need)} of disk, and {format_bytes(free)} are free below "
            f"{store.directory}",
            f"free about {format_bytes(need - free)} there, request fewer runs (NETWORKS, "
            f"VARIANTS), or {SMALLER}",
        )


def _watch(
    process: subprocess.Popen[bytes], store: Store, missing: Sequence[str], *, on_cluster: bool
) -> None:
    """Show progress until Snakemake ends."""
    started_at_s = time.time()
    left = set(missing)
    with ProgressView(total=len(missing)) as view:
        while process.poll() is None:
            begun_s = time.monotonic()
            left -= store.finished_among(left)
            states = running_states(store, left, started_at_s)
            waits = any(state.waiting for state in states.values()) and not on_cluster
            owners = lock_owners(sorted(os.sched_getaffinity(0))) if waits else ()
            view.show(len(missing) - len(left), states, owners)
            pause_s = max(MIN_POLL_INTERVAL_S, (time.monotonic() - begun_s) / POLL_SHARE)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(pause_s, MAX_POLL_INTERVAL_S))
        left -= store.finished_among(left)
        view.show(len(missing) - len(left), {})


def running_states(store: Store, run_ids: Collection[str], since_s: float) -> dict[str, RunState]:
    """Return the latest states of the runs in progress, by the runs' names.

    since_s: Unix time. Older states belong to interrupted attempts.
    """
    states = {}
    for run_id in sorted(store.begun_among(run_ids)):
        try:
            state = read_as(RunState, store.partial(run_id) / files.PROGRESS, "state of a run")
        except AnalysisError:
            continue  # The run has not started, has just finished, or its state is being written.
        if state.at_s >= since_s:
            states[run_id] = state
    return states


def failure(runs: Mapping[str, PlannedRun], store: Store, log: Path) -> UserError:
    """Return one error about all failed runs. If none failed, return the first error in the log."""
    failed = [run_id for run_id in runs if (store.failed(run_id) / files.ERROR).exists()]
    if failed:
        path = store.failed(failed[0]) / files.ERROR
        error = read_as(RunFailure, path, "reason of a failure")
        return UserError(
            f"{len(failed)} of {len(runs)} runs failed; the first, {runs[failed[0]].title}: "
            f"{error.message}",
            f"{store.describe_failed(failed[0], error.log)}\n"
            "runs that finished are kept: the same command makes the others",
        )
    lines = log.read_text(errors="replace").splitlines()
    if refusal := _first_error(lines):
        return UserError(refusal[0], "\n".join([*refusal[1:], f"the whole log is {log}"]))
    message = "the workflow failed"
    if reasons := [line for line in lines if line.startswith(JOB_MESSAGE)]:
        message += f": {reasons[-1].removeprefix(JOB_MESSAGE)}"
    tail = "\n".join(lines[-15:])
    return UserError(message, f"its log is {log}; its last lines:\n{tail}")


def _first_error(lines: Sequence[str]) -> list[str]:
    """Return the first error that a job printed, if any, and the lines of its hint."""
    start = next((i for i, line in enumerate(lines) if line.startswith(ERROR_PREFIX)), None)
    if start is None:
        return []
    hint = itertools.takewhile(lambda line: not line.startswith(AFTER_ERROR), lines[start + 1 :])
    return [lines[start].removeprefix(ERROR_PREFIX), *hint]
