"""Make the runs that the tables of measured runs lack, and write down what they took.

    python -m onionlab.runs.costs.measuring configs/costs/held-out.csv

fills in the rows that have nothing but the names of a run: engine, experiment, level, variant and
scale; the seed is 1. Tables are written anew after each run. Runs are made side by side, one on
each CPU that this process may use (`taskset -c 0` gives it one), as an experiment makes them, the
long ones first. The CPUs are measured before and after all of it, with no run on them. Where others
took a run's CPU for most of the time, it is removed and not written down: its times are not its
own.
"""

from __future__ import annotations

import csv
import os
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from analysis.formats.manifest import read_manifest
from analysis.formats.plan_file import Request
from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.runs.costs.asking import ask
from onionlab.runs.costs.calibration import MEASURES, Calibration, calibrate, cpus_of_runs
from onionlab.runs.costs.features import Features, features_of
from onionlab.runs.costs.fitting import COLUMNS, Measured, columns_of, read_measured
from onionlab.runs.costs.model import CPU, DISK, MEMORY, OVERHEAD, load_model
from onionlab.runs.costs.past import disk_bytes
from onionlab.runs.host_facts import host_facts
from onionlab.runs.planning import make_plan
from onionlab.runs.presence import presence
from onionlab.runs.store import Store

SEED = 1
MOST_WALL_TO_CPU = 2.5
"""A run that takes longer by the clock had its CPU for less than two fifths of the time."""
LEAST_MEMORY_WALL_S = 20.0
"""Memory is sampled every few seconds: of a shorter run the peak is missed."""
DIGITS = 6


def measure(root: Path, run: Measured) -> Measured:
    """Make one run and return it with what it took, as it was where others had its CPU.

    Raises UserError where it is there already, or fails.
    """
    request = _request(root, run)
    stem = Path(run.experiment).stem
    out = root / "results" / f"cost-{stem}-{run.level}-{run.scale:g}-{run.variant}-{run.engine}"
    with _planning:
        plan = make_plan(root, request, print, out=out)
    store = Store(plan.store)
    (run_id,) = (one.run_id for one in plan.runs if one.level == run.level)
    if store.is_finished(run_id):
        raise UserError(f"{out.name}: the run is there", f"remove it: {store.run(run_id)}")
    with presence(plan.out):
        _onionlab(root, "run-one", "--root", str(root), "--plan", str(plan.file), "--run", run_id)
    folder = store.run(run_id)
    reading_s = _onionlab(root, "analyse", "--run-directory", str(folder))
    name = run.machine_name or str(host_facts()["cpu"])
    told = replace(run, machine_name=name, features=_rounded(_features(root, run)))
    return _with_what_it_took(told, store, run_id, reading_s)


def _request(root: Path, run: Measured) -> Request:
    return Request(
        str(root / run.experiment) if run.experiment.endswith(".yaml") else run.experiment,
        scale=None if run.scale == 1 else run.scale,
        seeds=SEED,
        variants=(run.variant,),
        engine=run.engine,
        repeats=1,
    )


def _features(root: Path, run: Measured) -> Features:
    settings = ask(root, _request(root, run)).experiment.levels[run.level].settings
    return features_of(root, settings)


_planning = threading.Lock()
"""Builds that a plan waits for are made once."""


def _onionlab(root: Path, *words: str) -> float:
    """Run a command; returns its CPU time in seconds, with that of its children."""
    command = [sys.executable, "-m", "onionlab", *words]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{words[0]} failed: {said.strip()}")
    return usage.ru_utime + usage.ru_stime


def _with_what_it_took(run: Measured, store: Store, run_id: str, reading_s: float) -> Measured:
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
    return replace(run, wall_s=wall_s, took=took)


def _between(before: Calibration, after: Calibration) -> Calibration:
    """The geometric mean of two states of a machine."""
    return Calibration(
        **{
            name: round(statistics.geometric_mean((getattr(before, name), getattr(after, name))), 4)
            for name in MEASURES
        }
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
    cpus = cpus_of_runs(len(os.sched_getaffinity(0)))
    model = load_model(root)

    def told_s(number: int) -> float:
        return model.need(runs[number].engine, CPU, _features(root, runs[number])).middle

    missing = sorted((n for n, run in enumerate(runs) if not run.took), key=told_s, reverse=True)
    writing = threading.Lock()
    before = calibrate(cpus)

    def make(number: int) -> int:
        run = runs[number]
        try:
            made = measure(root, run)
        except UserError as error:
            print(f"error: {error}", flush=True)
            return number
        with writing:
            if made.took:
                runs[number] = replace(made, calibration=before)
                print(
                    f"{run.engine} {run.experiment} {run.level}: {made.took[CPU]:.0f} s", flush=True
                )
            write_measured(path, runs)
        return number

    with ThreadPoolExecutor(len(cpus)) as pool:
        done = list(pool.map(make, missing))
    state = _between(before, calibrate(cpus))
    for number in done:
        if runs[number].took:
            runs[number] = replace(runs[number], calibration=state)
    write_measured(path, runs)
    return sum(not run.took for run in runs)


if __name__ == "__main__":
    sys.exit(main(working_root(), Path(sys.argv[1])))
