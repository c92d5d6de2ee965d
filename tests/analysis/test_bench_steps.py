"""Steps of what engines cost: found where they are, and none where there is no cause."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from bench_synthetic import MACHINE, measurement, year

from analysis.comparison.bench_steps import (
    MEASURES,
    CostSeries,
    incomparable,
    measurements_needed,
    series_of,
)
from analysis.formats.bench_history import BenchMeasurement
from analysis.inference.change_points import NIGHTS_ALONE


def looked_at(made: Sequence[BenchMeasurement]) -> list[CostSeries]:
    *history, now = made
    return series_of(history, now, "uml", "shadow")


def alarms(made: Sequence[BenchMeasurement]) -> list[tuple[int, str]]:
    """Number of the measurement that raised it, and of what; before 38 nothing is searched."""
    return [
        (number, one.measure)
        for number in range(30, len(made) + 1)
        for one in looked_at(made[:number])
        if one.alarms
    ]


def test_a_planted_step_is_an_alarm_once() -> None:
    made = list(
        year(np.random.default_rng(1), 50, cost=lambda number: 1.15 if number >= 42 else 1.0)
    )
    raised = alarms(made)
    # Wall and CPU time step together; memory did not.
    assert {measure for _, measure in raised} == {"cpu_s", "wall_s"}
    assert len(raised) == 2
    assert all(42 <= number <= 46 for number, _ in raised)
    (step,) = next(one for one in looked_at(made) if one.measure == "cpu_s").steps
    assert (step.last_before, step.first_after) == (made[41], made[42])
    assert step.step.after / step.step.before == pytest.approx(1.15, rel=0.02)
    assert (step.new, step.worse) == (False, True)


def test_a_step_to_a_lower_cost_is_told_and_no_alarm() -> None:
    made = list(
        year(np.random.default_rng(2), 46, cost=lambda number: 0.8 if number >= 42 else 1.0)
    )
    assert alarms(made) == []
    assert [one.measure for one in looked_at(made) if one.steps] == ["cpu_s", "wall_s"]


@pytest.mark.parametrize("between", [0.0, 0.012])
def test_without_a_step_there_is_no_alarm(between: float) -> None:
    """At most one false step a year is expected; of these, by the nights' rule two have one."""
    found = []
    for seed in range(8):
        made = list(year(np.random.default_rng(seed), 40, within=0.014, between=between))
        looks = [looked_at(made[:count]) for count in (19, 26, 33, 40)]
        found += [step for look in looks for one in look for step in one.steps]
    assert found == []


def test_a_machine_that_slows_down_slows_both_engines_down() -> None:
    def drift(number: int) -> float:
        return 1.5 if number >= 42 else 1.0

    made = list(year(np.random.default_rng(3), 46, drift=drift))
    assert alarms(made) == []
    # Of an engine alone, what the reference machine would take.
    alone = list(year(np.random.default_rng(3), 46, drift=drift, names=["uml"]))
    assert alarms(alone) == []
    assert {one.to for one in looked_at(alone)} == {None}
    told = [one.model_copy(update={"slowness": {"uml": 1.0}}) for one in alone]
    assert {measure for _, measure in alarms(told)} == {"cpu_s", "wall_s"}


def test_few_measurements_tell_nothing() -> None:
    made = list(
        year(
            np.random.default_rng(4),
            measurements_needed(3) - 1,
            cost=lambda number: 3.0 if number >= 8 else 1.0,
        )
    )
    assert [(one.searched, one.steps) for one in looked_at(made)] == [(False, ())] * 3
    assert looked_at(made[:1])[0].measurements == 1
    assert [measurements_needed(count) for count in (1, 2, 3, 21)] == [NIGHTS_ALONE, 21, 11, 2]


def test_only_what_is_alike_is_compared() -> None:
    took = {"uml": [(20.0, 20.4, 10)], "shadow": [(50.0, 51.0, 20)]}
    now = measurement(9, took)
    others = [
        measurement(0, took, records={"uml": "another"}),
        measurement(1, took, records={"shadow": "another"}),
        measurement(2, took, engines={"shadow": "2"}),
        measurement(3, took, machine=MACHINE | {"cpus": 4}),
        measurement(4, took, marks=("others had the CPU",)),
        measurement(5, {"uml": took["uml"]}),
    ]
    assert looked_at([*others, now])[0].measurements == 1
    # What is watched may be another one.
    assert looked_at([measurement(0, took, engines={"uml": "2"}), now])[0].measurements == 2
    alone = measurement(9, {"uml": took["uml"]})
    assert looked_at([*others, alone])[0].measurements == 5 - 1
    # One that does not count is no part of a search.
    marked = measurement(9, took, marks=("others had the CPU",))
    assert looked_at([*[now] * 5, marked])[0].measurements == 0


def test_other_records_are_said() -> None:
    took = {"uml": [(20.0, 20.4, 10)], "shadow": [(50.0, 51.0, 20)]}
    now = measurement(9, took)

    def why(*history: BenchMeasurement) -> list[list[str]]:
        return [words for _, _, words in incomparable(history, now, "shadow")]

    assert why() == why(measurement(1, took)) == []
    changed = measurement(1, took, records={"uml": "a"}, engines={"shadow": "2"})
    assert why(changed) == [["other records on uml", "shadow is another one"]]
    # By the last one that counts, on this machine.
    assert why(changed, measurement(2, took)) == []
    marked = measurement(2, took, marks=("busy",))
    elsewhere = measurement(3, took, machine=MACHINE | {"cpus": 4})
    assert len(why(changed, marked, elsewhere)) == 1


def test_ratios_are_those_of_neighbours_in_time() -> None:
    took = {"uml": [(20.0, 21.0, 10), (40.0, 41.0, 10)], "shadow": [(50.0, 51.0, 20)] * 2}
    cpu, _, memory = looked_at([measurement(0, took)])
    assert [one.measure for one in looked_at([measurement(0, took)])] == list(MEASURES)
    assert cpu.values == (0.4, 0.8)
    assert cpu.middle == pytest.approx(0.4 * 2**0.5)
    assert memory.values == (0.5, 0.5)
