"""What the largest run of an experiment needs of the machine, estimated before it starts."""

from __future__ import annotations

from pathlib import Path

from analysis.formats.plan_file import Resources
from onionlab.experiment import AnySettings, Experiment, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.runs.costs.features import features_of
from onionlab.runs.costs.model import DISK, MEMORY, CostModel, load_model

PEERS_PROCESSES = 2
MEMORY_SHARE = 0.9
"""Of the memory that is available, what runs may take."""


def estimate_resources(root: Path, experiment: Experiment, engine: str) -> Resources:
    """Estimate what the largest run of an experiment needs, with reserve: the ends of the ranges.

    Raises UserError where the cost model cannot be read.
    """
    model = load_model(root)
    levels = [
        _of_level(root, model, level.settings, engine) for level in experiment.levels.values()
    ]
    return Resources(
        memory_bytes=max(level.memory_bytes for level in levels),
        disk_bytes=max(level.disk_bytes for level in levels),
        processes=max(level.processes for level in levels),
    )


def _of_level(root: Path, model: CostModel, settings: AnySettings, engine: str) -> Resources:
    features = features_of(root, settings)
    processes = PEERS_PROCESSES
    if isinstance(settings, Settings):
        # A Tor on each host but the servers, and a TGen on each client and server.
        processes = settings.host_count + settings.client_count
    elif isinstance(settings, TornetSettings):
        # A Tor, a TGen and an OnionTrace, on most hosts two of them.
        processes = 2 * settings.hosts + settings.tors
    return Resources(
        memory_bytes=round(model.need(engine, MEMORY, features).high),
        disk_bytes=round(model.need(engine, DISK, features).high),
        processes=processes,
    )
