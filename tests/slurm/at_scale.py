"""How planning and submitting grow with the number of runs.

    python -m tests.slurm.at_scale 100 1000 10000

prints a table for docs/explanation/performance.md. Planned are the first so many runs of
`starvation`, 123 to a seed, in this checkout: programs and keys have to be there, or their making
is measured as well. Submitted are as many jobs through EXECUTOR=generic, each of which only says
that its run is there, so that what is left is Snakemake's, the plugin's and this project's part.
With `--slurm` they go through the Slurm of two nodes that the tests start, where each job is a
process of Snakemake's; with `--arrays` as arrays of jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

from analysis.formats.files import RECORDS
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.paths import working_root
from onionlab.runs.plan import Plan
from onionlab.runs.planning import make_plan
from onionlab.runs.store import Store
from onionlab.runs.workflow import drive, remote
from onionlab.runs.workflow.executor import GENERIC, SLURM, Executor
from onionlab.runs.workflow.job_sizes import JobSize

from .cluster import running

EXPERIMENT = "starvation"
RUNS_A_SEED = 123
MAX_JOBS = 100
# Does at once, and without Snakemake, which a node would start for it, what a job leaves: its run,
# and the file by which the plugin knows that it is done.
SUBMIT = """\
#!/bin/sh
run=$(grep -o 'runs/[0-9a-f]\\{{16\\}}/' "$1" | head -n 1 | cut -d / -f 2)
done=$(grep -o "touch [^ ]*jobfinished" "$1" | cut -d ' ' -f 2 | tr -d "'")
mkdir -p '{store}'/"$run"/{records} && echo '{{}}' >'{store}'/"$run"/manifest.json
echo '{{}}' >'{store}'/"$run"/{records}/parse.json
touch "$done"
echo 1
"""
# Stands in for Python in a job of Slurm's: the call of `run-one` that makes a run and its records.
JOB = """\
#!/bin/sh
mkdir -p '{store}'/"$9"/{records} && echo '{{}}' >'{store}'/"$9"/manifest.json
echo '{{}}' >'{store}'/"$9"/{records}/parse.json
"""


@dataclass(frozen=True)
class Took:
    """What a step took.

    wall_s: by the clock; cpu_s: its CPU time, with that of its children; memory_bytes: resident at
    the peak, of its largest process.
    """

    wall_s: float
    cpu_s: float
    memory_bytes: int


def measured(step: Callable[..., object], *words: object) -> Took:
    """Take a step in a process of its own."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_take, args=(there, step, words))
    process.start()
    there.close()
    took: Took = here.recv()
    process.join()
    return took


def _take(answer: Connection, step: Callable[..., object], words: tuple[object, ...]) -> None:
    begun_s = time.monotonic()
    step(*words)
    wall_s = time.monotonic() - begun_s
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    answer.send(
        Took(
            wall_s,
            sum(usage.ru_utime + usage.ru_stime for usage in usages),
            1024 * max(usage.ru_maxrss for usage in usages),
        )
    )


def plan(root: Path, runs: int, out: Path) -> None:
    """Plan so many runs, or a few more: whole seeds."""
    request = Request(EXPERIMENT, seeds=math.ceil(runs / RUNS_A_SEED), engine="uml")
    made = make_plan(root, request, lambda line: None, out=out)
    assert len(made.runs) >= runs


def submit(runs: int, folder: Path, executor: str, arrays: bool = False) -> None:
    """Make so many runs whose jobs do nothing, through an executor."""
    store = folder / "runs"
    store.mkdir(parents=True)
    for name, text in (("submit", SUBMIT), ("job", JOB)):
        path = folder / name
        path.write_text(text.format(store=store, records=RECORDS))
        path.chmod(0o755)
    profile = folder / "profile"
    profile.mkdir()
    (profile / "config.yaml").write_text(
        f"cluster-generic-submit-cmd: {folder}/submit\nlatency-wait: 5\n"
        if executor == GENERIC
        else "latency-wait: 5\nslurm-requeue: true\nslurm-init-seconds-before-status-checks: 5\n"
        + ("slurm-array-jobs: make\n" if arrays else "")
    )
    planned = tuple(
        PlannedRun(f"{number:016x}", "level", "variant", 1 + number // RUNS_A_SEED)
        for number in range(runs)
    )
    one = Plan(Request("one"), planned, store, folder / "results", 1, Resources(2**20, 1, 1))
    of_plans = drive._workflow_config
    with (
        mock.patch.object(
            drive,
            "_workflow_config",
            lambda *words: {**of_plans(*words), "python": str(folder / "job")},
        ),
        mock.patch.object(
            remote,
            "job_sizes",
            return_value=dict.fromkeys((run.run_id for run in planned), JobSize(1, 100, 5, 5)),
        ),
    ):
        drive.make_runs(
            folder,
            [one],
            jobs=None,
            say=lambda line: None,
            executor=Executor(executor, max_jobs=MAX_JOBS, profile=profile),
        )
    assert len(Store(store).finished_among({run.run_id for run in planned})) == runs


@contextlib.contextmanager
def _cluster(wanted: bool, folder: Path) -> Iterator[None]:
    if not wanted:
        yield
        return
    folder.mkdir()
    with running(folder):
        yield


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="+")
    parser.add_argument("--slurm", action="store_true")
    parser.add_argument("--arrays", action="store_true")
    parser.add_argument("--only", choices=("plan", "jobs"))
    asked = parser.parse_args(words)
    executor = SLURM if asked.slurm else GENERIC
    print("| Runs | Step | Wall time | CPU time | Memory |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name, _cluster(asked.slurm, Path(name) / "slurm"):
        Path(name).chmod(0o755)
        for runs in asked.runs:
            steps: list[tuple[str, Took]] = []
            if asked.only != "jobs":
                out = Path(name) / f"plan-{runs}"
                steps.append(("plan", measured(plan, working_root(), runs, out)))
            if asked.only != "plan":
                folder = Path(name) / f"runs-{runs}"
                steps.append(
                    (
                        f"jobs through {executor}",
                        measured(submit, runs, folder, executor, asked.arrays),
                    )
                )
            for step, took in steps:
                print(
                    f"| {runs:,} | {step} | {took.wall_s:.1f} s | {took.cpu_s:.1f} s "
                    f"| {took.memory_bytes / 2**20:.0f} MiB |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
