"""Estimate what the runs of requests cost together, without building or simulating anything.

The costs are numbers, and texts for people.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

from analysis.formats.plan_file import Request, Resources
from onionlab.engines.examination import cgroup_limit, format_bytes
from onionlab.experiment import AnySettings, Experiment, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.runs.costs.finished_runs import FinishedRun, find_existing_runs, find_finished_runs
from onionlab.runs.costs.requested_runs import resolve_request
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
            costs = self.level_costs(requested.experiment, requested.engine)
            for kind in requested.kinds:
                for replicate in requested.experiment.replicates:
                    run = replicate, requested.identify(kind)
                    if run not in seen and (kind, replicate) not in existing:
                        missing.append((replicate, i, requested.engine, costs[kind.level]))
                    seen.add(run)
        missing.sort(key=lambda run: run[:2])
        each = [cost for *_, cost in missing]
        concurrent = self._count_concurrent(each, jobs)
        return Estimate(
            runs=len(seen),
            missing=len(each),
            unknown=unknown,
            concurrent=concurrent,
            cpu_s=sum(cost.expected.cpu_s for cost in each),
            wall_s=makespan([cost.expected.wall_s for cost in each], concurrent),
            memory_bytes=max((cost.expected.memory_bytes for cost in each), default=0.0),
            disk_bytes=sum(cost.expected.disk_bytes for cost in each),
            reserved_disk_bytes=sum(cost.disk_bytes for cost in each),
            error=max((cost.error for cost in each), default=1.0),
            sources=tuple(dict.fromkeys(cost.source for cost in each)),
            engines=tuple(dict.fromkeys(engine for _, _, engine, _ in missing)),
        )

    def level_costs(self, experiment: Experiment, engine: str) -> Mapping[str, RunCost]:
        """Return the estimated cost of one run of each level, even if its runs are finished."""
        here = [run.cost for run in self._finished if run.cost is not None]
        return {
            name: estimate_level_cost(self.root, name, level.settings, engine, here)
            for name, level in experiment.levels.items()
        }

    def _count_concurrent(self, costs: Sequence[RunCost], jobs: int | None) -> int:
        """Return the number of concurrent runs, which only `max_jobs` limits on a cluster."""
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


def cost_text(estimate: Estimate) -> str:
    """Return an estimate as one line of text."""
    if not estimate.missing:
        runs = "the run is" if estimate.runs == 1 else f"all {estimate.runs} runs are"
        return f"none: {runs} finished"
    existing = f"{estimate.runs - estimate.missing} of {estimate.runs} exist"
    if estimate.unknown:
        existing += f", perhaps {estimate.unknown} more"
    return (
        f"{estimate.missing} {'run' if estimate.missing == 1 else 'runs'} to make ({existing}), "
        f"about {_with_range(estimate.wall_s, estimate.error)} "
        f"with {estimate.concurrent} at a time on {' and '.join(estimate.engines)}; "
        f"{format_time(estimate.cpu_s)} of CPU time, "
        f"{format_bytes(estimate.memory_bytes * estimate.concurrent)} of memory, "
        f"{format_bytes(estimate.disk_bytes)} of disk"
    )


def table_rows(estimate: Estimate) -> list[tuple[str, str]]:
    """Return the estimate as a table of two columns."""
    existing = estimate.runs - estimate.missing
    rows = [("runs", f"{estimate.runs}, of which {existing} exist")]
    if estimate.unknown:
        text = f"perhaps {estimate.unknown} more, which is known when their programs are built"
        rows.append(("", text))
    if not estimate.missing:
        return rows
    error, jobs = estimate.error, estimate.concurrent
    memory = estimate.memory_bytes
    return [
        *rows,
        ("to make", f"{estimate.missing} on {' and '.join(estimate.engines)}"),
        ("CPU time", _with_range(estimate.cpu_s, error)),
        ("wall time", f"{_with_range(estimate.wall_s, error)}, {jobs} at a time"),
        ("memory", f"{format_bytes(memory)} a run, {format_bytes(memory * jobs)} together"),
        ("disk", format_bytes(estimate.disk_bytes)),
        ("from", " and ".join(estimate.sources)),
        ("error", f"CPU time within a factor of {error:.2g} in nine of ten experiments"),
    ]


def _with_range(seconds: float, error: float) -> str:
    low, high = format_time(seconds / error), format_time(seconds * error)
    return f"{format_time(seconds)} ({low} to {high})"


def format_time(seconds: float) -> str:
    """Format a time in the largest unit in which it is at least 2."""
    for unit, factor in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * factor:
            amount = seconds / factor
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{max(seconds, 1):.0f} s"
