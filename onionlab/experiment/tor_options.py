"""Resolve Tor's options: where they are set, and which setting has precedence.

All experiments with Tor use these rules; docs/reference/experiments.md has them as a table.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.manifest import TorrcSetting
from onionlab.experiment.settings import Scheduler, TorSettings
from onionlab.experiment.tor_parameters import (
    ADDED_LISTS,
    OPTION_DEFAULTS,
    REPLACED_LISTS,
    overrides_of,
)
from onionlab.programs.tor.variants import TorVariant
from onionlab.yamlfile.units import milliseconds

DEFAULTS = "configs/tor"
"""Folder of the default torrc files for runs in generated networks."""

COMMON = "common"
FRAGMENTS: Mapping[str, tuple[str, ...]] = {
    "authority": ("relay", "authority"),
    "exitguard": ("relay", "exit"),
    "exit": ("relay", "exit"),
    "guard": ("relay", "non-exit"),
    "middle": ("relay", "non-exit"),
    "onion-service": ("client", "onion-service"),
    "client": ("client",),
}
"""Role of a host -> the files of DEFAULTS that the host reads after `common`."""

SOCKS_PORT = 9000
"""The SocksPort that clients' traffic generators use, as set in configs/tor/client.torrc."""

Options = Mapping[str, Sequence[str]]
"""Option, spelt as in its file -> the values of its lines. As in a torrc, "+" before the name adds
the lines to the lines of an earlier file, and "/" clears the option."""

OWN_KEYS = {
    "celltracefile": "tor.trace",
    "consensusparams": "tor.consensus_params",
    "kistschedruninterval": "tor.scheduler.run_interval",
    "schedulers": "tor.scheduler.name",
}
"""Option of torrc in lower case -> the key of an experiment that sets it."""

RESERVED_OPTIONS = {
    **{option: f"it has its own key, {key}" for option, key in OWN_KEYS.items()},
    **dict.fromkeys(
        ("address", "datadirectory", "dirauthority", "dirport", "nickname", "orport"),
        "the harness gives every host its own",
    ),
    "socksport": "only as SocksPort in tor.torrc.client",
}
"""Option of torrc in lower case (Tor ignores case) -> why tor.torrc cannot contain it."""

# Runs need these options, so `keep_options` keeps them even if they override a consensus parameter
# that the experiment sets.
INDISPENSABLE = frozenset({"assumereachable", "testingtornetwork"})

PARAMETERS_SOURCE = "tor.consensus_params"
SOURCES_OF_PARAMETERS = ("Tor's own default", PARAMETERS_SOURCE)
TORRC_SOURCE = "tor.torrc."
"""Prefix of `Layer.source` for the options that an experiment sets below its key `tor.torrc`. The
prefix is followed by a kind of host, as in `tor.torrc.relay`."""

SERVICE_OPTIONS = frozenset(one for one in ADDED_LISTS if one.startswith("hiddenservice"))
"""Options of an onion service, in lower case. Tor stops if no HiddenServiceDir precedes them."""

NAMES_OF_HOSTS = (
    *("address", "dirauthority", "dirserver", "nickname", "serverdnstestaddresses"),
    *("testingdirauthvoteexit", "testingdirauthvoteguard"),
)
"""Options, in lower case, whose values name hosts. Manifests omit them."""


@dataclass(frozen=True)
class Layer:
    """One place where options are set.

    Attributes:
        source: The place, for messages.
        options: The options that are set there.
        file: The torrc file that contains the place, or the command line. The lines of a list
            option in one file replace its lines in earlier files, unless they begin with "+".
        is_replacing: Whether the lines of options in REPLACED_LISTS also replace the lines of
            earlier layers of the same file.
    """

    source: str
    options: Options
    file: str = "torrc-defaults"
    is_replacing: bool = False


@dataclass(frozen=True)
class Setting:
    """The effective setting of an option on a host.

    Attributes:
        name: Name of the option.
        values: Values of the option's lines.
        source: The source of the layer that sets the option.
        needed: Values that messages propose instead of `values`, if `values` make Tor ignore
            another option or parameter. With the proposed values, Tor would not ignore it. Empty if
            there is nothing to propose.
    """

    name: str
    values: tuple[str, ...]
    source: str
    needed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the option and its values, for messages."""
        return f"{self.name} {', '.join(self.values)}".rstrip()


@dataclass(frozen=True)
class HostOptions:
    """The sources of the options of a host with Tor.

    Attributes:
        role: The role of the host.
        variant: The variant that the host runs.
        network: Layers of the file of defaults, from configs/tor or from an imported network.
        experiment: Layers of the experiment, which override the layers in `network`.
        own: Layers of the host's own torrc and command line, which override all other layers.
        has_defaults: Whether Tor's own defaults are the lowest layer. They are excluded if files of
            an imported network, which are not known yet, may set the same options.
    """

    role: str
    variant: TorVariant
    network: Sequence[Layer]
    experiment: Sequence[Layer]
    own: Sequence[Layer] = ()
    has_defaults: bool = True

    @property
    def layers(self) -> list[Layer]:
        """Return all layers, by ascending precedence."""
        return [*self.network, *self.experiment, *self.own]

    @functools.cached_property
    def resolved(self) -> dict[str, Setting]:
        """Return the effective options of the host, by their names in lower case."""
        tors_own = Layer(SOURCES_OF_PARAMETERS[0], OPTION_DEFAULTS)
        return resolve_options([*([tors_own] if self.has_defaults else []), *self.layers])


def groups_of(role: str) -> tuple[str, ...]:
    """Return the keys of `tor.torrc` that apply to a role, by ascending precedence."""
    if role in ("client", "onion-service", "markov-client", "perf-client"):
        return ("all", "client")
    return ("all", "relay", "authority") if role == "authority" else ("all", "relay")


def resolve_options(layers: Iterable[Layer]) -> dict[str, Setting]:
    """Return the effective setting of each option, by the option's name in lower case.

    Later layers override earlier ones, or add lines to list options (see `Layer`).
    """
    found: dict[str, Setting] = {}
    files: dict[str, str] = {}
    for layer in layers:
        for written, values in layer.options.items():
            name = written.lstrip("+/")
            key = name.casefold()
            before = found.pop(key).values if key in found else ()
            if written.startswith("/"):
                continue
            is_added = written.startswith("+") or files.get(key) == layer.file
            if key in REPLACED_LISTS and layer.is_replacing:
                is_added = False
            if key not in ADDED_LISTS | REPLACED_LISTS:
                values = values[-1:]
            elif is_added:
                values = (*before, *values)
            found[key] = Setting(name, tuple(values), layer.source)
            files[key] = layer.file
    return found


def experiment_layers(role: str, tor: TorSettings, variant: TorVariant) -> list[Layer]:
    """Return the layers that an experiment sets for hosts of a role, by ascending precedence.

    These layers override the default files, or the files of an imported network. A host's own torrc
    overrides these layers.
    """
    options: dict[str, Options] = {
        "tor.scheduler": scheduler_options(tor.scheduler),
        f"variant {variant.name}": {name: (value,) for name, value in variant.torrc.items()},
    }
    for group in groups_of(role):
        if group == "authority":
            options[PARAMETERS_SOURCE] = parameter_options(tor.consensus_params)
        options[TORRC_SOURCE + group] = getattr(tor.torrc, group)
    return [Layer(source, its, is_replacing=True) for source, its in options.items()]


def scheduler_options(scheduler: Scheduler | None) -> dict[str, tuple[str, ...]]:
    """Return the torrc options of a channel scheduler.

    If ``scheduler`` is None, return {}, so that the imported network keeps its own scheduler.
    """
    if scheduler is None:
        return {}
    return {
        "Schedulers": (scheduler.name,),
        "KISTSchedRunInterval": (f"{milliseconds(scheduler.run_interval_s)} msec",),
    }


def changed_scheduler_options(scheduler: Scheduler | None) -> list[str]:
    """Return the torrc options of a channel scheduler that differ from the default scheduler's."""
    default = scheduler_options(Scheduler())
    return [name for name, its in scheduler_options(scheduler).items() if its != default[name]]


def read_defaults(root: Path) -> dict[str, str]:
    """Return the text of each file of DEFAULTS, by its name without the ending."""
    names = {COMMON, *(name for names in FRAGMENTS.values() for name in names)}
    paths = {name: root / f"{DEFAULTS}/{name}.torrc" for name in sorted(names)}
    return {name: path.read_text() for name, path in paths.items() if path.is_file()}


def parameter_options(parameters: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the torrc option with which authorities vote for consensus parameters."""
    text = " ".join(f"{name}={value}" for name, value in sorted(parameters.items()))
    return {"ConsensusParams": (text,)} if text else {}


def default_layers(role: str, defaults: Mapping[str, str]) -> list[Layer]:
    """Return the layers of the default files that a host of a role reads, in the order of reading.

    defaults: name of a file -> its text.
    """
    return [
        Layer(f"{DEFAULTS}/{name}.torrc", parse_options(defaults[name]))
        for name in (COMMON, *FRAGMENTS.get(role, (role,)))
        if name in defaults
    ]


def parse_options(text: str) -> dict[str, tuple[str, ...]]:
    """Return the options of a torrc that has no %include lines."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        name, _, value = line.partition("#")[0].strip().partition(" ")
        if name:
            found[name] = (*found.get(name, ()), value.strip())
    return found


def keep_options(
    defaults: Mapping[str, str],
    parameters: Iterable[str],
    known_options: Collection[str] | None = None,
) -> dict[str, str]:
    """Return the default files (name -> text) without options that a run must not set.

    These are options that override `parameters`, which the experiment sets, and options that Tor
    does not know. known_options: the ones that it knows, in lower case; None if all are known.
    """
    overriding_ones = {one.option.casefold() for name in parameters for one in overrides_of(name)}
    left_out = overriding_ones - INDISPENSABLE

    def is_kept(line: str) -> bool:
        option = line.partition(" ")[0].strip().casefold()
        is_known = known_options is None or option in known_options
        return line.startswith(("#", "\n")) or (is_known and option not in left_out)

    return {
        name: "".join(filter(is_kept, text.splitlines(keepends=True)))
        for name, text in defaults.items()
    }


def describe_settings(hosts: Iterable[HostOptions]) -> dict[str, dict[str, TorrcSetting]]:
    """Return the settings of Tor's options for a manifest, by kind of host and by option.

    A kind is a role, or a role and a variant if several variants are in use. Settings that all
    hosts share are under `all`. Settings that differ within a kind have the value "differs by
    host".
    """
    hosts = list(hosts)
    is_mixed = len({host.variant.name for host in hosts}) > 1
    kinds: dict[str, dict[str, TorrcSetting]] = {}
    for host in hosts:
        kind = f"{host.role}, {host.variant.name}" if is_mixed else host.role
        settings = resolve_options(host.layers)
        for name in NAMES_OF_HOSTS:
            settings.pop(name, None)
        mine = {
            one.name: TorrcSetting(value=", ".join(one.values), set_by=one.source)
            for one in settings.values()
        }
        known = kinds.get(kind, mine)
        for name in known.keys() | mine.keys():
            if mine.get(name) != known.get(name):
                source = (mine.get(name) or known[name]).set_by
                mine[name] = TorrcSetting(value="differs by host", set_by=source)
        kinds[kind] = mine
    common = {
        name: one
        for name, one in sorted(next(iter(kinds.values()), {}).items())
        if all(other.get(name) == one for other in kinds.values())
    }
    return {"all": common} | {
        kind: {name: one for name, one in sorted(found.items()) if name not in common}
        for kind, found in sorted(kinds.items())
    }
