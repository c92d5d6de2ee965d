"""Estimate what the runs of requests cost together, without building or simulating anything."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

from analysis.formats.plan_file import Request, Resources
from onionlab.engines.examination import cgroup_limit
from onionlab.experiment import AnySettings, Experiment, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.runs.costs.finished_runs import FinishedRun, find_existing_runs, find_finished_runs
from onionlab.runs.costs.requested_runs import RequestedRuns, RunKind, resolve_request
from onionlab.runs.costs.run_cost import PEERS_PROCESSES, RunCost, estimate_level_cost
from onionlab.runs.store import Store

MEMORY_SHARE = 0.9
"""Share of the available memory that runs may use."""


@dataclass(frozen=True)
class Estimate:
    """The total cost of the missing runs of some requests.

    Attributes:
        runs: Number of runs of the requests, each counted once.
        missing: Number of these runs that are not known to be in the store.
        unknown: Number of stored runs that may be requested runs. To find out, programs must be
            built or keys generated. An estimate does neither, so it counts these runs as missing.
        concurrent: Number of runs that are performed at the same time.
        cpu_s, wall_s, disk_bytes: Total cost of all missing runs.
        memory_bytes: Memory of the largest run.
        reserved_disk_bytes: Disk space of all missing runs, including a reserve.
        error: In nine of ten experiments, times differ from the estimate by at most this factor.
        sources: The origins of the estimate, such as finished runs of the same level.
        engines: Engines of the missing runs.
    """

    runs: int
    missing: int
    unknown: int
    concurrent: int
    cpu_s: float
    wall_s: float
    memory_bytes: float
    disk_bytes: float
    reserved_disk_bytes: float
    error: float
    sources: tuple[str, ...]
    engines: tuple[str, ...]


class Estimator:
    """Estimates the cost of requests from the finished runs of a store, which are read once.

    max_jobs: Maximum number of concurrent runs on a cluster; None for runs on this machine.
    """

    def __init__(self, root: Path, *, max_jobs: int | None = None) -> None:
        self.root = root
        self.max_jobs = max_jobs

    @cached_property
    def _finished(self) -> Sequence[FinishedRun]:
        return find_finished_runs(Store(self.root / "runs"))

    def estimate(self, requests: Sequence[Request], jobs: int | None = None) -> Estimate:
        """Estimate the missing runs of some requests, which one call of `make_runs` performs.

        jobs: Maximum number of concurrent runs. By default, only CPUs and memory limit this number.
        Raises UserError if an experiment is invalid.
        """
        seen = set()
        unknown = 0
        # Runs start in the order of networks, then of repeats, then of requests. The wall time
        # depends on this order.
        missing = []
        for i, requested in enumerate(resolve_request(self.root, one) for one in requests):
            existing, uncertain = find_existing_runs(self.root, requested, self._finished)
            unknown += uncertain
            for kind, cost in self.run_costs(requested).items():
                for replicate in requested.experiment.replicates:
                    run = replicate, requested.identify(kind)
                    if run not in seen and (kind, replicate) not in existing:
                        missing.append((replicate, i, requested.engine, cost))
                    seen.add(run)
        missing.sort(key=lambda run: run[:2])
        costs = [cost for *_, cost in missing]
        concurrent = self._count_concurrent(costs, jobs)
        return Estimate(
            runs=len(seen),
            missing=len(costs),
            unknown=unknown,
            concurrent=concurrent,
            cpu_s=sum(cost.expected.cpu_s for cost in costs),
            wall_s=makespan([cost.expected.wall_s for cost in costs], concurrent),
            memory_bytes=max((cost.expected.memory_bytes for cost in costs), default=0.0),
            disk_bytes=sum(cost.expected.disk_bytes for cost in costs),
            reserved_disk_bytes=sum(cost.disk_bytes for cost in costs),
            error=max((cost.error for cost in costs), default=1.0),
            sources=tuple(dict.fromkeys(cost.source for cost in costs)),
            engines=tuple(dict.fromkeys(engine for _, _, engine, _ in missing)),
        )

    def run_costs(self, requested: RequestedRuns) -> Mapping[RunKind, RunCost]:
        """Return the estimated cost of one run of each kind, even of a kind that is finished."""
        costs = self.level_costs(requested.experiment, requested.engine)
        return {kind: costs[kind.level] for kind in requested.kinds}

    def level_costs(self, experiment: Experiment, engine: str) -> Mapping[str, RunCost]:
        """Return the estimated cost of one run of each level."""
        here = [run.cost for run in self._finished if run.cost is not None]
        return {
            name: estimate_level_cost(self.root, name, level.settings, engine, here)
            for name, level in experiment.levels.items()
        }

    def _count_concurrent(self, costs: Sequence[RunCost], jobs: int | None) -> int:
        """Return the number of concurrent runs, at least 1.

        On this machine, CPUs, memory and ``jobs`` limit the number. On a cluster, `max_jobs` does.
        """
        count = max(1, len(costs))
        if self.max_jobs is not None or not costs:
            return min(self.max_jobs or 1, count)
        cpus = len(os.sched_getaffinity(0)) // max(cost.cpus for cost in costs)
        memory = available_memory_bytes() // max(cost.memory_bytes for cost in costs)
        return max(1, min(jobs or cpus, cpus, int(memory), count))


def estimate_resources(root: Path, experiment: Experiment, engine: str) -> Resources:
    """Return the resources that the largest run of an experiment needs, with a reserve."""
    costs = Estimator(root).level_costs(experiment, engine).values()
    return Resources(
        memory_bytes=round(max(cost.memory_bytes for cost in costs)),
        disk_bytes=round(max(cost.disk_bytes for cost in costs)),
        processes=max(_count_processes(level.settings) for level in experiment.levels.values()),
    )


def _count_processes(settings: AnySettings) -> int:
    if isinstance(settings, Settings):
        # Each host has a main process, which is Tor except on servers. Clients and onion services
        # have a second process. A server has one more process for each class of clients that
        # fetches in pieces.
        net = settings.network
        pieces = sum(entry.kind == "pieces" for entry in settings.traffic.values())
        others = settings.client_count + net.onion_services + pieces * net.servers.count
        return settings.host_count + others
    if isinstance(settings, TornetSettings):
        # This is an upper bound. A host with Tor has at most two other processes (TGen and
        # OnionTrace), and a host without Tor has at most two processes.
        return 2 * settings.hosts + settings.tors
    return PEERS_PROCESSES


def available_memory_bytes() -> int:
    """Return MEMORY_SHARE of the available memory, or of the container's limit if it is smaller."""
    limit = cgroup_limit("memory", "memory.max", "memory.limit_in_bytes")
    available = psutil.virtual_memory().available
    return int(MEMORY_SHARE * (available if limit is None else min(available, limit)))


def makespan(times_s: Iterable[float], slots: int) -> float:
    """Return the seconds until all jobs have ended. Jobs start in turn in the first free slot."""
    ends = [0.0] * slots
    for time_s in times_s:
        heapq.heapreplace(ends, ends[0] + time_s)
    return max(ends)
