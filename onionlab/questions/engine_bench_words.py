"""A measurement of the engines in words: a short table, and what is wrong with it or new in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from analysis.comparison.bench_steps import (
    MEASURES,
    TIMES,
    CostSeries,
    CostStep,
    incomparable,
    measurements_needed,
    values_of,
)
from analysis.formats.bench_history import BenchCase, BenchMeasurement, BenchSide
from analysis.inference.change_points import NIGHTS_ALONE
from onionlab.engines import PREFERRED
from onionlab.questions.engine_bench import Bench
from onionlab.runs.costs.words import bytes_text

SHOWN_MARKS = 5
NOT_COUNTED = "NOT COUNTED: the machine was not idle, or the runs are not alike; measure again"


def lines_of(bench: Bench) -> Iterator[str]:
    """All of it: tables, marks, what cannot be compared, steps and alarms."""
    for case in bench.measurement.cases:
        yield from _table(
            bench.measurement, case, [one for one in bench.series if one.case == case]
        )
    yield from _shown_of("made again, since disturbed:", bench.measurement.made_again)
    yield from _shown_of(NOT_COUNTED, bench.measurement.marks)
    for case, before, why in incomparable(bench.earlier, bench.measurement, PREFERRED):
        yield (
            f"{case.title}: {' and '.join(why)} than at {before.measured_at} ({before.project}); "
            "costs are not comparable with those"
        )
    yield from _steps(bench)


def _table(
    measurement: BenchMeasurement, case: BenchCase, series: Sequence[CostSeries]
) -> Iterator[str]:
    """What each side took in the mean, and the ratio or the reference machine's seconds.

    Ratios to sides that the series are not of stand behind that.
    """
    first = series[0]
    last = f"{first.of} / {first.to}" if first.to else "on the reference machine"
    others = [side for side in case.sides if side not in (first.of, first.to)]
    rows = [("", *case.sides, last, *(f"{first.of} / {other}" for other in others))]
    for one in series:
        shown = one.measure if one.to is None else ""
        took = [_amount(one.measure, _mean(side, one.measure)) for side in case.sides.values()]
        ratios = [
            _spread(values_of(measurement, case, one.measure, one.of, other), "")
            for other in others
        ]
        rows.append((MEASURES[one.measure], *took, _spread(one.values, shown), *ratios))
    count = len(next(iter(case.sides.values())).repetitions)
    yield f"{case.title}: mean of {count} {'repetition' if count == 1 else 'repetitions'}"
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()


def _mean(side: BenchSide, measure: str) -> float:
    values = [float(getattr(one, measure)) for one in side.repetitions]
    return sum(values) / len(values)


def _amount(measure: str, value: float) -> str:
    """A measure in its unit; a ratio without a measure."""
    if not measure:
        return f"{value:.3f}"
    return f"{value:.1f} s" if measure in TIMES else bytes_text(value)


def _spread(values: Sequence[float], measure: str) -> str:
    """The geometric mean with the least and the largest value."""
    middle = _amount(measure, geometric_mean(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({_amount(measure, min(values))} to {_amount(measure, max(values))})"


def _shown_of(title: str, lines: Sequence[str]) -> Iterator[str]:
    """The first lines below a title; nothing without lines."""
    if not lines:
        return
    yield title
    for line in lines[:SHOWN_MARKS]:
        yield f"  {line}"
    if len(lines) > SHOWN_MARKS:
        yield f"  and {len(lines) - SHOWN_MARKS} more"


def _steps(bench: Bench) -> Iterator[str]:
    if bench.measurement.marks:
        yield "steps: not looked for with this measurement"
        return
    for one in bench.series:
        for step in one.steps:
            yield _step(one, step)
    if not any(one.searched for one in bench.series):
        have = max((one.measurements for one in bench.series), default=0)
        yield (
            f"steps: cannot be told yet: {have} measurements that can be compared, "
            f"{_needed(bench)} are needed"
        )
        return
    new = sum(step.new for one in bench.series for step in one.steps)
    blind = sum(not one.searched for one in bench.series)
    yield (
        f"steps: {new} new ones in {len(bench.series)} series"
        + (f", of which {blind} cannot be searched yet" if blind else "")
    )


def _needed(bench: Bench) -> str:
    repetitions = min(len(one.values) for one in bench.series)
    least = measurements_needed(repetitions)
    return f"{least}" if least == NIGHTS_ALONE else f"{least} to {NIGHTS_ALONE}"


def _step(series: CostSeries, step: CostStep) -> str:
    what = f"{MEASURES[series.measure]} of {series.case.title}, {series.of}"
    what += f" to {series.to}" if series.to else ""
    measure = series.measure if series.to is None else ""
    before, after = (_amount(measure, x) for x in (step.step.before, step.step.after))
    kind = "ALARM " if step.new and step.worse else ("new: " if step.new else "known: ")
    last, first = step.last_before, step.first_after
    facts = [
        name
        for name in sorted({*last.host, *first.host})
        if last.host.get(name) != first.host.get(name)
    ]
    others = f"; also changed: {', '.join(facts)}" if facts else ""
    return (
        f"{kind}{what}: {before} -> {after} (x {step.step.after / step.step.before:.2f}) between "
        f"{last.measured_at} ({last.project}) and {first.measured_at} ({first.project}){others}"
    )
