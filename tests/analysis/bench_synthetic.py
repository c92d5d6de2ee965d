"""Measurements of engines that are made up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from analysis.formats.bench_history import (
    BenchCase,
    BenchMeasurement,
    BenchRepetition,
    BenchSide,
)

START = datetime(2026, 1, 1, 3, 0, tzinfo=UTC)
MACHINE = {"cpu": "a CPU", "cpus": 2, "memory_bytes": 24 * 2**30}
NAMES = ("uml", "shadow")
Took = dict[str, list[tuple[float, float, int]]]


def measurement(number: int, took: Took, **more: Any) -> BenchMeasurement:
    """One of a row. took: engine -> CPU time, wall time and memory of each repetition."""
    records = more.pop("records", {})
    engines = more.pop("engines", {})
    sides = {
        name: BenchSide(
            engine={"name": name, "version": engines.get(name, "1")},
            programs={"tor": "ab"},
            records=records.get(name, "00ff"),
            repetitions=tuple(
                BenchRepetition(cpu_s=cpu, wall_s=wall, peak_memory_bytes=memory, others_cpus=0.0)
                for cpu, wall, memory in of_engine
            ),
        )
        for name, of_engine in took.items()
    }
    case = BenchCase(
        experiment="quick", scale=None, level="quick", variant="ewma", seed=1, sides=sides
    )
    speed = {"switch_us": 2.0, "call_us": 0.2, "aes_ns_per_byte": 0.5}
    content: dict[str, Any] = {
        "format": 1,
        "measured_at": (START + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "project": f"0.2.0 commit{number}",
        "machine": MACHINE,
        "host": {"kernel": "6.18"},
        "before": speed,
        "after": speed,
        "slowness": dict.fromkeys(took, 1.0),
        "marks": (),
        "cases": (case,),
    }
    return BenchMeasurement(**content | more)


def year(
    rng: np.random.Generator,
    count: int,
    *,
    repetitions: int = 3,
    within: float = 0.01,
    between: float = 0.0,
    drift: Callable[[int], float] = lambda number: 1.0,
    cost: Callable[[int], float] = lambda number: 1.0,
    names: Sequence[str] = NAMES,
) -> Iterator[BenchMeasurement]:
    """Measurements in a row.

    within, between: noise of a repetition and of a measurement's ratio, as standard deviations of
    logarithms. drift: how much slower the machine is; cost: what `uml` costs, each by the number of
    the measurement.
    """
    means = {"uml": 20.0, "shadow": 50.0}
    for number in range(count):
        own = float(np.exp(between * rng.normal()))
        took: Took = {name: [] for name in names}
        for _, name in itertools.product(range(repetitions), names):
            factor = drift(number) * (own * cost(number) if name == "uml" else 1.0)
            cpu, wall = means[name] * factor * np.exp(within * rng.normal(size=2))
            memory = int(1.3e8 * np.exp(within * rng.normal()))
            took[name].append((float(cpu), 1.02 * float(wall), memory))
        yield measurement(number, took, slowness=dict.fromkeys(names, drift(number)))
