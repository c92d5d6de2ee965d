"""Plan an experiment: its runs, their names, and the place of its results.

A run's name is the hash of everything that determines the run, such as its initial files and its
programs. To name a run, its programs are built and its files are composed.

A plan is stored in `results/<name>/plan.json`, from which jobs compose runs. `study.json` in the
same folder describes the experiment for the analysis (onionlab/runs/study_file.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, resource_tracker
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.json_files import write_json
from analysis.formats.plan_file import (
    MAKE_ANEW,
    PlanFile,
    PlannedRun,
    Request,
    Resources,
    read_plan_file,
    store_of,
)
from analysis.formats.study import Looks, write_study
from onionlab.engines import ENGINES
from onionlab.errors import UserError
from onionlab.experiment.load import resolve_experiment
from onionlab.interruption import interrupts_deferred
from onionlab.rundir.compose import engine_options
from onionlab.runs.costs.estimate import estimate_resources
from onionlab.runs.earlier_looks import with_earlier_looks
from onionlab.runs.outdated_runs import explain_outdated_runs
from onionlab.runs.places import require_writable
from onionlab.runs.results_lock import exit_with_parent, in_use_error, is_in_use
from onionlab.runs.run_builder import RunBuilder, open_run_builder
from onionlab.runs.store import Store
from onionlab.runs.study_file import build_study

LOG = logging.getLogger(__name__)
MIN_CONCURRENT_RUNS = 6
"""Minimum number of runs for which starting a second process to compose them saves time."""


@dataclass(frozen=True)
class Plan:
    """All runs of an experiment, their resources, and the paths of store and results.

    resolved: the settings with all defaults, from which jobs compose runs.
    """

    request: Request
    runs: tuple[PlannedRun, ...]
    store: Path
    out: Path
    cpus_per_run: int
    resources: Resources
    resolved: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The path of plan.json."""
        return self.out / files.PLAN

    @property
    def study(self) -> Path:
        """The path of study.json, which is for the analysis."""
        return self.out / files.STUDY

    def run(self, run_id: str) -> PlannedRun:
        """Return the run with this name. Raises UserError if the plan has no such run."""
        planned = next((run for run in self.runs if run.run_id == run_id), None)
        if planned is None:
            raise UserError(f"the plan has no run {run_id}")
        return planned

    def write(self) -> None:
        """Write plan.json."""
        content = PlanFile(
            format=2,
            request=self.request,
            runs=self.runs,
            store=os.path.relpath(self.store, self.out),
            cpus_per_run=self.cpus_per_run,
            resources=self.resources,
            resolved=dict(self.resolved),
        )
        # Keep the order of keys, because runs depend on the order of client classes in `resolved`.
        write_json(self.file, content.content(), sort_keys=False)


def read_plan(path: Path) -> Plan:
    """Read a plan. Raises UserError if the file is not a plan."""
    try:
        content = read_plan_file(path)
    except AnalysisError as error:
        raise UserError(f"{path} is not a plan: {error.message}", MAKE_ANEW) from error
    return Plan(
        request=content.request,
        runs=content.runs,
        store=store_of(path, content.store),
        out=path.parent,
        cpus_per_run=content.cpus_per_run,
        resources=content.resources,
        resolved=content.resolved,
    )


def make_plan(
    root: Path, request: Request, *, out: Path | None = None, looks: Looks | None = None
) -> Plan:
    """Build missing programs, name all runs and write plan.json and study.json.

    out: the folder for the files; by default `results/<name>`. looks: the interim analyses (looks)
    under this plan if networks are added step by step; otherwise None. study.json also lists looks
    of earlier plans of the same runs. Raises UserError for errors that can be found before a run.
    """
    for place in (root / "runs", out or root / "results"):
        # Check this before programs are built, because building may take minutes.
        require_writable(place, "let it be written, or use a checkout of your own")
    builder = open_run_builder(root, request)
    experiment = builder.experiment
    if added := builder.added_variants:
        LOG.info("note: not in %s's own list of variants: %s", experiment.name, ", ".join(added))
    if len(builder.selected) > 1 and experiment.baseline not in builder.selected:
        LOG.info(
            "note: nothing is compared, because the baseline %s is not among the variants; "
            "`make compare` compares any two of them",
            experiment.baseline,
        )
    for note in (*experiment.warnings, *builder.notes):
        LOG.info("note: %s", note)
    plan = Plan(
        request=request,
        runs=tuple(_name_runs(builder, request)),
        store=root / "runs",
        out=out or root / "results" / experiment.name,
        cpus_per_run=max(
            ENGINES[builder.engine.name].cpus_per_run(
                engine_options(level.settings, builder.engine.name)
            )
            for level in experiment.levels.values()
        ),
        resources=estimate_resources(root, experiment, builder.engine.name),
        resolved=resolve_experiment(experiment),
    )
    store = Store(plan.store)
    earlier: Sequence[PlannedRun] = ()
    with contextlib.suppress(UserError):
        earlier = read_plan(plan.file).runs
    if reasons := explain_outdated_runs(earlier, plan.runs, store, builder):
        LOG.info("note: %s", reasons)
    if is_in_use(plan.out) and {run.run_id for run in earlier} != {r.run_id for r in plan.runs}:
        raise in_use_error(plan.out)
    for same in _levels_with_the_same_runs(plan.runs):
        LOG.info("note: %s have the same runs: nothing that they set makes a difference", same)
    plan.write()
    all_looks = with_earlier_looks(plan.study, store, plan.runs, looks)
    write_study(plan.study, build_study(builder, plan.runs, all_looks))
    return plan


def _levels_with_the_same_runs(runs: Sequence[PlannedRun]) -> list[str]:
    """Return each group of levels that share a run, as one string: their names joined by "and"."""
    levels: dict[str, dict[str, None]] = {}
    for run in runs:
        # Variants of one level can also share a run, if they are deployed on no host. This function
        # does not report such variants.
        levels.setdefault(run.run_id, {})[run.level] = None
    return list(dict.fromkeys(" and ".join(names) for names in levels.values() if len(names) > 1))


def _name_runs(builder: RunBuilder, request: Request) -> list[PlannedRun]:
    """Return all runs of an experiment with their names, by network, repeat, level and variant."""
    seeds = builder.experiment.seeds
    processes = min(len(seeds), len(os.sched_getaffinity(0)))
    # Generating the keys of a network's relays takes seconds, so several processes save time if at
    # least two networks have no keys yet.
    is_slow = sum(not builder.is_drawn(seed) for seed in seeds) > 1
    runs = len(builder.experiment.replicates) * len(builder.experiment.levels)
    if processes == 1 or not (is_slow or runs * len(builder.selected) >= MIN_CONCURRENT_RUNS):
        found = [_name_runs_of_seed(builder, seed) for seed in seeds]
    else:
        found = _name_concurrently(builder.root, request, seeds, processes)
    return [run for runs_of_seed in found for run in runs_of_seed]


def _name_runs_of_seed(builder: RunBuilder, seed: int) -> list[PlannedRun]:
    return [
        PlannedRun(
            builder.compose(level, variant, seed, repeat).run_id(builder.programs, builder.engine),
            level,
            variant,
            seed,
            repeat,
        )
        for repeat in range(1, builder.experiment.repeats + 1)
        for level in builder.experiment.levels
        for variant in builder.selected
    ]


def _name_concurrently(
    root: Path, request: Request, seeds: Sequence[int], processes: int
) -> list[list[PlannedRun]]:
    """Return the runs of each seed, which child processes name.

    The child processes end if this process ends. Raises UserError if one of them was killed.
    """
    # In Python 3.11, starting the resource tracker unblocks SIGINT, so start it before SIGINT is
    # blocked.
    resource_tracker.ensure_running()
    # fork() is not used because this process may have threads.
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, _open_builder, (root, request)) as pool:
        try:
            # The child processes inherit the signal mask, in which SIGINT is blocked. Otherwise, at
            # Ctrl-C, a terminal would send SIGINT to all processes, and each would print a
            # traceback.
            with interrupts_deferred():
                mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                # `map` is not used, because it cancels the remaining results after an error. This
                # can make Python 3.11 fail at the end of the `with` block.
                results = [pool.submit(_name_with_opened_builder, seed) for seed in seeds]
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return [result.result() for result in results]
        except BrokenProcessPool as error:
            raise UserError(
                "a process that named runs was killed, probably because memory ran out",
                "start the same command again",
            ) from error
        except BaseException:
            for child in active_children():
                child.terminate()
            raise


_builder: RunBuilder | None = None
"""The run builder in a child process that names runs (see `_name_concurrently`)."""


def _open_builder(root: Path, request: Request) -> None:
    global _builder
    exit_with_parent()
    _builder = open_run_builder(root, request)


def _name_with_opened_builder(seed: int) -> list[PlannedRun]:
    assert _builder is not None
    return _name_runs_of_seed(_builder, seed)
