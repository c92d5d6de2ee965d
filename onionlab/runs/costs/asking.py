"""Which runs a command asks for, told without building anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.plan_file import Request
from onionlab.engines import ENGINES, engine_that_would_run
from onionlab.experiment import Experiment, load
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.tornettools_networks import require_networks
from onionlab.rundir.compose import engine_options
from onionlab.runs.bench import known_variants, select_variants


@dataclass(frozen=True)
class Kind:
    """Runs that differ in their network and repeat alone."""

    level: str
    variant: str


@dataclass(frozen=True)
class Asked:
    """What a request asks for.

    engine: the name of the one that would run; variants: those asked for, in order.
    """

    request: Request
    experiment: Experiment
    engine: str
    variants: tuple[str, ...]

    @property
    def kinds(self) -> list[Kind]:
        """Levels and variants, in the order in which a plan has them."""
        return [
            Kind(level, variant) for level in self.experiment.levels for variant in self.variants
        ]

    @property
    def replicates(self) -> tuple[tuple[int, int], ...]:
        """Network and repeat of each run of a kind."""
        return self.experiment.replicates

    def cpus_per_run(self, kind: Kind) -> int:
        """CPUs that a run has to itself: as the engine asks for."""
        settings = self.experiment.levels[kind.level].settings
        return ENGINES[self.engine].cpus_per_run(engine_options(settings, self.engine))

    def likeness(self, kind: Kind) -> tuple[str, ...]:
        """What two experiments' runs of one network have in common where they are the same run."""
        settings = self.experiment.levels[kind.level].settings
        own: dict[str, set[str]] = {}
        if not isinstance(settings, PeersSettings):
            # With all on the variant, the baseline is nowhere in a run.
            everywhere = settings.tor.deployment.where == "all"
            own = {"tor": {"variants", "baseline"} if everywhere else {"variants"}}
        text = settings.model_dump_json(exclude=own or {"libtorrent"})
        return self.engine, kind.variant, text


def ask(root: Path, request: Request) -> Asked:
    """Read what a request asks for. Raises UserError, as planning it would."""
    experiment = load(request.experiment, root=root).with_overrides(
        scale=request.scale, seeds=request.seeds, repeats=request.repeats
    )
    require_networks(root, experiment)
    chosen: Sequence[str] = select_variants(
        experiment, known_variants(root, experiment), request.variants, lambda line: None
    )
    engine = engine_that_would_run(
        request.engine, root=root, shadow=request.shadow, tgen=request.tgen
    )
    return Asked(request, experiment, engine, tuple(chosen))
