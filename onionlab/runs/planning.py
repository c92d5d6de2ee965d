"""From an experiment to a plan: which runs there are, by what name, and what they will need."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, resource_tracker
from pathlib import Path

from analysis.formats.plan_file import PlannedRun, Request
from analysis.formats.study import Looks, write_study
from onionlab.engines import ENGINES
from onionlab.errors import UserError
from onionlab.rundir.compose import engine_options
from onionlab.runs.bench import Bench, open_bench
from onionlab.runs.earlier_looks import with_earlier_looks
from onionlab.runs.made_again import builds_that_changed
from onionlab.runs.places import require_writable
from onionlab.runs.plan import Plan, read_plan, write_plan
from onionlab.runs.resources import estimate_resources
from onionlab.runs.results_lock import exit_with_parent, in_use_error, is_in_use
from onionlab.runs.store import Store
from onionlab.runs.study_file import study_of

SIDE_BY_SIDE_RUNS = 6
"""From so many runs on, a second process composes them faster than it takes to start, though all
keys are there."""


def make_plan(
    root: Path,
    request: Request,
    say: Callable[[str], None],
    *,
    out: Path | None = None,
    looks: Looks | None = None,
) -> Plan:
    """Build what is missing, name all runs and write plan.json and study.json.

    out: where they go; by default `results/<name>`. looks: when the results were looked at so far
    under this plan, where seeds are added until they suffice; what an earlier plan of the same runs
    looked at is added. Raises UserError for everything that can be known
    before a run starts.
    """
    for place in (root / "runs", out or root / "results"):
        # Before programs are built, which may take minutes.
        require_writable(place, "let it be written, or use a checkout of your own")
    bench = open_bench(root, request, say)
    experiment = bench.experiment
    for warning in experiment.warnings:
        say(f"note: {warning}")
    plan = Plan(
        request=request,
        runs=tuple(_name_runs(bench, request)),
        store=root / "runs",
        out=out or root / "results" / experiment.name,
        cpus_per_run=max(
            ENGINES[bench.engine.name].cpus_per_run(
                engine_options(level.settings, bench.engine.name)
            )
            for level in experiment.levels.values()
        ),
        resources=estimate_resources(root, experiment, bench.engine.name),
        resolved=experiment.resolved,
    )
    again = builds_that_changed(
        plan.file,
        Store(plan.store),
        plan.runs,
        lambda run: bench.compose(run.level, run.variant, run.seed, run.repeat).identity(
            bench.programs, bench.engine
        ),
    )
    if again:
        say(f"note: {again}")
    _require_nobody_elses(plan)
    for same in _levels_with_the_same_runs(plan.runs):
        say(f"note: {same} have the same runs: nothing that they set makes a difference")
    write_plan(plan)
    all_looks = with_earlier_looks(plan.study, Store(plan.store), plan.runs, looks)
    write_study(plan.study, study_of(bench, plan.runs, all_looks))
    return plan


def _levels_with_the_same_runs(runs: Sequence[PlannedRun]) -> list[str]:
    """Return the names of levels that share a run, joined for a message."""
    levels: dict[str, dict[str, None]] = {}
    for run in runs:
        # Variants of one level share a run if no host runs them.
        levels.setdefault(run.run_id, {})[run.level] = None
    return list(dict.fromkeys(" and ".join(names) for names in levels.values() if len(names) > 1))


def _require_nobody_elses(plan: Plan) -> None:
    """Raises UserError where another command makes runs of a plan that this one would replace."""
    if not is_in_use(plan.out):
        return
    with contextlib.suppress(UserError):
        if {run.run_id for run in read_plan(plan.file).runs} == {run.run_id for run in plan.runs}:
            return
    raise in_use_error(plan.out)


def _name_runs(bench: Bench, request: Request) -> list[PlannedRun]:
    """Return all runs of an experiment, by seed, repeat, level and variant."""
    seeds = bench.experiment.seeds
    processes = min(len(seeds), len(os.sched_getaffinity(0)))
    # A seed's keys take seconds to draw.
    slow = sum(not bench.is_drawn(seed) for seed in seeds) > 1
    many = len(bench.experiment.replicates) * len(_composed(bench)) >= SIDE_BY_SIDE_RUNS
    if processes == 1 or not (slow or many):
        found = [_name_runs_of_seed(bench, seed) for seed in seeds]
    else:
        found = _name_side_by_side(bench.root, request, seeds, processes)
    return [run for runs in found for run in runs]


def _name_side_by_side(
    root: Path, request: Request, seeds: Sequence[int], processes: int
) -> list[list[PlannedRun]]:
    """Each seed's runs, named by helpers, which end with this process and with its work.

    Raises UserError where a helper was killed.
    """
    # Not forked: this process may have threads.
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, _open_helper, (root, request)) as pool:
        try:
            with _started_without_interrupts():
                # Not `map`, whose answers that nobody takes are cancelled: Python 3.11 stumbles
                # over those when helpers end.
                answers = [pool.submit(_name_in_helper, seed) for seed in seeds]
            return [answer.result() for answer in answers]
        except BrokenProcessPool as error:
            raise UserError(
                "a process that named runs was killed, as the system does where memory ends",
                "the same command begins anew",
            ) from error
        except BaseException:
            # Whoever interrupts does not wait for what they are at.
            for helper in active_children():
                helper.terminate()
            raise


@contextlib.contextmanager
def _started_without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: it is for this one, which ends them.

    A terminal sends it to all of them, and each would show where it was. What comes meanwhile is
    taken at the end: a helper whose start was broken off would show that too.
    """
    # Lets interrupts through when it starts, in Python 3.11; so it is started before.
    resource_tracker.ensure_running()
    came = False

    def keep(*_: object) -> None:
        nonlocal came
        came = True

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # A thread of a library, as numpy's has them, gets what this one has blocked, and Python then
    # handles it here.
    handler = signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _composed(bench: Bench) -> list[tuple[str, str]]:
    """Return level and variant of each run of a replicate."""
    return [(level, variant) for level in bench.experiment.levels for variant in bench.selected]


def _name_runs_of_seed(bench: Bench, seed: int) -> list[PlannedRun]:
    return [
        PlannedRun(
            bench.compose(level, variant, seed, repeat).run_id(bench.programs, bench.engine),
            level,
            variant,
            seed,
            repeat,
        )
        for repeat in range(1, bench.experiment.repeats + 1)
        for level, variant in _composed(bench)
    ]


_helper: Bench | None = None
"""The bench of a process that composes runs for another one."""


def _open_helper(root: Path, request: Request) -> None:
    global _helper
    exit_with_parent()
    _helper = open_bench(root, request, lambda line: None)


def _name_in_helper(seed: int) -> list[PlannedRun]:
    assert _helper is not None
    return _name_runs_of_seed(_helper, seed)
