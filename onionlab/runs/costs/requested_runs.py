"""Resolve a request (an experiment and its overrides) into its runs, without building anything."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.plan_file import Request
from onionlab.engines import ENGINES, resolve_engine_name
from onionlab.experiment import Experiment
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.tornettools_networks import require_networks
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

    engine: the name of the engine for the runs. variants: the requested variants, in the order of
    the plan.
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
