"""An experiment with everything that composing its runs takes: variants, programs, engine."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from analysis.formats.plan_file import MAKE_ANEW, Request
from analysis.formats.study import RoleCapacity
from onionlab.engines import Engine, open_engine
from onionlab.errors import UserError
from onionlab.experiment import Experiment, Settings, load
from onionlab.experiment.ignored_options import parse_parameters
from onionlab.experiment.load import load_resolved_experiment
from onionlab.experiment.settings import TimeSettings
from onionlab.experiment.tornettools_networks import require_networks
from onionlab.network.sample import capacity_shares
from onionlab.programs.building import run_concurrently
from onionlab.programs.installed import find_oniontrace
from onionlab.programs.libtorrent.build import ensure_peers, peer_program
from onionlab.programs.libtorrent.variants import PeerVariant, load_peer_variants
from onionlab.programs.tor.build import BuiltTor, ensure_series
from onionlab.programs.tor.variants import STOCK, TorVariant, load_registry, load_variants
from onionlab.rundir import RunDirectory, compose
from onionlab.rundir.compose import mean_capacity_bit_per_s, network_request, tor_program
from onionlab.rundir.keys import has_keys
from onionlab.rundir.peers import compose_peers, verify_peer_logs
from onionlab.rundir.tornet import ONIONTRACE, compose_tornet
from onionlab.rundir.trace import traced_series
from onionlab.rundir.verify import ProofDeadlines, ProofWatch, verify_tor_logs
from onionlab.tornet.keeping import KeptTornet, load_tornet
from onionlab.yamlfile.units import nearest, show

# What Tor 0.4.9 uses where the consensus says nothing: Vegas.
TOR_CC_ALG = 2


class BuiltProgram(Protocol):
    """A program that was built for a run, and what manifests record of it."""

    @property
    def path(self) -> Path:
        """The executable."""

    @property
    def sha256(self) -> str:
        """Of the executable."""

    @property
    def version(self) -> str:
        """What it is a version of is plain from its name."""

    @property
    def source(self) -> dict[str, Any]:
        """Where it comes from; JSON."""


class Bench(ABC):
    """An experiment with everything that composing its runs takes: variants, binaries, engine.

    One subclass for each kind of experiment; `open_bench` chooses.

    Attributes:
        variants: all that the checkout has, by name.
        selected: those whose runs were asked for; needed: those, and the baseline.
        programs: what was built, by the base name of the executable, as run directories name it.
    """

    def __init__(
        self, root: Path, experiment: Experiment, request: Request, say: Callable[[str], None]
    ) -> None:
        self.root = root
        self.experiment = experiment
        self.variants: Mapping[str, Any] = known_variants(root, experiment)
        self.selected = select_variants(experiment, self.variants, request.variants, say)
        self.needed = sorted({*self.selected, experiment.baseline})
        if added := set(self.selected) - set(experiment.variants):
            experiment.require_variants([*experiment.variants, *sorted(added)])
        self.engine: Engine
        self.programs: Mapping[str, BuiltProgram] = {}

    def open(self, request: Request, say: Callable[[str], None]) -> None:
        """Make engine and programs ready. Raises UserError where something is missing."""
        # The embedded engine builds a kernel.
        self.engine, self.programs = run_concurrently(
            lambda: open_engine(
                request.engine, root=self.root, say=say, shadow=request.shadow, tgen=request.tgen
            ),
            lambda: self.build(say),
        )
        self._require_known_options()

    @property
    def _tors(self) -> list[BuiltTor]:
        return [built for built in self.programs.values() if isinstance(built, BuiltTor)]

    @functools.cached_property
    def known_options(self) -> frozenset[str] | None:
        """The torrc options that every build of Tor knows, in lower case; None without a build."""
        known = [{name.casefold() for name in tor.torrc_options} for tor in self._tors]
        return frozenset(set.intersection(*known)) if known else None

    def _require_known_options(self) -> None:
        """Raise UserError for an option or a parameter that a Tor does not know.

        Tor exits at its start because of the option and ignores the parameter. A parameter of 0
        switches off what the Tor does not have. Experiments without Tor have neither.
        """
        if not self._tors:
            return
        levels = [self.settings(level).tor for level in self.experiment.levels]
        # Levels may differ in a value: one that is not 0 suffices.
        voted = {
            name: value
            for tor in levels
            for name, value in tor.consensus_params.items()
            if value != 0
        }
        options = [
            (tor, f"tor.torrc.{group}", option)
            for tor in self._tors
            for level in levels
            for group, options in level.torrc
            for option in options
        ] + [
            (tor, f"variant {name}", option)
            for tor in self._tors
            for name in self.needed
            if tor.series == self.variants[name].series
            for option in self.variants[name].torrc
        ]
        problems = [
            f"{place}: {_describe_tor(tor)} has no option {option}"
            f"{nearest(option, tor.torrc_options, cutoff=0.8)}"
            for tor, place, option in options
            if option.casefold() not in map(str.casefold, tor.torrc_options)
        ] + [f"tor.consensus_params.{unread}" for unread in self._describe_unread(voted)]
        if problems:
            raise UserError("\n".join(dict.fromkeys(problems)), "Remove it, or use another Tor.")

    def _describe_unread(self, voted: Mapping[str, int]) -> list[str]:
        """Return name and reason of each parameter, other than 0, that no Tor of the runs reads."""
        names = {name for name, value in voted.items() if value}
        unread = [set(tor.unread_parameters(sorted(names))) for tor in self._tors]
        versions = ", ".join(sorted({_describe_tor(tor) for tor in self._tors}))
        return [
            f"{name}: {versions} does not read this parameter"
            for name in sorted(names.intersection(*unread) if unread else ())
        ]

    @abstractmethod
    def build(self, say: Callable[[str], None]) -> Mapping[str, BuiltProgram]:
        """Build what the runs take and is not built yet; the engine's own is built meanwhile."""

    def settings(self, level: str) -> Any:
        """Return one level's settings."""
        return self.experiment.levels[level].settings

    def coordinates(self, level: str) -> Mapping[str, float]:
        """Where a level lies among others, as far as a figure shows several of them."""
        return {}

    def capacities_bytes_per_s(self, level: str) -> Mapping[str, float]:
        """What the relays of each role can carry together; empty where there are none."""
        return {}

    def network_facts(self, level: str, seed: int) -> dict[str, RoleCapacity]:
        """How the capacity of each role's relays is divided in a network; empty: not known."""
        return {}

    def is_drawn(self, seed: int) -> bool:
        """Whether a seed's runs can be composed without drawing anything slowly."""
        return True

    @abstractmethod
    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
        """Compose one run."""

    @abstractmethod
    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""

    @abstractmethod
    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check the logs below `hosts`; return how many hosts proved what.

        Raises RunRefusedError.
        """

    def watch(self, hosts: Path, level: str, run: RunDirectory) -> Callable[[float], None]:
        """Return what looks at the logs below `hosts` while a run is made.

        It is called with the simulated second, and raises RunRefusedError as soon as the run cannot
        count any more. Here it sees nothing.
        """
        return lambda simulated_s: None


def _describe_tor(tor: BuiltTor) -> str:
    return f"Tor {tor.version} ({tor.series or STOCK})"


def _series_of_tor(bench: Bench) -> set[str | None]:
    """The patch series of the Tors that an experiment's runs take, traced ones included."""
    series = {bench.variants[name].series for name in bench.needed}
    if any(bench.settings(name).tor.trace.where != "none" for name in bench.experiment.levels):
        series |= {traced_series(name) for name in series}
    return series


class Workbench(Bench):
    """An experiment with Tor."""

    def build(self, say: Callable[[str], None]) -> Mapping[str, BuiltProgram]:
        """Build Tor, and libtorrent's peers where clients fetch in pieces."""
        levels = self.experiment.levels
        series = _series_of_tor(self)
        programs: dict[str, BuiltProgram] = {
            tor_program(built.series): built
            for built in ensure_series(self.root, series, say=say).values()
        }
        rules = {
            entry.request_rule
            for level in levels.values()
            for entry in level.settings.traffic.values()
            if entry.kind == "pieces"
        }
        if rules:
            peers = ensure_peers(self.root, sorted(rules), say=say)
            programs |= {peer_program(name): built for name, built in peers.items()}
        return programs

    def is_drawn(self, seed: int) -> bool:
        """Whether the authorities' keys are."""
        return has_keys(self.root, seed)

    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
        """Compose one run."""
        settings = self.settings(level)
        return compose(
            self.root,
            settings,
            variant=self.variants[variant],
            baseline=self.variants[settings.tor.baseline],
            seed=seed,
            repeat=repeat,
            engine=self.engine,
            known_options=self.known_options,
        )

    def coordinates(self, level: str) -> Mapping[str, float]:
        """Rate of the bottleneck, parallel streams and congestion control of a level."""
        return _coordinates(self.root, self.settings(level))

    def capacities_bytes_per_s(self, level: str) -> Mapping[str, float]:
        """What the relays of each role can carry together."""
        settings = self.settings(level)
        limits_bit_per_s = _limits_bit_per_s(self.root, settings)
        return {
            role: entry.count * limits_bit_per_s[role] / 8
            for role, entry in settings.network.relays.items()
            if entry.count
        }

    def network_facts(self, level: str, seed: int) -> dict[str, RoleCapacity]:
        """Return how the capacity of each role's relays is divided in a network."""
        settings = self.settings(level)
        return {
            role: RoleCapacity(limited=limited, largest=largest)
            for role, (limited, largest) in capacity_shares(
                network_request(self.root, settings), seed
            ).items()
        }

    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""
        own = {name: built.path for name, built in self.programs.items()}
        return own | self.engine.programs

    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check that every Tor ran the circuit policy that it had to."""
        return verify_tor_logs(hosts, run.expectations, load_registry(self.root).proof_prefixes)

    def watch(self, hosts: Path, level: str, run: RunDirectory) -> Callable[[float], None]:
        """Return what looks for the variants' proofs in the relays' logs."""
        due = proofs_due(self.settings(level).time)
        prefixes = load_registry(self.root).proof_prefixes
        return ProofWatch(hosts, run.expectations, prefixes, due).look


def proofs_due(time: TimeSettings) -> ProofDeadlines:
    """When relays must have logged which variant they run.

    An exit logs in which order streams resume when the first of them has had to wait: behind a link
    of 20 KiB/s that was 15 minutes after they began. So it is certain at the end alone.
    """
    return ProofDeadlines(every_relay_s=time.bootstrap_s, an_exit_s=time.stop_s)


class PeersBench(Bench):
    """An experiment with libtorrent's peers alone."""

    def build(self, say: Callable[[str], None]) -> Mapping[str, BuiltProgram]:
        """Build libtorrent's peers."""
        peers = ensure_peers(self.root, self.needed, say=say)
        return {peer_program(name): built for name, built in peers.items()}

    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
        """Compose one run."""
        return compose_peers(
            self.settings(level),
            variant=self.variants[variant],
            seed=seed,
            repeat=repeat,
            engine=self.engine,
        )

    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""
        return {name: built.path for name, built in self.programs.items()}

    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check that every peer followed the request rule that it had to."""
        return verify_peer_logs(hosts, run.expectations)


@dataclass(frozen=True)
class Installed:
    """A program that the user installed, as manifests record what runs took."""

    path: Path
    version: str
    sha256: str

    @property
    def source(self) -> dict[str, Any]:
        """Nothing more is known of it."""
        return {"kind": "installed"}


class TornetBench(Bench):
    """An experiment with imported networks of tornettools."""

    def __init__(
        self, root: Path, experiment: Experiment, request: Request, say: Callable[[str], None]
    ) -> None:
        """Raises UserError, also where a seed has no network."""
        super().__init__(root, experiment, request, say)
        require_networks(root, experiment)
        self._kept: tuple[tuple[str, int], KeptTornet] | None = None

    def build(self, say: Callable[[str], None]) -> Mapping[str, BuiltProgram]:
        """Build Tor, and find OnionTrace where the networks have it."""
        programs: dict[str, BuiltProgram] = {}
        if self._needs_oniontrace():
            tool = find_oniontrace()
            programs[ONIONTRACE] = Installed(tool.path, tool.version, tool.sha256)
        for built in ensure_series(self.root, _series_of_tor(self), say=say).values():
            programs[tor_program(built.series)] = built
        return programs

    def _needs_oniontrace(self) -> bool:
        return any(
            level.settings.network.oniontrace != "none"
            and ONIONTRACE
            in load_tornet(self.root, level.settings.network.name, seed).tornet.programs
            for level in self.experiment.levels.values()
            for seed in self.experiment.seeds
        )

    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
        """Compose one run. Raises UserError also if no Tor reads a parameter of the network."""
        settings = self.settings(level)
        run = compose_tornet(
            settings,
            self._network(settings.network.name, seed),
            variant=self.variants[variant],
            baseline=self.variants[settings.tor.baseline],
            engine=self.engine,
            repeat=repeat,
        )
        voted: dict[str, int] = {}
        for options in run.tor_options.values():
            for option, setting in options.items():
                if option.casefold() == "consensusparams":
                    voted |= parse_parameters(setting.value)
        unread = self._describe_unread(voted)
        if unread:
            raise UserError(
                "\n".join(f"network {settings.network.name}: {one}" for one in unread),
                "Set tor.consensus_params, which replaces the network's, or use another Tor.",
            )
        return run

    def _network(self, name: str, seed: int) -> KeptTornet:
        """One network; the latest one stays in memory, for the next variant."""
        if self._kept is None or self._kept[0] != (name, seed):
            self._kept = (name, seed), load_tornet(self.root, name, seed)
        return self._kept[1]

    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""
        return {name: built.path for name, built in self.programs.items()} | self.engine.programs

    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check that every Tor ran the circuit policy that it had to."""
        return verify_tor_logs(hosts, run.expectations, load_registry(self.root).proof_prefixes)

    def watch(self, hosts: Path, level: str, run: RunDirectory) -> Callable[[float], None]:
        """Return what looks for the variants' proofs in the relays' logs."""
        facts, time = self.settings(level).facts, self.settings(level).time
        due = ProofDeadlines(every_relay_s=facts.bootstrap_end_s, an_exit_s=time.stop_s)
        prefixes = load_registry(self.root).proof_prefixes
        return ProofWatch(hosts, run.expectations, prefixes, due).look


def known_variants(root: Path, experiment: Experiment) -> Mapping[str, TorVariant | PeerVariant]:
    """Return all variants that the checkout has for an experiment's kind, by name."""
    if experiment.kind == "peers":
        return load_peer_variants(root)
    return load_variants(root)


def select_variants(
    experiment: Experiment,
    known: Mapping[str, object],
    asked: Sequence[str],
    say: Callable[[str], None],
) -> list[str]:
    """What is run: the experiment's own variants, or of all that there are those asked for.

    In the experiment's order; those that are not its own come last. Raises UserError for a name
    that no variant has.
    """
    own = experiment.variants
    for name in asked:
        if name not in known:
            others = [other for other in known if other not in own]
            raise UserError(
                f"there is no variant {show(name)}{nearest(name, known)}",
                f"{experiment.name} has {', '.join(own)}; to be had besides: {', '.join(others)}",
            )
    added = [name for name in dict.fromkeys(asked) if name not in own]
    if added:
        say(f"note: not in {experiment.name}'s own list of variants: {', '.join(added)}")
    return [*(name for name in own if not asked or name in asked), *added]


_BENCHES: Mapping[str | None, type[Bench]] = {
    None: Workbench,
    "peers": PeersBench,
    "tornettools": TornetBench,
}


def open_bench(
    root: Path,
    request: Request,
    say: Callable[[str], None],
    *,
    resolved: Mapping[str, Any] | None = None,
) -> Bench:
    """Return the bench of an experiment, with all programs that its runs need built.

    resolved: the experiment as its plan has it; by default its files are read again. Raises
    UserError if the experiment has errors, or a tool or a source is missing.
    """
    bench = _bench(root, request, say, resolved)
    bench.open(request, say)
    return bench


def _bench(
    root: Path,
    request: Request,
    say: Callable[[str], None],
    resolved: Mapping[str, Any] | None = None,
) -> Bench:
    if resolved:
        try:
            experiment = load_resolved_experiment(resolved)
        except (ValidationError, KeyError) as error:
            raise UserError("another version of onionlab made the plan", MAKE_ANEW) from error
    else:
        experiment = load(request.experiment, root=root).with_overrides(
            scale=request.scale, seeds=request.seeds, repeats=request.repeats
        )
    return _BENCHES[experiment.kind](root, experiment, request, say)


def _limits_bit_per_s(root: Path, settings: Settings) -> dict[str, float]:
    """Role -> what one of its relays can carry, by its link or by Tor, in the mean."""
    return {
        role: min(
            entry.bandwidth_rate_bit_per_s or math.inf,
            mean_capacity_bit_per_s(root, settings.network, entry)
            * settings.network.capacity_total_factor(role),
        )
        for role, entry in settings.network.relays.items()
        if entry.count
    }


def _coordinates(root: Path, settings: Settings) -> dict[str, float]:
    limits_bit_per_s = _limits_bit_per_s(root, settings).values()
    return {
        "bottleneck_kib_per_s": round(min(limits_bit_per_s) / 8192, 3),
        "streams": max(entry.streams for entry in settings.traffic.values()),
        "cc_alg": settings.tor.consensus_params.get("cc_alg", TOR_CC_ALG),
    }
