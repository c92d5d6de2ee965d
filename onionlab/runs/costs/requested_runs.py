"""Resolve a request (an experiment and its overrides) into its runs, without building anything.

A level is one of the settings in which an experiment compares its variants.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.plan_file import Request
from onionlab.engines import ENGINES, resolve_engine_name
from onionlab.engines.base import ENDLESS_STREAM_BYTES
from onionlab.experiment import AnySettings, Experiment, Settings
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.experiment.tornettools_networks import require_networks
from onionlab.programs.tor.variants import load_variants
from onionlab.rundir.arti import EXTRA_MEMORY_BYTES
from onionlab.rundir.compose import engine_options
from onionlab.rundir.traffic import expected_endless_streams
from onionlab.runs.costs.run_cost import (
    IMPORTED,
    PEERS,
    PEERS_PROCESSES,
    TOR,
    MeasuredCost,
    RunCost,
    RunSize,
    estimate_run_cost,
)
from onionlab.runs.run_builder import load_experiment, select_variants

Replicate = tuple[int, int]
"""Number (seed) of a network, and number of a repeat on this network."""


@dataclass(frozen=True)
class RunKind:
    """The level and the variant of runs that differ only in network and repeat."""

    level: str
    variant: str


@dataclass(frozen=True)
class RequestedRuns:
    """The runs of a request.

    engine: the name of the engine that would perform the runs. variants: the requested variants, in
    the order of the plan.
    """

    request: Request
    experiment: Experiment
    engine: str
    variants: tuple[str, ...]

    @property
    def kinds(self) -> list[RunKind]:
        """The kinds of the requested runs, in the order of a plan."""
        return [RunKind(level, name) for level in self.experiment.levels for name in self.variants]

    def identify(self, kind: RunKind) -> Hashable:
        """Return a value that identifies what the runs of a kind simulate.

        If two requests give equal values, their runs on the same network and repeat are the same.
        """
        settings = self.experiment.levels[kind.level].settings
        ignored: dict[str, Any] = {"engine": ENGINES.keys() - {self.engine}}
        if isinstance(settings, PeersSettings):
            ignored["libtorrent"] = True
        else:
            # If every host runs the variant, the baseline has no effect on the run.
            everywhere = settings.tor.deployment.where == "all"
            ignored["tor"] = {"variants", "baseline"} if everywhere else {"variants"}
        return self.engine, kind.variant, settings.model_dump_json(exclude=ignored)


def resolve_request(root: Path, request: Request) -> RequestedRuns:
    """Return the runs of a request. Raises UserError if the request is invalid."""
    experiment = load_experiment(root, request)
    require_networks(root, experiment)
    variants = select_variants(root, experiment, request.variants)
    engine = resolve_engine_name(
        request.engine, root=root, shadow=request.shadow, tgen=request.tgen
    )
    return RequestedRuns(request, experiment, engine, tuple(variants))


def estimate_level_cost(
    root: Path, level: str, settings: AnySettings, engine: str, finished: Iterable[MeasuredCost]
) -> RunCost:
    """Estimate the cost of one run of a level. finished: costs of finished runs on this machine."""
    options = engine_options(settings, engine)
    unit, processes, endless_streams, arti = PEERS, PEERS_PROCESSES, 0, 0
    if isinstance(settings, Settings):
        # Every host except the servers runs Tor.
        unit, processes = TOR, settings.host_count - settings.network.servers.count
        endless_streams = expected_endless_streams(root, settings)
        variants = load_variants(root)
        if any(variants[name].client for name in settings.tor.variants):
            arti = settings.client_count
    elif isinstance(settings, TornetSettings):
        unit, processes = IMPORTED, settings.tors
    cpus = ENGINES[engine].cpus_per_run(options)
    return estimate_run_cost(
        RunSize(engine, level, unit, processes, settings.time.stop_s, cpus),
        finished,
        extra_memory_bytes=endless_streams * ENDLESS_STREAM_BYTES + arti * EXTRA_MEMORY_BYTES,
        memory_limit_bytes=options.get("memory_bytes"),
    )
