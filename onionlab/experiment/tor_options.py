"""Resolve Tor's options: where they are set, and which place wins if several set the same one.

This is the one rule for all experiments with Tor. docs/reference/experiments.md has it as a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.formats.manifest import TorrcSetting
from onionlab.experiment.schema.tor_settings import Scheduler, Torrc
from onionlab.experiment.tor_parameters import (
    CONSENSUS_PARAMETERS,
    OPTION_DEFAULTS,
    PARAMETER_DEFAULTS,
    conditions_of,
    overrides_of,
)
from onionlab.programs.tor.variants import TorVariant

DEFAULTS = "configs/tor"
"""Folder of the torrc files that every run starts from, unless it has an imported network's."""

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
"""Role of a host -> the files of DEFAULTS that it reads after `common`."""

SOCKS_PORT = 9000
"""Where clients' traffic generators reach their Tor; configs/tor/client.torrc has it too."""

# parse_ports_config() in src/app/config/config.c of Tor 0.4.9.
SOCKS_FLAGS = frozenset(
    flag.casefold()
    for flag in (
        *("CacheDNS", "CacheIPv4DNS", "CacheIPv6DNS", "DNSRequest", "ExtendedErrors"),
        *("GroupWritable", "IPv4Traffic", "IPv6Traffic", "IsolateClientAddr"),
        *("IsolateClientProtocol", "IsolateDestAddr", "IsolateDestPort", "IsolateSOCKSAuth"),
        *("KeepAliveIsolateSOCKSAuth", "OnionTraffic", "OnionTrafficOnly", "PreferIPv6"),
        *("PreferIPv6Automap", "PreferSOCKSNoAuth", "RelaxDirModeCheck", "UseDNSCache"),
        *("UseIPv4Cache", "UseIPv6Cache", "WorldWritable"),
    )
)
"""Flags of SocksPort in lower case. Each may begin with "No". Tor ignores others with a warning."""

Options = Mapping[str, Sequence[str]]
"""Option in the spelling of its file -> the values of its lines. As in a torrc, "+" before the name
adds lines to those of an earlier file, and "/" clears the option."""

# LINELIST in src/app/config/config.c of Tor 0.4.9.
REPLACED_LISTS = frozenset(
    name.casefold()
    for name in (
        *("AlternateBridgeAuthority", "AlternateDirAuthority", "Bridge", "FallbackDir"),
        *("AuthDirBadExit", "AuthDirInvalid", "AuthDirMiddleOnly", "AuthDirReject"),
        *("ConsensusParams", "DirPolicy", "ExitPolicy", "MetricsPortPolicy", "SocksPolicy"),
        *("FamilyId", "MapAddress", "MyFamily", "NodeFamily", "SocksPort"),
        *("ClientTransportPlugin", "ServerTransportPlugin"),
        *("ServerTransportListenAddr", "ServerTransportOptions"),
        *("OutboundBindAddress", "OutboundBindAddressOR"),
        *("OutboundBindAddressExit", "OutboundBindAddressPT"),
        *("ReachableAddresses", "ReachableDirAddresses", "ReachableORAddresses"),
        *("RecommendedVersions", "RecommendedClientVersions", "RecommendedServerVersions"),
    )
)
"""Options of which Tor collects lines, and of which a later place replaces all lines."""

# The others: LINELIST, LINELIST_S and VPORT there.
ADDED_LISTS = frozenset(
    name.casefold()
    for name in (
        *("Address", "ControlPort", "ControlSocket", "DirAuthority", "DirPort", "DNSPort"),
        *("ExtORPort", "HashedControlPassword", "HTTPTunnelPort", "Log", "MetricsPort"),
        *("NATDPort", "ORPort", "TransPort"),
        *("HiddenServiceAllowUnknownPorts", "HiddenServiceDir", "HiddenServiceDirGroupReadable"),
        *("HiddenServiceEnableIntroDoSBurstPerSec", "HiddenServiceEnableIntroDoSDefense"),
        *("HiddenServiceEnableIntroDoSRatePerSec", "HiddenServiceExportCircuitID"),
        *("HiddenServiceMaxStreams", "HiddenServiceMaxStreamsCloseCircuit"),
        *("HiddenServiceNumIntroductionPoints", "HiddenServiceOnionBalanceInstance"),
        *("HiddenServicePoWDefensesEnabled", "HiddenServicePoWQueueBurst"),
        *("HiddenServicePoWQueueRate", "HiddenServicePort", "HiddenServiceVersion"),
    )
)
"""Options of which Tor collects lines, and to which a later place adds lines."""

_ELSEWHERE = "it has a key of its own, "
_OWN = "the harness gives every host its own"

RESERVED_OPTIONS = {
    option.casefold(): reason
    for option, reason in {
        "CellTraceFile": _ELSEWHERE + "tor.trace",
        "ConsensusParams": _ELSEWHERE + "tor.consensus_params",
        "KISTSchedRunInterval": _ELSEWHERE + "tor.scheduler.run_interval",
        "Schedulers": _ELSEWHERE + "tor.scheduler.name",
        "Address": _OWN,
        "DataDirectory": _OWN,
        "DirAuthority": _OWN,
        "DirPort": _OWN,
        "Nickname": _OWN,
        "ORPort": _OWN,
        "SocksPort": "only as SocksPort in tor.torrc.client",
    }.items()
}
"""Option of torrc in lower case (Tor ignores case) -> why tor.torrc cannot hold it."""

# Runs cannot do without these, even if the experiment votes for a parameter that they override.
_INDISPENSABLE = frozenset({"assumereachable", "testingtornetwork"})

_SOURCES_OF_PARAMETERS = ("Tor's own default", "tor.consensus_params")

# An experiment does not set these.
_FIXED = _INDISPENSABLE | {"clientonly"}

NAMES_OF_HOSTS = (
    *("address", "dirauthority", "dirserver", "nickname", "serverdnstestaddresses"),
    *("testingdirauthvoteexit", "testingdirauthvoteguard"),
)
"""Options in lower case that name hosts, which manifests leave out."""


@dataclass(frozen=True)
class Layer:
    """One place where options are set.

    Attributes:
        source: The place, for messages.
        options: What it sets.
        file: The file of Tor that holds it. Lists replace those of an earlier file.
        is_replacing: Whether REPLACED_LISTS replace those of the layers below in the same file too.
    """

    source: str
    options: Options
    file: str = "torrc-defaults"
    is_replacing: bool = False


@dataclass(frozen=True)
class Setting:
    """An option as a host's Tor gets it.

    Attributes:
        name: Name of the option.
        values: Values of its lines.
        source: The layer that set it.
        needed: If Tor ignores something because of it, the values to set so that it would not;
            none if no such value is of use.
    """

    name: str
    values: tuple[str, ...]
    source: str
    needed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the option and its values, for messages."""
        return f"{self.name} {', '.join(self.values)}".rstrip()


def groups_of(role: str) -> tuple[str, ...]:
    """Return the keys of `tor.torrc` whose options a host gets, the lowest first."""
    if role in ("client", "onion-service", "markov-client", "perf-client"):
        return ("all", "client")
    return ("all", "relay", "authority") if role == "authority" else ("all", "relay")


def resolve_options(layers: Iterable[Layer]) -> dict[str, Setting]:
    """Return what Tor ends up with if later layers win; keyed by the option in lower case."""
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
            if key in ADDED_LISTS | REPLACED_LISTS:
                values = (*(before if is_added else ()), *values)
            else:
                values = values[-1:]
            found[key] = Setting(name, tuple(values), layer.source)
            files[key] = layer.file
    return found


def experiment_layers(
    role: str, *, scheduler: Scheduler | None, variant: TorVariant, torrc: Torrc
) -> list[Layer]:
    """Return what an experiment sets for hosts of a role, the lowest layer first.

    Below these are the defaults or an imported network's files; above are a host's own lines.
    """
    options: dict[str, Options] = {
        "tor.scheduler": scheduler_options(scheduler) if scheduler else {},
        f"variant {variant.name}": {name: (value,) for name, value in variant.torrc.items()},
        **{f"tor.torrc.{group}": getattr(torrc, group) for group in groups_of(role)},
    }
    return [Layer(source, its, is_replacing=True) for source, its in options.items()]


def scheduler_options(scheduler: Scheduler) -> dict[str, tuple[str, ...]]:
    """Return the torrc options of a channel scheduler."""
    return {
        "Schedulers": (scheduler.name,),
        "KISTSchedRunInterval": (f"{round(scheduler.run_interval_s * 1000)} msec",),
    }


def read_defaults(root: Path) -> dict[str, str]:
    """Return the text of each file of DEFAULTS, by its name without the ending."""
    names = {COMMON, *(name for names in FRAGMENTS.values() for name in names)}
    paths = {name: root / f"{DEFAULTS}/{name}.torrc" for name in sorted(names)}
    return {name: path.read_text() for name, path in paths.items() if path.is_file()}


OPTION_DEFAULTS_LAYER = Layer(_SOURCES_OF_PARAMETERS[0], OPTION_DEFAULTS)
"""The lowest layer of the options of a host whose files are known."""


def parameter_settings(
    parameters: Mapping[str, int], *, has_defaults: bool = True
) -> dict[str, Setting]:
    """Return the consensus parameters that keep Tor from reading others, by name in lower case.

    Args:
        parameters: What authorities vote for.
        has_defaults: Whether Tor's own defaults are among them. They may not be if files of an
            imported network, which are not known yet, can set an option that takes their place.
    """
    default, vote = _SOURCES_OF_PARAMETERS
    layers = [(default, PARAMETER_DEFAULTS)] if has_defaults else []
    return {
        name.casefold(): Setting(name, (str(value),), source)
        for source, values in (*layers, (vote, parameters))
        for name, value in values.items()
    }


def voted_parameters(authority: Mapping[str, Setting]) -> dict[str, int]:
    """Return the parameters that an authority with these options votes for."""
    voted = authority.get("consensusparams")
    return parse_parameters(voted.values[-1]) if voted else {}


def parse_parameters(text: str) -> dict[str, int]:
    """Return the parameters in a value of ConsensusParams."""
    pairs = (pair.partition("=") for pair in text.split())
    return {name: int(value) for name, _, value in pairs if value.lstrip("-").isdecimal()}


def parameter_options(parameters: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the torrc option with which authorities vote for consensus parameters."""
    text = " ".join(f"{name}={value}" for name, value in sorted(parameters.items()))
    return {"ConsensusParams": (text,)} if text else {}


def default_layers(role: str, defaults: Mapping[str, str]) -> list[Layer]:
    """Return the layers of the default files that a host of a role reads, in order.

    defaults: name of a file -> its text.
    """
    return [
        Layer(f"{DEFAULTS}/{name}.torrc", parse_options(defaults[name]))
        for name in (COMMON, *FRAGMENTS.get(role, (role,)))
        if name in defaults
    ]


def parse_options(text: str) -> dict[str, tuple[str, ...]]:
    """Return the options of a torrc that includes nothing."""
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
    """Return the default files without the options that a run has to do without.

    Args:
        defaults: Name of a file -> its text.
        parameters: Consensus parameters that the experiment votes for. Left out are the options for
            which Tor would not read them.
        known_options: The options that Tor knows, in lower case; None for all.
    """
    overriding_ones = {one.option.casefold() for name in parameters for one in overrides_of(name)}
    left_out = overriding_ones - _INDISPENSABLE

    def is_kept(line: str) -> bool:
        option = line.partition(" ")[0].strip().casefold()
        is_known = known_options is None or option in known_options
        return line.startswith(("#", "\n")) or (is_known and option not in left_out)

    return {
        name: "".join(filter(is_kept, text.splitlines(keepends=True)))
        for name, text in defaults.items()
    }


def overriding(parameter: str, settings: Mapping[str, Mapping[str, Setting]]) -> Iterator[Setting]:
    """Yield the settings for which Tor does not read a consensus parameter.

    settings: authority, relay and client -> their options, from `resolve_options`.
    """
    for override in overrides_of(parameter):
        setting = settings.get(override.group, {}).get(override.option.casefold())
        if setting is not None and override.holds(setting.values[-1]):
            yield replace(setting, needed=override.remedies)


def unread_because(
    name: str, hosts: Iterable[Mapping[str, Setting]], parameters: Mapping[str, Setting]
) -> Setting | None:
    """Return a setting for which none of the hosts reads an option or a parameter, if all have one.

    Args:
        name: Name of the option or parameter.
        hosts: Options of each host, from `resolve_options`.
        parameters: From `parameter_settings`.
    """

    def reason(host: Mapping[str, Setting]) -> Setting | None:
        for one in conditions_of(name):
            key = one.option.casefold()
            setting = host.get(key)
            if setting is None or setting.values[-1].casefold() == "auto":
                setting = parameters.get(key)
            if setting is not None and one.holds(setting.values[-1]):
                return replace(setting, needed=one.remedies)
        return None

    found = [reason(host) for host in hosts]
    return found[0] if all(found) and found else None


def describe_ignored(setting: Setting) -> str:
    """Return why Tor ignores an option or a parameter, and what to do, for messages."""
    why = f"Tor ignores it, because {setting.source} sets {setting}; remove it"
    name = setting.name.casefold()
    if name in _FIXED or not setting.needed:
        return why
    if name == "circuitpolicy":
        return f"{why}, or compare other tor.variants"
    place, key = "", RESERVED_OPTIONS.get(name, "").removeprefix(_ELSEWHERE)
    if key == "tor.scheduler.run_interval":
        return f"{why}, and set {key}"
    parameter = next((one for one in CONSENSUS_PARAMETERS if one.casefold() == name), "")
    if not key and parameter and setting.source in _SOURCES_OF_PARAMETERS:
        key = f"tor.consensus_params.{parameter}"
    if not key:
        key, place = setting.name, " in tor.torrc"
    values = " or ".join(one.replace("<", "less than ") for one in setting.needed)
    return f"{why}, or set {key} to {values}{place}"


def describe_settings(
    hosts: Iterable[tuple[str, TorVariant, Iterable[Layer]]],
) -> dict[str, dict[str, TorrcSetting]]:
    """Return kind of host -> option -> its setting, for a manifest.

    hosts: role, variant and layers of each. A kind is a role, with the variant if several are in
    use. What all hosts share is under `all`. What differs within a kind has the value "differs by
    host".
    """
    hosts = list(hosts)
    is_mixed = len({variant.name for _, variant, _ in hosts}) > 1
    kinds: dict[str, dict[str, TorrcSetting]] = {}
    for role, variant, layers in hosts:
        kind = f"{role}, {variant.name}" if is_mixed else role
        settings = resolve_options(layers)
        for name in NAMES_OF_HOSTS:
            settings.pop(name, None)
        known = kinds.get(kind)
        mine = {
            one.name: TorrcSetting(value=", ".join(one.values), set_by=one.source)
            for one in settings.values()
        }
        if known is not None:
            for name in known.keys() | mine.keys():
                if mine.get(name) != known.get(name):
                    source = (mine.get(name) or known[name]).set_by
                    mine[name] = TorrcSetting(value="differs by host", set_by=source)
        kinds[kind] = mine
    shared = [
        name
        for name, one in next(iter(kinds.values()), {}).items()
        if all(other.get(name) == one for other in kinds.values())
    ]
    common = {name: next(iter(kinds.values()))[name] for name in sorted(shared)}
    return {"all": common} | {
        kind: {name: one for name, one in sorted(found.items()) if name not in common}
        for kind, found in sorted(kinds.items())
    }
