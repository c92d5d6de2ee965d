"""Estimate what the largest run of an experiment needs of the machine."""

from __future__ import annotations

from pathlib import Path

from analysis.formats.plan_file import Resources
from onionlab.experiment import AnySettings, Experiment, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.requested_runs import estimate_level_cost
from onionlab.runs.costs.run_cost import PEERS_PROCESSES


def estimate_resources(root: Path, experiment: Experiment, engine: str) -> Resources:
    """Return what the largest run of an experiment needs, with reserve."""
    finished = Estimator(root).finished_costs
    costs = [
        estimate_level_cost(root, name, level.settings, engine, finished)
        for name, level in experiment.levels.items()
    ]
    return Resources(
        memory_bytes=round(max(cost.memory_bytes for cost in costs)),
        disk_bytes=round(max(cost.disk_bytes for cost in costs)),
        processes=max(_count_processes(level.settings) for level in experiment.levels.values()),
    )


def _count_processes(settings: AnySettings) -> int:
    if isinstance(settings, Settings):
        # Each host except the servers has a Tor, each client and server a TGen.
        return settings.host_count + settings.client_count
    if isinstance(settings, TornetSettings):
        # Most hosts run two of Tor, TGen and OnionTrace.
        return 2 * settings.hosts + settings.tors
    return PEERS_PROCESSES
