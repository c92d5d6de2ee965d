"""What the runs of some requests cost together, before anything is built or made."""

from __future__ import annotations

import contextlib
import heapq
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from analysis.formats.plan_file import Request
from onionlab.runs.costs.asking import Asked, Kind, ask
from onionlab.runs.costs.calibration import (
    Calibration,
    NoCalibrationError,
    calibrate,
    cpus_of_runs,
)
from onionlab.runs.costs.estimator import SOURCES, Estimator, RunCost
from onionlab.runs.costs.model import NOTHING, CostModel, Range, load_model
from onionlab.runs.costs.past import Finished, There, finished_runs, past_runs, runs_there
from onionlab.runs.resources import MEMORY_SHARE
from onionlab.runs.store import Store


@dataclass(frozen=True)
class ToMake:
    """Runs of one kind that are not there.

    replicates: their networks and repeats; cost: of each of them.
    """

    asked: Asked
    kind: Kind
    replicates: tuple[tuple[int, int], ...]
    cost: RunCost


@dataclass(frozen=True)
class Estimate:
    """What some requests cost together.

    Attributes:
        runs: All that are asked for, each once.
        there: So many of them are in the store.
        assumed: So many of these were not compared to the last byte.
        unknown: So many runs of the store cannot be compared before programs are built; they are
            counted as not there.
        to_make: The others, by kind.
        side_by_side: Runs at a time.
        cpu_s, wall_s, disk_bytes: Of all runs to make.
        memory_bytes: Of the largest run.
        memory_together_bytes: Of as many of the largest runs as go side by side.
        calibration: Of this machine; None where it could not be measured.
    """

    runs: int
    there: int
    assumed: int
    unknown: int
    to_make: tuple[ToMake, ...]
    side_by_side: int
    cpu_s: Range
    wall_s: Range
    memory_bytes: Range
    disk_bytes: Range
    calibration: Calibration | None

    @property
    def missing(self) -> int:
        """Runs to make."""
        return sum(len(one.replicates) for one in self.to_make)

    @property
    def memory_together_bytes(self) -> Range:
        """What the machine needs while runs go side by side."""
        return self.memory_bytes * self.side_by_side

    @property
    def engines(self) -> list[str]:
        """The engines of the runs to make."""
        return list(dict.fromkeys(one.asked.engine for one in self.to_make))

    @property
    def sources(self) -> list[str]:
        """Where the figures come from, of most runs first."""
        counts = Counter[str]()
        for one in self.to_make:
            counts[one.cost.source] += len(one.replicates)
        return sorted(counts, key=lambda source: (-counts[source], SOURCES.index(source)))


class Costs:
    """This machine, its store and the model: everything that estimates are made from.

    It is read once, and can answer several requests.
    """

    def __init__(
        self, root: Path, calibration: Calibration | None = None, *, at_once: int | None = None
    ) -> None:
        """Read what there is.

        calibration: of this machine, measured when it is first needed. at_once: so many runs go
        side by side, whatever this machine has: others make them.
        """
        self.root = root
        self.at_once = at_once
        self.model: CostModel = load_model(root)
        self.calibration = calibration
        self._finished = finished_runs(Store(root / "runs"))
        self._past = list(past_runs(root, self._finished))
        self._estimator: Estimator | None = None

    def estimate(self, requests: Sequence[Request], jobs: int | None = None) -> Estimate:
        """Estimate the runs of some requests that are not there, made together as `make_runs` does.

        jobs: simulations side by side, by default as many as there are CPUs for. Builds nothing.
        Raises UserError where an experiment is wrong, as planning it would.
        """
        asked = [ask(self.root, request) for request in requests]
        there = [runs_there(self.root, one, self._finished) for one in asked]
        runs, missing = _distinct(asked, there)
        cpus = max(
            (one.cpus_per_run(kind) for one in asked for kind in one.kinds),
            default=1,
        )
        count = sum(map(len, missing.values()))
        slots = 1 if self.at_once else _slots(jobs, cpus, count)
        to_make = tuple(
            ToMake(asked[i], kind, tuple(own), self._cost(asked[i], kind, there[i], slots * cpus))
            for (i, kind), own in missing.items()
        )
        memory = _largest(one.cost.memory_bytes for one in to_make)
        slots = min(self.at_once, count or 1) if self.at_once else _fitting(slots, memory.middle)
        return Estimate(
            runs=runs,
            there=runs - sum(map(len, missing.values())),
            assumed=sum(one.assumed for one in there),
            unknown=sum(one.unknown for one in there),
            to_make=to_make,
            side_by_side=slots,
            cpu_s=_sum(one.cost.cpu_s * len(one.replicates) for one in to_make),
            wall_s=_wall(to_make, slots),
            memory_bytes=memory,
            disk_bytes=_sum(one.cost.disk_bytes * len(one.replicates) for one in to_make),
            calibration=self.calibration,
        )

    def _cost(self, asked: Asked, kind: Kind, there: There, cpus: int) -> RunCost:
        if self._estimator is None:
            if self.calibration is None:
                # Without it the reference machine stands in, and the words say so.
                with contextlib.suppress(NoCalibrationError):
                    self.calibration = calibrate(cpus_of_runs(cpus))
            self._estimator = Estimator(
                self.root, self.model, self.calibration or self.model.reference, self._past
            )
        alike: list[Finished] = [run for (one, _), run in there.runs.items() if one == kind]
        return self._estimator.cost(asked, kind, alike)


def _distinct(
    asked: Sequence[Asked], there: Sequence[There]
) -> tuple[int, dict[tuple[int, Kind], list[tuple[int, int]]]]:
    """Return how many runs there are, each once, and which are to make, by request and kind."""
    seen: set[tuple[tuple[int, int], tuple[str, ...]]] = set()
    missing: dict[tuple[int, Kind], list[tuple[int, int]]] = {}
    for i, one in enumerate(asked):
        for kind in one.kinds:
            likeness = one.likeness(kind)
            for replicate in one.replicates:
                if (replicate, likeness) in seen:
                    continue
                seen.add((replicate, likeness))
                if (kind, replicate) not in there[i].runs:
                    missing.setdefault((i, kind), []).append(replicate)
    return len(seen), missing


def _slots(jobs: int | None, cpus_per_run: int, missing: int) -> int:
    """Simulations at a time: as many as asked for, each with CPUs of its own."""
    most = max(1, len(os.sched_getaffinity(0)) // cpus_per_run)
    return max(1, min(jobs or most, most, missing or 1))


def _fitting(slots: int, memory_bytes: float) -> int:
    """As many of them as the memory holds."""
    if memory_bytes <= 0:
        return slots
    available = psutil.virtual_memory().available * MEMORY_SHARE
    return max(1, min(slots, int(available // memory_bytes)))


def _wall(to_make: Sequence[ToMake], slots: int) -> Range:
    """Return the time by the clock: each run goes where a place is free, network by network."""
    ends = []
    for end in ("low", "middle", "high"):
        in_turn = sorted(
            (replicate, i, getattr(one.cost.wall_s, end))
            for i, one in enumerate(to_make)
            for replicate in one.replicates
        )
        ends.append(makespan([wall_s for _, _, wall_s in in_turn], slots))
    # A schedule of longer runs is, now and then, the shorter one (R. L. Graham, 1969).
    low, middle, high = ends
    return Range(min(low, middle), middle, max(middle, high))


def makespan(times_s: Iterable[float], slots: int) -> float:
    """When the last of some works ends, of which each begins where a place is free, in order."""
    free = [0.0] * slots
    last = 0.0
    for time_s in times_s:
        end = heapq.heappop(free) + time_s
        last = max(last, end)
        heapq.heappush(free, end)
    return last


def _sum(ranges: Iterable[Range]) -> Range:
    return sum(ranges, NOTHING)


def _largest(ranges: Iterable[Range]) -> Range:
    return max(ranges, key=lambda one: one.middle, default=NOTHING)


def costs_of_runs(root: Path, request: Request) -> Mapping[Kind, RunCost]:
    """What each run of a request takes, whether it is there or not, by level and variant.

    For whoever has to say it before a run starts. Raises UserError as `Costs.estimate`.
    """
    costs = Costs(root)
    asked = ask(root, request)
    there = runs_there(root, asked, costs._finished)
    return {kind: costs._cost(asked, kind, there, 1) for kind in asked.kinds}
