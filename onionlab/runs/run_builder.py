"""Compose the runs of an experiment from its settings, variants, programs and engine."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from analysis.formats.plan_file import MAKE_ANEW, Request
from onionlab.engines import open_engine
from onionlab.engines.base import Engine
from onionlab.errors import UserError
from onionlab.experiment import Experiment, load
from onionlab.experiment.load import load_resolved_experiment
from onionlab.experiment.tor_checks import parse_parameters
from onionlab.experiment.tornettools_networks import require_networks
from onionlab.programs.arti import ensure_arti, obtain_arti
from onionlab.programs.building import BuiltProgram, run_concurrently
from onionlab.programs.installed import ONIONTRACE, find_tool
from onionlab.programs.libtorrent.build import ensure_peers, peer_program
from onionlab.programs.libtorrent.variants import PeerVariant, load_peer_variants
from onionlab.programs.tor.build import BuiltTor, ensure_builds
from onionlab.programs.tor.variants import (
    STOCK,
    TorBuild,
    TorVariant,
    group_by_build,
    load_registry,
    load_variants,
)
from onionlab.rundir import RunDirectory, compose
from onionlab.rundir.compose import variant_program
from onionlab.rundir.keys import has_keys
from onionlab.rundir.peers import compose_peers, verify_peer_logs
from onionlab.rundir.tornet import compose_tornet
from onionlab.rundir.trace import traced_series
from onionlab.rundir.verify import ProofWatch, verify_tor_logs
from onionlab.tornet.keeping import load_tornet
from onionlab.yamlfile.units import nearest, show


def _describe_tor(tor: BuiltTor) -> str:
    commit = tor.source.get("tor", {}).get("commit", "")
    what = ", ".join(filter(None, (tor.series or STOCK, commit and f"commit {commit[:12]}")))
    return f"Tor {tor.version} ({what})"


def _names_of_effect(*votes: Mapping[str, int]) -> list[str]:
    """Return the consensus parameters that at least one vote sets to a value other than 0.

    The value 0 only disables a feature, so a Tor without the feature need not read it.
    """
    return sorted({name for voted in votes for name, value in voted.items() if value})


class RunBuilder(ABC):
    """Composes the runs of an experiment. Each kind of experiment has a subclass.

    Attributes:
        variants: All variants of the checkout, by name.
        selected: The requested variants.
        needed: The requested variants and the baseline.
        programs: The programs of the runs, by the base name of the executable.
    """

    def __init__(self, root: Path, experiment: Experiment, variants: Sequence[str]) -> None:
        """Select variants by name. Raises UserError if one of them does not exist."""
        self.root = root
        self.experiment = experiment
        self.variants: Mapping[str, Any] = known_variants(root, experiment)
        self.selected = select_variants(root, experiment, variants)
        self.needed = sorted({*self.selected, experiment.baseline})
        self.engine: Engine
        self.programs: Mapping[str, BuiltProgram] = {}

    @property
    def added_variants(self) -> list[str]:
        """The selected variants that the experiment does not list."""
        return [name for name in self.selected if name not in self.experiment.variants]

    @property
    def notes(self) -> list[str]:
        """Notes for users about the programs, each a sentence."""
        return []

    def open(self, request: Request) -> None:
        """Prepare engine and programs. Raises UserError if something is missing."""
        # Prepare both concurrently, because the embedded engine may have to build a kernel.
        self.engine, self.programs = run_concurrently(
            lambda: open_engine(
                request.engine, root=self.root, shadow=request.shadow, tgen=request.tgen
            ),
            self.build,
        )
        self._require_known_options()

    @property
    def _tors(self) -> list[BuiltTor]:
        return [built for built in self.programs.values() if isinstance(built, BuiltTor)]

    @functools.cached_property
    def known_options(self) -> frozenset[str] | None:
        """The torrc options that every built Tor knows, in lower case; None if no Tor is built."""
        known = [{name.casefold() for name in tor.torrc_options} for tor in self._tors]
        return frozenset(set.intersection(*known)) if known else None

    def _require_known_options(self) -> None:
        """Raise UserError for unknown torrc options, and consensus parameters without effect.

        Each built Tor must know all options that it gets, because Tor exits at start if an option
        is unknown. At least one built Tor must read a parameter; other builds ignore the parameter.
        Parameters with the value 0 are accepted, because they only disable a feature. Experiments
        without Tor have no options and no parameters.
        """
        if not self._tors:
            return
        problems = []
        levels = [self.settings(level).tor for level in self.experiment.levels]
        for tor in self._tors:
            known = {option.casefold() for option in tor.torrc_options}
            options = [
                (f"tor.torrc.{group}", option)
                for level in levels
                for group, options in level.torrc
                for option in options
            ] + [
                (f"variant {variant.name}", option)
                for variant in map(self.variants.__getitem__, self.needed)
                if (tor.series, tor.source_id) == (variant.series, variant.source_id)
                for option in variant.torrc
            ]
            problems += [
                f"{place}: {_describe_tor(tor)} has no option {option}"
                f"{nearest(option, tor.torrc_options, cutoff=0.8)}"
                for place, option in options
                if option.casefold() not in known
            ]
        unread = self._describe_unread(self._voted_names)
        problems += [f"tor.consensus_params.{one}" for one in unread]
        if problems:
            raise UserError("\n".join(dict.fromkeys(problems)), "Remove it, or use another Tor.")

    @property
    def _voted_names(self) -> list[str]:
        """The consensus parameters that at least one level sets to a value other than 0."""
        levels = [self.settings(level).tor for level in self.experiment.levels]
        return _names_of_effect(*(tor.consensus_params for tor in levels))

    def _describe_unread(self, voted: Collection[str]) -> list[str]:
        """Return a message for each of these consensus parameters that no Tor of the runs reads."""
        unread = [set(tor.unread_parameters(voted)) for tor in self._tors]
        versions = ", ".join(sorted({_describe_tor(tor) for tor in self._tors}))
        return [
            f"{name}: {versions} does not read this parameter"
            for name in sorted(set(voted).intersection(*unread) if unread else ())
        ]

    @abstractmethod
    def build(self) -> Mapping[str, BuiltProgram]:
        """Build the missing programs of the runs. `open` prepares the engine at the same time."""

    def settings(self, level: str) -> Any:
        """Return the settings of a level of the experiment."""
        return self.experiment.levels[level].settings

    def is_drawn(self, seed: int) -> bool:
        """Return whether the run directories of a network need no new keys, which takes seconds."""
        return True

    @abstractmethod
    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
        """Compose one run."""

    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""
        return {name: built.path for name, built in self.programs.items()}

    @abstractmethod
    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check the logs below `hosts`. Return for each proof how many hosts logged it.

        Raises RunRefusedError if the run is not valid.
        """

    def watch(self, hosts: Path, level: str, run: RunDirectory) -> Callable[[float], None]:
        """Return a function that checks the logs below `hosts` at a simulated second of a run.

        It raises RunRefusedError as soon as the run can no longer be valid.
        """
        return lambda simulated_s: None


class TorRunBuilder(RunBuilder):
    """Builds Tor, and checks after a run that every Tor ran the code of its variant."""

    def _build_tor(self) -> dict[str, BuiltProgram]:
        needed = [self.variants[name] for name in self.needed]
        wanted = group_by_build(needed)
        if any(self.settings(name).tor.trace.where != "none" for name in self.experiment.levels):
            wanted |= {
                TorBuild(traced_series(build.series), build.source): names
                for build, names in wanted.items()
            }
        builds = ensure_builds(self.root, wanted)
        self.variants = dict(self.variants) | {
            one.name: one.model_copy(update={"source_id": builds[one.build].source_id})
            for one in needed
            if one.source is not None
        }
        return {built.path.name: built for built in builds.values()}

    @property
    def notes(self) -> list[str]:
        """Notes on uncommitted changes, unread consensus parameters, and identical variants."""
        changed = []
        ignoring: dict[str, list[str]] = {}
        alike: dict[tuple[object, ...], list[str]] = {}
        voted = self._voted_names
        for name in self.needed:
            variant = self.variants[name]
            built = self.programs[variant_program(variant)]
            if "changed" in built.source["tor"]:
                changed.append(f"{name} is built with uncommitted changes of its work tree")
            unread = built.unread_parameters(voted) if voted and isinstance(built, BuiltTor) else ()
            if unread:
                ignoring.setdefault(", ".join(unread), []).append(name)
            what = (built.sha256, variant.client, *sorted(variant.torrc.items()))
            alike.setdefault(what, []).append(name)
        return [
            *changed,
            *(
                f"{names[0]} does not read {which}: it runs with its own values"
                if len(names) == 1
                else f"{' and '.join(names)} do not read {which}: they run with their own values"
                for which, names in ignoring.items()
            ),
            *(
                f"{' and '.join(names)} are the same program with the same options"
                for names in alike.values()
                if len(names) > 1
            ),
        ]

    def executables(self) -> dict[str, Path]:
        return super().executables() | self.engine.programs

    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        return verify_tor_logs(hosts, run.expectations, load_registry(self.root).proof_prefixes)

    def watch(self, hosts: Path, level: str, run: RunDirectory) -> Callable[[float], None]:
        return ProofWatch(
            hosts,
            run.expectations,
            load_registry(self.root).proof_prefixes,
            every_relay_s=self.bootstrap_end_s(level),
            an_exit_s=self.settings(level).time.stop_s,
        ).look

    @abstractmethod
    def bootstrap_end_s(self, level: str) -> float:
        """Return the simulated second by which the relays have started."""


class DrawnRunBuilder(TorRunBuilder):
    """Composes runs with Tor in networks that are drawn at random, each from its seed."""

    def build(self) -> Mapping[str, BuiltProgram]:
        """Build Tor, Arti for variants with Arti clients, and libtorrent for `pieces` clients.

        Everything that a build of Arti needs is checked before the first build starts.
        """
        clients = {one.program: one for v in self.needed if (one := self.variants[v].client)}
        sources = [obtain_arti(self.root, client) for client in clients.values()]
        programs = self._build_tor()
        programs |= {one.client.program: ensure_arti(one) for one in sources}
        rules = {
            entry.request_rule
            for level in self.experiment.levels.values()
            for entry in level.settings.traffic.values()
            if entry.kind == "pieces"
        }
        if rules:
            peers = ensure_peers(self.root, sorted(rules))
            programs |= {peer_program(name): built for name, built in peers.items()}
        return programs

    def is_drawn(self, seed: int) -> bool:
        return has_keys(self.root, seed)

    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
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

    def bootstrap_end_s(self, level: str) -> float:
        return float(self.settings(level).time.bootstrap_s)


class TornetRunBuilder(TorRunBuilder):
    """Composes the runs of an experiment with imported networks of tornettools."""

    def __init__(self, root: Path, experiment: Experiment, variants: Sequence[str]) -> None:
        super().__init__(root, experiment, variants)
        require_networks(root, experiment)
        # Cache the network that was loaded last, because the next variant's run needs it again.
        self._network = functools.lru_cache(maxsize=1)(functools.partial(load_tornet, root))

    def build(self) -> Mapping[str, BuiltProgram]:
        """Build Tor, and find the installed OnionTrace if hosts of the networks run it."""
        programs: dict[str, BuiltProgram] = {}
        if any(
            level.settings.network.oniontrace != "none"
            and ONIONTRACE.name
            in load_tornet(self.root, level.settings.network.name, seed).tornet.programs
            for level in self.experiment.levels.values()
            for seed in self.experiment.seeds
        ):
            tool = find_tool(ONIONTRACE)
            source = {"kind": "installed"}
            programs[ONIONTRACE.name] = BuiltProgram(tool.path, tool.version, tool.sha256, source)
        return programs | self._build_tor()

    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
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
        unread = self._describe_unread(_names_of_effect(voted))
        if unread:
            raise UserError(
                "\n".join(f"network {settings.network.name}: {one}" for one in unread),
                "Set tor.consensus_params, which replaces the network's, or use another Tor.",
            )
        return run

    def bootstrap_end_s(self, level: str) -> float:
        return float(self.settings(level).facts.bootstrap_end_s)


class PeersRunBuilder(RunBuilder):
    """Composes the runs of an experiment in which libtorrent's peers transfer data without Tor."""

    def build(self) -> Mapping[str, BuiltProgram]:
        peers = ensure_peers(self.root, self.needed)
        return {peer_program(name): built for name, built in peers.items()}

    def compose(self, level: str, variant: str, seed: int, repeat: int = 1) -> RunDirectory:
        return compose_peers(
            self.settings(level),
            variant=self.variants[variant],
            seed=seed,
            repeat=repeat,
            engine=self.engine,
        )

    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        return verify_peer_logs(hosts, run.expectations)


_BUILDERS: Mapping[str | None, type[RunBuilder]] = {
    None: DrawnRunBuilder,
    "peers": PeersRunBuilder,
    "tornettools": TornetRunBuilder,
}


def known_variants(root: Path, experiment: Experiment) -> Mapping[str, TorVariant | PeerVariant]:
    """Return all variants that the checkout has for an experiment's kind, by name."""
    if experiment.kind == "peers":
        return load_peer_variants(root)
    return load_variants(root)


def select_variants(root: Path, experiment: Experiment, requested: Sequence[str]) -> list[str]:
    """Return the requested variants, or all variants of the experiment if none is requested.

    The result has the experiment's order. Variants that the experiment does not list come last.
    Raises UserError for an unknown name.
    """
    own, known = experiment.variants, known_variants(root, experiment)
    for name in requested:
        if name not in known:
            others = [other for other in known if other not in own]
            raise UserError(
                f"unknown variant {show(name)}{nearest(name, known)}",
                f"Variants of {experiment.name}: {', '.join(own)}. "
                f"Also available: {', '.join(others)}.",
            )
    added = [name for name in dict.fromkeys(requested) if name not in own]
    return [*(name for name in own if not requested or name in requested), *added]


def load_experiment(root: Path, request: Request) -> Experiment:
    """Return the experiment of a request with its overrides. Raises UserError if it is invalid."""
    return load(request.experiment, root=root).with_overrides(
        scale=request.scale, seeds=request.seeds, repeats=request.repeats
    )


def run_builder(
    root: Path, request: Request, resolved: Mapping[str, Any] | None = None
) -> RunBuilder:
    """Return the run builder of a request. Its engine and its programs are not prepared yet.

    resolved: the resolved experiment from plan.json; by default the experiment's files are read.
    Raises UserError if the experiment is invalid.
    """
    if resolved:
        try:
            experiment = load_resolved_experiment(resolved)
        except (ValidationError, LookupError, TypeError, AttributeError, StopIteration) as error:
            # This version's `resolve_experiment` did not return this data.
            raise UserError(
                "the plan is damaged, or another version of onionlab made it", MAKE_ANEW
            ) from error
    else:
        experiment = load_experiment(root, request)
    builder = _BUILDERS[experiment.kind](root, experiment, request.variants)
    # Check added variants only for a new plan. The settings in plan.json were checked before
    # plan.json was written. They contain every key, even keys that the experiment does not set. The
    # check would reject some of these keys, because they may be set only together with other keys.
    if not resolved and (added := builder.added_variants):
        experiment.require_variants([*experiment.variants, *sorted(added)])
    return builder


def open_run_builder(
    root: Path, request: Request, resolved: Mapping[str, Any] | None = None
) -> RunBuilder:
    """Return the run builder of a request, with all programs built (see `run_builder`).

    Raises UserError if the experiment is invalid, or if a tool or a source is missing.
    """
    builder = run_builder(root, request, resolved)
    builder.open(request)
    return builder
