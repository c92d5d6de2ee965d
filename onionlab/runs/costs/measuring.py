"""Make the runs that the tables of measured runs lack, and write down what they took.

    python -m onionlab.runs.costs.measuring configs/costs/held-out.csv

fills in the rows that have nothing but the names of a run: engine, experiment, level, variant and
scale; the seed is 1. Tables are written anew after each run. A run is made on one CPU, which is
measured before, every so often meanwhile, and after it. Where others took that CPU for most of the
time, the run is removed and not written down: its times are not its own.
"""

from __future__ import annotations

import csv
import os
import resource
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from analysis.formats.manifest import read_manifest
from analysis.formats.plan_file import Request
from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.runs.costs.asking import ask
from onionlab.runs.costs.calibration import MEASURES, Calibration, calibrate
from onionlab.runs.costs.features import Features, features_of
from onionlab.runs.costs.fitting import COLUMNS, Measured, columns_of, read_measured
from onionlab.runs.costs.model import CPU, DISK, MEMORY, OVERHEAD
from onionlab.runs.costs.past import disk_bytes
from onionlab.runs.plan import Plan
from onionlab.runs.planning import make_plan
from onionlab.runs.presence import presence
from onionlab.runs.store import Store

SEED = 1
BETWEEN_PROBES_S = 15.0
MOST_WALL_TO_CPU = 2.5
"""A run that takes longer by the clock had its CPU for less than two fifths of the time."""
LEAST_MEMORY_WALL_S = 20.0
"""Memory is sampled every few seconds: of a shorter run the peak is missed."""
DIGITS = 6


def measure(root: Path, run: Measured) -> Measured:
    """Make one run and return it with what it took.

    Raises UserError where it is there already, or fails.
    """
    experiment = str(root / run.experiment) if run.experiment.endswith(".yaml") else run.experiment
    request = Request(
        experiment,
        scale=None if run.scale == 1 else run.scale,
        seeds=SEED,
        variants=(run.variant,),
        engine=run.engine,
    )
    stem = Path(run.experiment).stem
    out = root / "results" / f"cost-{stem}-{run.level}-{run.scale:g}-{run.variant}-{run.engine}"
    plan = make_plan(root, request, print, out=out)
    store = Store(plan.store)
    (run_id,) = (one.run_id for one in plan.runs if one.level == run.level)
    if store.is_finished(run_id):
        raise UserError(f"{out.name}: the run is there", f"remove it: {store.run(run_id)}")
    settings = ask(root, request).experiment.levels[run.level].settings
    with _probed() as probes:
        _make(root, plan, run_id)
    before_s = _children_s()
    folder = store.run(run_id)
    _onionlab(root, "analyse", "--run-directory", str(folder))
    reading_s = _children_s() - before_s
    told = replace(run, features=_rounded(features_of(root, settings)))
    return _with_what_it_took(told, store, run_id, probes, reading_s)


def _make(root: Path, plan: Plan, run_id: str) -> None:
    with presence(plan.out):
        _onionlab(root, "run-one", "--root", str(root), "--plan", str(plan.file), "--run", run_id)


def _onionlab(root: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onionlab", *words], cwd=root, capture_output=True, text=True
    )
    if done.returncode:
        raise UserError(f"{words[0]} failed: {done.stderr.strip()}")


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _probed() -> Iterator[list[Calibration]]:
    """Measure the CPU before, during and after what is done in the block."""
    cpus = [min(os.sched_getaffinity(0))]
    found = [calibrate(cpus)]
    done = threading.Event()

    def meanwhile() -> None:
        while not done.wait(BETWEEN_PROBES_S):
            found.append(calibrate(cpus))

    thread = threading.Thread(target=meanwhile)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
    found.append(calibrate(cpus))


def _with_what_it_took(
    run: Measured, store: Store, run_id: str, probes: Sequence[Calibration], reading_s: float
) -> Measured:
    """The run with its measures; as it was, and the run removed, where others had its CPU."""
    manifest = read_manifest(store.manifest(run_id))
    wall_s, cpu_s = manifest.wall_s or 0.0, manifest.cpu_s or 0.0
    if wall_s > MOST_WALL_TO_CPU * cpu_s:
        print(f"others had the CPU: {wall_s:.0f} s by the clock for {cpu_s:.0f} s of CPU time")
        shutil.rmtree(store.run(run_id))
        return run
    composing_s = (manifest.total_wall_s or wall_s) - wall_s
    took: dict[str, float] = {
        CPU: cpu_s,
        DISK: float(disk_bytes(store.run(run_id))),
        OVERHEAD: round(composing_s + reading_s, 2),
    }
    if wall_s >= LEAST_MEMORY_WALL_S and manifest.peak_memory_bytes:
        took[MEMORY] = float(manifest.peak_memory_bytes)
    middle = {name: statistics.median(getattr(one, name) for one in probes) for name in MEASURES}
    return replace(
        run,
        calibration=Calibration(**{name: round(value, 4) for name, value in middle.items()}),
        wall_s=wall_s,
        took=took,
    )


def _rounded(features: Features) -> Features:
    return Features(
        **{name: float(f"{value:.{DIGITS}g}") for name, value in vars(features).items()}
    )


def write_measured(path: Path, runs: Sequence[Measured]) -> None:
    """Write a table of runs, measured or not."""
    with path.open("w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(columns_of(run) for run in runs)


def main(root: Path, path: Path) -> int:
    """Measure what a table lacks; returns how many runs are still to be measured."""
    runs = read_measured(path)
    for number, run in enumerate(runs):
        if run.took:
            continue
        print(f"{run.engine} {run.experiment} {run.level} {run.scale:g}", flush=True)
        try:
            runs[number] = measure(root, run)
        except UserError as error:
            print(f"error: {error}", flush=True)
        write_measured(path, runs)
    return sum(not run.took for run in runs)


if __name__ == "__main__":
    sys.exit(main(working_root(), Path(sys.argv[1])))
