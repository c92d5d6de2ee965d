"""Measure what the embedded engine costs compared with Shadow, and search for changes over time.

    .venv/bin/python tools/bench_engine.py                # quick, network 1: minutes
    .venv/bin/python tools/bench_engine.py --suite long   # also swrr-5mid at a tenth of its size

Use it on an idle machine. The engines perform the same runs in turn, one at a time, so that each
ratio compares two consecutive runs. A measurement does not count if other programs used the CPU or
if the records differ between repetitions.

Each measurement is a line of bench/history.jsonl. If the machine, Shadow and the records are the
same as before, the script searches the history for step changes (docs/how-to/nightly.md), and names
the two commits between which a cost changed. The search starts after 11 to 38 measurements,
depending on their variation. The exit status is 1 if this measurement is the first to show a rise.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, Literal

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, ValidationError

from analysis.formats.files import RECORDS
from analysis.formats.manifest import identity_hash, read_manifest
from analysis.formats.plan_file import Request
from analysis.inference.change_points import (
    MINIMUM_DF,
    NIGHTS_ALONE,
    Step,
    find_steps,
    noise_of_means,
)
from onionlab.engines import AUTO, EMBEDDED, PREFERRED, PTRACE_VARIABLE, resolve_engine_name
from onionlab.errors import UserError
from onionlab.paths import build_directory, working_root
from onionlab.runs.packing import record_hashes
from onionlab.runs.plan import Plan, make_plan
from onionlab.runs.provenance import host_facts, project_name
from onionlab.runs.store import Store
from onionlab.runs.workflow.drive import make_runs

MAX_WALL_TO_CPU = 1.25
"""Maximum ratio of a run's wall time to its CPU time.

If a run exceeds it, other programs disturbed the run. On an idle machine the ratio is 1.01 to 1.05.
"""
MAX_ATTEMPTS = 3
"""Maximum number of attempts at a repetition that other programs disturb."""
FALSE_STEPS_PER_YEAR = 1.0
"""Expected number of false changes per year, if there is one measurement a day.

The number is for all costs of all cases together, as in experiments/nightly.yaml.
"""
EXCESS_LEVEL = 0.5
"""Significance level of the F test for more noise between measurements than within them.

If the test rejects, the search for changes uses the noise between measurements. Otherwise, it uses
the noise within measurements. The level of 0.5 roughly selects the larger noise. The default level
of 1% often selects the noise within measurements, which is too small, because consecutive runs are
more alike than runs on two days. At a level of 1%, 15 of 40 simulated histories had a false change.
"""
MEASURES = {"cpu_s": "CPU time", "wall_s": "wall time", "peak_memory_bytes": "peak memory"}
PTRACE = f"{EMBEDDED}-ptrace"


class Repetition(BaseModel):
    """The cost of one run."""

    cpu_s: PositiveFloat
    wall_s: PositiveFloat
    peak_memory_bytes: PositiveInt


class Side(BaseModel):
    """One engine's runs of a case.

    records: hash of the runs' tables; if the runs differ, all hashes, separated by spaces.
    """

    engine: dict[str, str]
    records: str
    repetitions: list[Repetition] = Field(min_length=1)


class Case(BaseModel):
    """One simulation, and its runs by side. A side is an engine: uml, uml-ptrace or shadow."""

    experiment: str
    variant: str
    seed: int
    scale: float | None = None
    sides: dict[str, Side] = {}

    @property
    def title(self) -> str:
        """The name of the case in messages."""
        scale = "" if self.scale is None else f" at {self.scale:g}"
        return f"{self.experiment}{scale} {self.variant} seed {self.seed}"

    @property
    def compared(self) -> list[Side]:
        """The sides whose costs are compared: the embedded engine and, if it was used, Shadow."""
        return [self.sides[name] for name in (EMBEDDED, PREFERRED) if name in self.sides]

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for cases with the same simulation, records and version of Shadow.

        The costs of such cases are comparable.
        """
        records = [side.records for side in self.compared]
        shadow = [side.engine for side in self.compared[1:]]
        return self.experiment, self.variant, self.seed, self.scale, records, shadow

    def values(self, measure: str) -> list[float]:
        """Return the embedded engine's cost in each repetition; relative to Shadow's if both ran.

        measure: a key of ``MEASURES``.
        """
        costs = [[getattr(one, measure) for one in side.repetitions] for side in self.compared]
        return [one[0] / one[1] if one[1:] else one[0] for one in zip(*costs, strict=True)]


class Measurement(BaseModel):
    """One line of the history. marks: reasons why the measurement does not count, or empty."""

    format: Literal[1] = 1
    measured_at: str
    project: str
    machine: dict[str, Any]
    marks: list[str]
    cases: list[Case]


SHORT = [Case(experiment="quick", variant="ewma", seed=1)]
SUITES: Mapping[str, list[Case]] = {
    "short": SHORT,
    "long": SHORT
    + [Case(experiment="swrr-5mid", variant="ewma", seed=s, scale=0.1) for s in (1, 2, 3)],
    "full": [Case(experiment="swrr-5mid", variant="ewma", seed=1)],
}


def plan_run(root: Path, case: Case, side: str, place: Path, args: argparse.Namespace) -> Plan:
    """Build what a run needs, and plan the run.

    The run's results go to a separate store (folder of runs), in ``place``.
    """
    request = Request(
        case.experiment,
        scale=case.scale,
        seeds=[case.seed],
        variants=(case.variant,),
        engine=PREFERRED if side == PREFERRED else EMBEDDED,
        shadow=args.shadow,
        tgen=args.tgen,
        repeats=1,
    )
    plan = make_plan(root, request, out=place / side / case.title.replace(" ", "-"))
    plan = replace(plan, store=place / "runs")
    plan.write()
    return plan


def measure_run(root: Path, plan: Plan, side: str) -> Side:
    """Perform a run, read its cost and remove the run. Raises UserError if the run fails."""
    os.environ[PTRACE_VARIABLE] = "1" if side == PTRACE else ""
    make_runs(root, [plan], 1)
    store, (run,) = Store(plan.store), plan.runs
    manifest = read_manifest(store.manifest(run.run_id))
    cost = {name: getattr(manifest, name) for name in MEASURES}
    records = identity_hash(record_hashes(store.run(run.run_id) / RECORDS))
    shutil.rmtree(store.run(run.run_id))
    engine = {name: str(value) for name, value in manifest.identity["engine"].items()}
    return Side(engine=engine, records=records, repetitions=[Repetition.model_validate(cost)])


def measure_case(
    root: Path, case: Case, plans: Mapping[str, Plan], repetitions: int
) -> tuple[Case, list[str]]:
    """Return the case with its runs, and the reasons why the runs do not count (often none).

    A disturbed repetition is rerun on all sides, so that each ratio compares consecutive runs.
    """
    turns, marks = [], []
    for _ in range(repetitions):
        for attempt in range(1, MAX_ATTEMPTS + 1):
            turn = {side: measure_run(root, plan, side) for side, plan in plans.items()}
            disturbed = [
                f"{case.title} on {side}: {cost.wall_s:.0f} s of wall time for "
                f"{cost.cpu_s:.0f} s of CPU time"
                for side, cost in ((side, one.repetitions[0]) for side, one in turn.items())
                if cost.wall_s > MAX_WALL_TO_CPU * cost.cpu_s
            ]
            if not disturbed or attempt == MAX_ATTEMPTS:
                turns.append(turn)
                marks += disturbed
                break
            print("rerun:", *disturbed, sep="\n  ", flush=True)
    sides = {}
    for side in plans:
        made = [turn[side] for turn in turns]
        sides[side] = Side(
            engine=made[0].engine,
            records=" ".join(dict.fromkeys(one.records for one in made)),
            repetitions=[one.repetitions[0] for one in made],
        )
    embedded = {one.records for side, one in sides.items() if side != PREFERRED}
    if len(embedded) > 1 or any(" " in one.records for one in sides.values()):
        marks.append(f"{case.title}: runs of one engine have different records")
    return case.model_copy(update={"sides": sides}), marks


def read_history(path: Path) -> list[Measurement]:
    """Return the measurements of all machines. Raises UserError if a line is damaged."""
    found = []
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Measurement.model_validate_json(line))
        except ValidationError as error:
            raise UserError(
                f"{path}: line {number} is not a measurement: {error.errors()[0]['msg']}",
                "correct the line, or move it to another file",
            ) from None
    return found


def search_steps(points: Sequence[Sequence[float]], false_steps: float) -> list[Step] | None:
    """Return the steps (changes) in the logarithms of a time series; None if its noise is unknown.

    Args:
        points: for each measurement, the values of its repetitions.
        false_steps: probability of any false step in a year.
    """
    # `noise_of_means` pairs the values of consecutive measurements by key. Repetitions do not form
    # such pairs, so each value has a separate key.
    keys = itertools.count()
    logs = [{next(keys): math.log(value) for value in values} for values in points]
    sd, df = noise_of_means(logs, EXCESS_LEVEL) if logs else (0.0, 0.0)
    if df < MINIMUM_DF:
        return None
    return find_steps([fmean(one.values()) for one in logs], sd, df, false_steps)


def format_changes(history: Sequence[Measurement], last: Measurement) -> Iterator[str]:
    """Yield a line for each change of each cost. The line of a new rise starts with ALARM."""
    false_steps = min(0.5, FALSE_STEPS_PER_YEAR / (len(last.cases) * len(MEASURES)))
    counted = [one for one in (*history, last) if one.machine == last.machine and not one.marks]
    for case, measure in itertools.product(last.cases, MEASURES):
        title = f"{MEASURES[measure]} of {case.title}"
        series = [
            (one, other.values(measure))
            for one in counted
            for other in one.cases
            if other.key == case.key
        ]
        values = [one for _, one in series]
        steps = search_steps(values, false_steps)
        if steps is None:
            yield (
                f"{title}: no search for changes yet: {len(series)} comparable measurements, up "
                f"to {NIGHTS_ALONE} are needed"
            )
            continue
        known = {step.index for step in search_steps(values[:-1], false_steps) or []}
        for step in steps:
            factor = math.exp(step.after - step.before)
            kind = "known" if step.index in known else "ALARM" if factor > 1 else "lower"
            around = [series[i][0] for i in (step.index - 1, step.index)]
            first, second = (f"{one.measured_at} ({one.project})" for one in around)
            yield f"{kind}: {title}: x {factor:.2f} between {first} and {second}"


def format_case(case: Case) -> Iterator[str]:
    """Yield the lines of a table: mean cost on each side, and the mean and range of the ratio."""
    has_ratio = len(case.compared) == 2
    ratio = f"{EMBEDDED} / {PREFERRED}" if has_ratio else ""
    yield f"{case.title}: mean of {len(case.values('cpu_s'))}"
    yield f"  {'':<12}{''.join(f'{side:<12}' for side in case.sides)}{ratio}".rstrip()
    for measure, label in MEASURES.items():
        scale, unit = (2**20, "MiB") if "bytes" in measure else (1, "s")
        means = [fmean(getattr(x, measure) for x in s.repetitions) for s in case.sides.values()]
        cells = "".join(f"{f'{mean / scale:.1f} {unit}':<12}" for mean in means)
        values = case.values(measure)
        spread = f"{geometric_mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
        yield f"  {label:<12}{cells}{spread if has_ratio else ''}".rstrip()


def bench(args: argparse.Namespace) -> int:
    """Measure the suite, print costs and changes, and add a line to the history.

    Returns 1 if there is an alarm, and otherwise 0. Raises UserError if the history is damaged or a
    run fails; then nothing is added to the history.
    """
    root = working_root()
    path: Path = (args.state_dir or root / "bench") / "history.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    history = read_history(path)
    sides = [PTRACE, EMBEDDED] if args.ptrace else [EMBEDDED]
    if resolve_engine_name(AUTO, root=root, shadow=args.shadow, tgen=args.tgen) == PREFERRED:
        sides.append(PREFERRED)
    else:
        print("Shadow is not installed: no ratios, and times depend on the machine's speed")
    measured_at, project = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), project_name()
    place = build_directory(root) / "bench"
    shutil.rmtree(place, ignore_errors=True)
    suite = SUITES[args.suite]
    plans = [{side: plan_run(root, case, side, place, args) for side in sides} for case in suite]
    cases: list[Case] = []
    marks: list[str] = []
    for case, of_case in zip(suite, plans, strict=True):
        measured, reasons = measure_case(root, case, of_case, args.repetitions)
        cases.append(measured)
        marks += reasons
        print("\n".join(format_case(measured)), flush=True)
    shutil.rmtree(place)
    machine = {name: host_facts()[name] for name in ("cpu", "cpus", "memory_bytes")}
    last = Measurement(
        measured_at=measured_at, project=project, machine=machine, marks=marks, cases=cases
    )
    with path.open("a") as file:
        file.write(last.model_dump_json() + "\n")
    if marks:
        print("NOT COUNTED:", *marks, sep="\n  ")
        return 0
    lines = list(format_changes(history, last))
    print(*lines, sep="\n")
    return int(any(line.startswith("ALARM") for line in lines))


def positive_number(text: str) -> int:
    """Parse a number of repetitions. Raises ValueError, which argparse reports."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 with an alarm, 2 after an error, 130 if interrupted."""
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=list(SUITES), default="short")
    parser.add_argument("--repetitions", type=positive_number, default=3, help="(default: 3)")
    parser.add_argument("--ptrace", action="store_true", help="the engine's ptrace mode as well")
    parser.add_argument("--state-dir", type=Path, help="folder of the history (default: bench/)")
    parser.add_argument("--shadow", help="path of Shadow, if it is not on the PATH")
    parser.add_argument("--tgen", help="path of TGen, if it is not on the PATH")
    try:
        return bench(parser.parse_args(arguments))
    except UserError as error:
        print(f"error: {error.message}", error.hint or "", sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: nothing was added to the history", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
