"""What one run costs: from finished runs of its kind, else from the model, corrected by others.

In this order: finished runs of the same experiment, scale, level, variant and engine on this
machine; the model, corrected by what it missed other finished runs of the engine by; the model
alone.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onionlab.errors import UserError
from onionlab.experiment import AnySettings, Experiment, load
from onionlab.runs.costs.asking import Asked, Kind
from onionlab.runs.costs.calibration import Calibration
from onionlab.runs.costs.features import Features, features_of
from onionlab.runs.costs.model import (
    CPU,
    DEVIATIONS,
    DISK,
    MEMORY,
    OVERHEAD,
    CostModel,
    Miss,
    Range,
    around,
)
from onionlab.runs.costs.past import Finished, Past, disk_bytes
from onionlab.runs.store import Store

SAME, CORRECTED, MODEL, STRANGE = (
    "finished runs of the same kind",
    "the model, corrected by other finished runs of the engine",
    "the model",
    "the model of another engine, because this one was not measured yet",
)
SOURCES = (SAME, CORRECTED, MODEL, STRANGE)

PARALLEL_CPU_FACTOR = 1.27
"""CPU time of a run on several CPUs to that on one (two: docs/explanation/performance.md)."""
LEAST_CPU_S = 0.01
MOST_LOOKED_AT = 8
"""Runs of a kind whose folders are measured."""


@dataclass(frozen=True)
class RunCost:
    """What one run takes.

    Attributes:
        cpu_s: CPU time of the simulation.
        wall_s: From its start to its records, with its CPUs to itself.
        memory_bytes: Private memory at its peak.
        disk_bytes: What its folder holds at the end.
        cpus: CPUs that it has to itself.
        source: One of `SOURCES`.
    """

    cpu_s: Range
    wall_s: Range
    memory_bytes: Range
    disk_bytes: Range
    cpus: int
    source: str


class Estimator:
    """Estimates runs on this machine."""

    def __init__(
        self,
        root: Path,
        model: CostModel,
        calibration: Calibration,
        past: Iterable[Past] = (),
    ) -> None:
        self._root = root
        self._model = model
        self._calibration = calibration
        self._store = Store(root / "runs")
        self._experiments: dict[tuple[str, float | None], Experiment | None] = {}
        self._past: dict[tuple[str, float, Kind, str], dict[str, Finished]] = defaultdict(dict)
        settings: dict[tuple[str, float, Kind, str], AnySettings] = {}
        for one in past:
            experiment = self._loaded(one.experiment, one.scale)
            if experiment is not None and one.kind.level in experiment.levels:
                key = (experiment.name, experiment.scale, one.kind, one.run.engine)
                settings[key] = experiment.levels[one.kind.level].settings
                self._past[key][one.run.run_id] = one.run
        self._misses: dict[str, list[Miss]] = defaultdict(list)
        for key, runs in self._past.items():
            name, _, kind, engine = key
            features = features_of(root, settings[key])
            log_ratio = self._log_ratio(engine, features, runs.values())
            if log_ratio is not None:
                miss = Miss((name, kind.level), features.tors, log_ratio)
                self._misses[engine].append(miss)

    def _loaded(self, name: str, scale: float | None) -> Experiment | None:
        """An experiment that somebody ran; None where it is gone or no longer right."""
        if (name, scale) not in self._experiments:
            try:
                found = load(name, root=self._root).with_overrides(scale=scale)
            except UserError:
                found = None
            self._experiments[name, scale] = found
        return self._experiments[name, scale]

    def _log_ratio(self, engine: str, features: Features, runs: Iterable[Finished]) -> float | None:
        """What runs of one kind took to what the model expects; None where nobody can tell."""
        took = [run.cpu_s for run in runs if run.cpu_s is not None]
        if not took:
            return None
        expected = self._model.time(engine, CPU, features, self._calibration).middle
        return statistics.fmean(map(math.log, took)) - math.log(max(expected, LEAST_CPU_S))

    def cost(self, asked: Asked, kind: Kind, there: Iterable[Finished] = ()) -> RunCost:
        """What a run of a kind takes.

        there: finished runs of the same kind that no plan may list.
        """
        engine = asked.engine
        settings = asked.experiment.levels[kind.level].settings
        features = features_of(self._root, settings)
        cpus = asked.cpus_per_run(kind)
        overhead = self._model.time(engine, OVERHEAD, features, self._calibration)
        key = (asked.experiment.name, asked.experiment.scale, kind, engine)
        runs = {
            **self._past.get(key, {}),
            **{run.run_id: run for run in there if run.is_of_this_machine},
        }
        times = [run.cpu_s for run in runs.values() if run.cpu_s is not None]
        if times:
            cpu = self._seen(times)
            memory = self._seen(
                [max(1, run.manifest.peak_memory_bytes or 0) for run in runs.values()]
            )
            folders = [self._store.run(run_id) for run_id in [*runs][:MOST_LOOKED_AT]]
            disk = self._seen([max(1, disk_bytes(folder)) for folder in folders])
            source = SAME
        else:
            misses = self._misses.get(engine, [])
            place = (asked.experiment.name, kind.level)
            cpu = self._model.cpu_s(engine, features, self._calibration, place, misses)
            known = MODEL if engine in self._model.engines else STRANGE
            source = CORRECTED if misses else known
            if cpus > 1:
                cpu = cpu * PARALLEL_CPU_FACTOR
            memory = self._model.need(engine, MEMORY, features)
            disk = self._model.need(engine, DISK, features)
        return RunCost(cpu, cpu * (1 / cpus) + overhead, memory, disk, cpus, source)

    def _seen(self, amounts: Sequence[float]) -> Range:
        """A range around finished runs; no narrower than one machine wanders."""
        logs = [math.log(amount) for amount in amounts]
        spread = statistics.stdev(logs) if len(logs) > 1 else 0.0
        wander = math.log(self._model.drift_factor)
        return around(math.exp(statistics.fmean(logs)), math.exp(DEVIATIONS * max(spread, wander)))
