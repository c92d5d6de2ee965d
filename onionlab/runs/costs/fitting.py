"""The coefficients of the cost model, from measured runs.

    python -m onionlab.runs.costs.fitting

writes configs/costs/model.json from configs/costs/training.csv, and prints how it does on the runs
of held-out.csv and full-size.csv. Each machine of training has a factor of its own besides what its
measures tell, and coefficients are for the mean of them. They minimise the sum of squares of the
logarithms of what was taken to what is told, and are not negative (each step: C. L. Lawson,
R. J. Hanson, Solving Least Squares Problems, 1974, chapter 23). A range is two deviations of what
the model missed where each level of an experiment in turn, at all its scales, was left out of the
fit.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from analysis.errors import AnalysisError
from analysis.formats.json_files import write_json
from onionlab.paths import code_root
from onionlab.runs.costs.calibration import MEASURES, Calibration, median_of
from onionlab.runs.costs.features import FEATURES, Features
from onionlab.runs.costs.model import (
    CPU,
    DEVIATIONS,
    FOLDER,
    MEMORY,
    MODEL_FILE,
    OVERHEAD,
    QUANTITIES,
    CostModel,
    EngineCosts,
    Fitted,
    Miss,
    Range,
    slowness,
    terms_of,
    value_of,
)

TRAINING = f"{FOLDER}/training.csv"
HELD_OUT = f"{FOLDER}/held-out.csv"
"""Runs that say how good the model is: named before any of them was made, and never fitted."""
TRUTH = f"{FOLDER}/full-size.csv"
"""Likewise: one run at full size."""
FIRST = f"{FOLDER}/first-runs.csv"
"""Runs of `quick` on the machine of the held-out ones: the README's first command, and what
estimates of its engine are corrected by."""
SIGNIFICANT_DIGITS = 5
LOG_DIGITS = 4
MOST_STEPS = 100
TOLERANCE = 1e-9
TINY = 1e-9
"""What a fit tells at least, in seconds or bytes."""
TIMES = (CPU, OVERHEAD)

SEEDS_DEVIATION = {MEMORY: 0.08}
"""By how much runs of one kind differ from seed to seed, where that is more than what a model that
is fitted to seed 1 misses: nine runs of a tenth on Shadow took 340 to 430 MB (onionlab 0.1.0)."""

DRIFT_FACTOR = 1.2329
"""By which the measures of one machine wandered over five hours, with other work on it for most of
the time: one deviation over 27 calibrations. Runs that are made one after the other do not tell."""

MACHINE_DEVIATION = 0.22
"""On Shadow the runs of training took 0.16 more on one machine than its measures tell, and 0.16
less on the other (machines in model.json): deviation of the two, in the ratio's logarithm."""

LEVEL_SHARE = 1 / 3
"""Of what runs on Shadow are missed by with their level left out of the fit: covariance of two runs
of one level 0.016, variance 0.055. Runs of other levels of an experiment have none in common."""

BEYOND_DEVIATION = 0.16
"""At full size, about e^2.1 times the largest run of training, the logarithm of the ratio was 0.02,
0.10, 0.12 and 0.70 on four machines: root of the mean square 0.36, for each power of e a part."""

SPEED = {
    "uml": {"switch_us": 0.6, "call_us": 0.2, "aes_ns_per_byte": 0.2},
    "shadow": {"aes_ns_per_byte": 1.0},
}
"""What of a machine bears on CPU time: docs/explanation/cost.md says why."""


@dataclass(frozen=True)
class Measured:
    """One run that was made, and what it took.

    machine_name: the machine that made it;
    scale: SCALE; features: what it was; calibration: of the CPU it had, while it had it, or None
    where its times are not known; wall_s: by the clock; took: quantity -> amount, of those that
    were measured: none of a run that is still to be made.
    """

    engine: str
    experiment: str
    level: str
    variant: str
    scale: float
    machine_name: str
    features: Features
    calibration: Calibration | None
    took: dict[str, float]
    wall_s: float | None = None

    @property
    def machine(self) -> Calibration:
        """The calibration. Raises ValueError without one."""
        if self.calibration is None:
            raise ValueError(f"{self.experiment}: times without a calibration")
        return self.calibration


PLACE = ("engine", "experiment", "level", "variant", "scale")
KEYS = (*PLACE, "machine_name")
COLUMNS = (*KEYS, *MEASURES, *FEATURES, "wall_s", *QUANTITIES)


def read_measured(path: Path) -> list[Measured]:
    """Read a table of measured runs. Raises AnalysisError where it is none."""
    with path.open(newline="", encoding="utf-8") as lines:
        table = csv.DictReader(lines)
        if tuple(table.fieldnames or ()) != COLUMNS:
            raise AnalysisError(f"{path}: expected the columns {', '.join(COLUMNS)}")
        return [_measured(path, number, row) for number, row in enumerate(table, 2)]


def _measured(path: Path, number: int, row: dict[str, str]) -> Measured:
    try:
        return Measured(
            **{name: row[name] for name in KEYS if name != "scale"},
            scale=float(row["scale"]),
            features=Features(**{name: float(row[name] or 0) for name in FEATURES}),
            calibration=_calibration(row),
            took={name: float(row[name]) for name in QUANTITIES if row[name]},
            wall_s=float(row["wall_s"]) if row["wall_s"] else None,
        )
    except (ValueError, TypeError) as error:
        raise AnalysisError(f"{path}:{number}: {error}") from error


def _calibration(row: dict[str, str]) -> Calibration | None:
    if not any(row[name] for name in (*MEASURES, *TIMES)):
        return None
    return Calibration(**{name: float(row[name]) for name in MEASURES})


def fit(runs: Sequence[Measured]) -> CostModel:
    """Fit the model to measured runs."""
    machines = [run.calibration for run in runs if run.calibration is not None]
    middle = median_of(machines)
    reference = Calibration(**{name: _rounded(getattr(middle, name)) for name in MEASURES})
    engines = {}
    for engine, speed in SPEED.items():
        own = [run for run in runs if run.engine == engine]
        fits = {
            quantity: _fit_quantity(engine, quantity, own, speed, reference)
            for quantity in QUANTITIES
        }
        engines[engine] = EngineCosts(
            speed=speed,
            largest_tors=max(run.features.tors for run in own if CPU in run.took),
            machines={name: round(log, LOG_DIGITS) for name, log in fits[CPU][1].items()},
            quantities={quantity: fitted for quantity, (fitted, _) in fits.items()},
        )
    return CostModel(
        format=1,
        reference=reference,
        drift_factor=DRIFT_FACTOR,
        machine_deviation=MACHINE_DEVIATION,
        level_share=LEVEL_SHARE,
        beyond_deviation=BEYOND_DEVIATION,
        engines=engines,
    )


def _fit_quantity(
    engine: str,
    quantity: str,
    runs: Sequence[Measured],
    speed: dict[str, float],
    reference: Calibration,
) -> tuple[Fitted, dict[str, float]]:
    """A quantity's coefficients, and by how much each machine took more: logarithms."""
    terms = terms_of(engine, quantity)
    measured = [run for run in runs if quantity in run.took]
    rows = [_row(terms, quantity, run, speed, reference) for run in measured]
    took = [run.took[quantity] for run in measured]
    machines = [run.machine_name if quantity in TIMES else "" for run in measured]
    misses = []
    for kind in sorted({_kind(run) for run in measured}):
        seen = [i for i, run in enumerate(measured) if _kind(run) != kind]
        coefficients, slow = _by_machine(
            [rows[i] for i in seen], [took[i] for i in seen], [machines[i] for i in seen]
        )
        misses += [
            _log_ratio(rows[i], took[i], coefficients) - slow.get(machines[i], 0.0)
            for i, run in enumerate(measured)
            if _kind(run) == kind
        ]
    coefficients, slow = _by_machine(rows, took, machines)
    missed = math.sqrt(statistics.fmean(miss**2 for miss in misses))
    deviation = math.hypot(missed, SEEDS_DEVIATION.get(quantity, 0.0))
    fitted = Fitted(
        coefficients={
            term: _rounded(float(value)) for term, value in zip(terms, coefficients, strict=True)
        },
        deviation=_rounded(deviation),
        factor=_rounded(math.exp(DEVIATIONS * deviation)),
    )
    return fitted, slow


def _by_machine(
    rows: Sequence[Sequence[float]], took: Sequence[float], machines: Sequence[str]
) -> tuple[np.ndarray, dict[str, float]]:
    """Coefficients for a machine in the middle of those that runs were made on, and the others'.

    Coefficients and machines in turn, each with the other as it is, until neither moves.
    """
    slow = dict.fromkeys(sorted(set(machines)), 0.0)
    while True:
        factors = np.array([math.exp(slow[name]) for name in machines])
        coefficients = _least_squares(np.array(rows) * factors[:, None], took)
        found = {
            name: statistics.fmean(
                _log_ratio(row, amount, coefficients)
                for row, amount, its in zip(rows, took, machines, strict=True)
                if its == name
            )
            for name in slow
        }
        middle = statistics.fmean(found.values())
        moved = max(abs(found[name] - middle - slow[name]) for name in slow)
        slow = {name: log - middle for name, log in found.items()}
        if moved < 10**-LOG_DIGITS:
            return coefficients, slow


def _log_ratio(row: Sequence[float], amount: float, coefficients: np.ndarray) -> float:
    return math.log(amount / max(float(np.dot(row, coefficients)), TINY))


def _kind(run: Measured) -> tuple[str, str]:
    """What is left out of a fit together: a level of an experiment, at any scale."""
    return run.experiment, run.level


def _row(
    terms: Sequence[str],
    quantity: str,
    run: Measured,
    speed: dict[str, float],
    reference: Calibration,
) -> list[float]:
    """What each coefficient is multiplied by to make what the run took."""
    slow = slowness(speed, run.machine, reference) if quantity in TIMES else 1.0
    return [slow * value_of(run.features, term) for term in terms]


def _least_squares(rows: Sequence[Sequence[float]], took: Sequence[float]) -> np.ndarray:
    """Coefficients, not negative, that minimise the squares of the ratios' logarithms.

    Gauss and Newton's steps, each a linear problem, from the least squares of relative errors:
    these alone take half for a smaller error than double, and estimates come out low.
    """
    matrix, amounts = np.array(rows), np.array(took)
    # Terms differ by nine orders of magnitude.
    sizes = np.maximum(np.abs(matrix / amounts[:, None]).max(axis=0), 1e-300)
    matrix = matrix / sizes
    scaled, _ = nnls(matrix / amounts[:, None], np.ones(len(amounts)))
    for step in range(MOST_STEPS):
        told = np.maximum(matrix @ scaled, TINY)
        better, _ = nnls(matrix / told[:, None], 1 - np.log(told / amounts))
        if np.allclose(better, scaled, rtol=TOLERANCE, atol=0.0):
            break
        # Halved at last, where it goes to and fro.
        scaled = better if step < MOST_STEPS // 2 else (scaled + better) / 2
    return np.asarray(scaled / sizes)


def _rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def columns_of(run: Measured) -> dict[str, object]:
    """A line of a table of measured runs."""
    return (
        {name: getattr(run, name) for name in KEYS}
        | {name: getattr(run.calibration, name, "") for name in MEASURES}
        | {name: getattr(run.features, name) for name in FEATURES}
        | {"wall_s": "" if run.wall_s is None else run.wall_s}
        | {name: run.took.get(name, "") for name in QUANTITIES}
    )


def misses(model: CostModel, engine: str, made: Iterable[Measured]) -> list[Miss]:
    """By how much an engine's runs were missed."""
    return [
        Miss(
            (run.experiment, run.level),
            run.features.tors,
            math.log(run.took[CPU] / model.time(engine, CPU, run.features, run.machine).middle),
        )
        for run in made
        if run.engine == engine and CPU in run.took
    ]


def told(model: CostModel, run: Measured, made: Iterable[Measured]) -> Range:
    """What an estimate says of a run's CPU time, in seconds, where others were made before."""
    place = (run.experiment, run.level)
    before = misses(model, run.engine, made)
    return model.cpu_s(run.engine, run.features, run.machine, place, before)


def held_out_table(
    model: CostModel, runs: Iterable[Measured], made: Sequence[Measured]
) -> Iterator[str]:
    """How the model does on runs, as a table in Markdown; those not made yet are left out."""
    yield "| Engine | Experiment, level | SCALE | CPU time | Estimate (range) | Ratio |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for run in runs:
        if CPU not in run.took:
            continue
        says = told(model, run, made)
        yield (
            f"| {run.engine} | `{Path(run.experiment).stem}`, {run.level} | {run.scale:g} "
            f"| {run.took[CPU]:.1f} s | {says.middle:.1f} s ({says.low:.1f} to {says.high:.1f}) "
            f"| {run.took[CPU] / says.middle:.2f} |"
        )


def main(root: Path) -> int:
    """Write the model that the training runs give, and show how it does on the others."""
    model = fit(read_measured(root / TRAINING))
    write_json(root / MODEL_FILE, model.content())
    first = read_measured(root / FIRST) if (root / FIRST).is_file() else []
    for path, made in ((HELD_OUT, first), (HELD_OUT, []), (TRUTH, [])):
        if (root / path).is_file():
            print(f"{path}, after {len(made)} other runs")
            print("\n".join(held_out_table(model, read_measured(root / path), made)))
    return 0


if __name__ == "__main__":
    sys.exit(main(code_root()))
