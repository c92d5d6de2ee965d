"""What a measurement of the engines says, and whether a ratio has stepped since earlier ones.

The search is that of the nights' history (:mod:`analysis.inference.change_points`): PELT on the
logarithms, and nothing before the noise is known. That is the noise from one measurement to the
next where it is larger than repetitions let expect, by however little: runs that follow each other
on one machine are more alike than those of two days.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.formats.bench_history import BenchCase, BenchMeasurement, BenchSide
from analysis.inference.change_points import (
    MINIMUM_DF,
    NIGHTS_ALONE,
    Step,
    find_steps,
    noise_of_means,
)

FALSE_STEPS_PER_YEAR = 1.0
"""Expected without a cause in all series together, if there is a measurement a day: that of
experiments/nightly.yaml."""

EXCESS_LEVEL = 0.5
"""How sure it has to be that measurements differ by more than their repetitions do. At the nights'
1%, noise of a measurement as large as that of a repetition made a false step in 15 of 40 simulated
histories of 60 measurements of three repetitions; so it does in one."""

MEASURES: Mapping[str, str] = {
    "cpu_s": "CPU time",
    "wall_s": "wall time",
    "peak_memory_bytes": "peak memory",
}
"""Key of a repetition -> what it is called. A larger one is a worse one."""

TIMES = ("cpu_s", "wall_s")
"""Measures that depend on how fast the machine is just then."""


@dataclass(frozen=True)
class CostStep:
    """A step of one series.

    Attributes:
        step: levels as geometric means, in the unit of the series.
        last_before: the measurement before the step.
        first_after: the one behind it.
        new: whether the history without its last measurement does not have it.
    """

    step: Step
    last_before: BenchMeasurement
    first_after: BenchMeasurement
    new: bool

    @property
    def worse(self) -> bool:
        """Whether it costs more since."""
        return self.step.after > self.step.before


@dataclass(frozen=True)
class CostSeries:
    """One measure of one case: a ratio of two engines, or one engine alone.

    Attributes:
        case: as it was measured now.
        measure: a key of ``MEASURES``.
        of: the engine that is watched.
        to: the engine that it is compared with; None: the reference machine's seconds, or bytes.
        values: now, one for each repetition.
        measurements: how many there are that can be compared, with this one.
        searched: whether noise is known well enough for a search.
        steps: in the order of time.
    """

    case: BenchCase
    measure: str
    of: str
    to: str | None
    values: tuple[float, ...]
    measurements: int
    searched: bool
    steps: tuple[CostStep, ...]

    @property
    def middle(self) -> float:
        """The geometric mean over repetitions."""
        return statistics.geometric_mean(self.values)

    @property
    def alarms(self) -> list[CostStep]:
        """Steps to a higher cost that this measurement is the first to show."""
        return [step for step in self.steps if step.new and step.worse]


def series_of(
    history: Sequence[BenchMeasurement], now: BenchMeasurement, of: str, to: str
) -> list[CostSeries]:
    """All series of a measurement, searched for steps.

    Args:
        history: earlier measurements, in the order of time; of any machine.
        now: the last one; one with marks is searched by nobody.
        of: name of the engine that is watched.
        to: name of the engine that it is compared with where a case has it.
    """
    count = len(now.cases) * len(MEASURES)
    share = min(0.5, FALSE_STEPS_PER_YEAR / max(1, count))
    return [
        _series(history, now, case, measure, of, to if to in case.sides else None, share)
        for case in now.cases
        for measure in MEASURES
    ]


def values_of(
    measurement: BenchMeasurement, case: BenchCase, measure: str, of: str, to: str | None
) -> list[float]:
    """One value for each repetition: a ratio of neighbours in time, or what one engine took.

    Times of one engine are those that the reference machine would take.
    """
    repetitions = case.sides[of].repetitions
    own = [float(getattr(one, measure)) for one in repetitions]
    if to is None:
        if measure not in TIMES:
            return own
        mean = measurement.slowness[of]
        return [x / (one.slowness or mean) for x, one in zip(own, repetitions, strict=True)]
    others = [float(getattr(one, measure)) for one in case.sides[to].repetitions]
    return [a / b for a, b in zip(own, others, strict=False)]


def incomparable(
    history: Sequence[BenchMeasurement], now: BenchMeasurement, to: str
) -> list[tuple[BenchCase, BenchMeasurement, list[str]]]:
    """Cases whose last measurement on this machine cannot be compared with this one, and why."""
    found = []
    for case in now.cases:
        earlier = _last(history, now, case)
        if earlier is None:
            continue
        measurement, before = earlier
        common = [name for name in case.sides if name in before.sides]
        why = [
            f"other records on {name}"
            for name in common
            if case.sides[name].records != before.sides[name].records
        ]
        if to in common and case.sides[to].engine != before.sides[to].engine:
            why.append(f"{to} is another one")
        if why:
            found.append((case, measurement, why))
    return found


def measurements_needed(repetitions: int) -> int:
    """How many measurements it takes at least before steps are looked for."""
    if repetitions < 2:
        return NIGHTS_ALONE
    return 1 + math.ceil(MINIMUM_DF / (repetitions - 1))


def _last(
    history: Sequence[BenchMeasurement], now: BenchMeasurement, case: BenchCase
) -> tuple[BenchMeasurement, BenchCase] | None:
    for measurement in reversed(history):
        if measurement.machine == now.machine and not measurement.marks:
            for other in measurement.cases:
                if other.place == case.place:
                    return measurement, other
    return None


def _series(
    history: Sequence[BenchMeasurement],
    now: BenchMeasurement,
    case: BenchCase,
    measure: str,
    of: str,
    to: str | None,
    share: float,
) -> CostSeries:
    values = values_of(now, case, measure, of, to)
    points = [
        (measurement, values_of(measurement, other, measure, of, to))
        for measurement in (*history, now)
        if measurement.machine == now.machine and not measurement.marks
        for other in measurement.cases
        if _is_comparable(other, case, of, to)
    ]
    # Without this measurement, which does not count, nothing is new.
    points = points if not now.marks else []
    steps = _steps(points, share)
    before = {id(step.first_after) for step in _steps(points[:-1], share)}
    return CostSeries(
        case,
        measure,
        of,
        to,
        tuple(values),
        len(points),
        _is_searched(points),
        tuple(
            CostStep(one.step, one.last_before, one.first_after, id(one.first_after) not in before)
            for one in steps
        ),
    )


def _is_comparable(other: BenchCase, case: BenchCase, of: str, to: str | None) -> bool:
    """Whether what it cost can be set beside what the case costs: the same runs, byte for byte."""
    sides = [of] if to is None else [of, to]
    if other.place != case.place or not all(side in other.sides for side in sides):
        return False
    same = all(_same_records(other.sides[side], case.sides[side]) for side in sides)
    return same and (to is None or other.sides[to].engine == case.sides[to].engine)


def _same_records(one: BenchSide, other: BenchSide) -> bool:
    return one.records == other.records


Points = Sequence[tuple[BenchMeasurement, Sequence[float]]]


def _nights(points: Points) -> list[dict[int, float]]:
    """As the search takes them: repetition -> logarithm.

    No repetition is that of another measurement: so their noise is the spread of each one's own.
    """
    numbers = itertools.count()
    return [{next(numbers): math.log(value) for value in values} for _, values in points]


def _is_searched(points: Points) -> bool:
    sd, df = noise_of_means(_nights(points), EXCESS_LEVEL) if points else (0.0, 0.0)
    return sd > 0 and df >= MINIMUM_DF


def _steps(points: Points, share: float) -> list[CostStep]:
    if not points:
        return []
    nights = _nights(points)
    sd, df = noise_of_means(nights, EXCESS_LEVEL)
    means = [statistics.fmean(night.values()) for night in nights]
    return [
        CostStep(
            Step(step.index, math.exp(step.before), math.exp(step.after)),
            points[step.index - 1][0],
            points[step.index][0],
            new=True,
        )
        for step in find_steps(means, sd, df, share)
    ]
