"""What makes settings impossible though each value is well formed.

Pure functions: settings and the known names in, findings out. A finding's location is a path of
keys below the settings, so that the loader can point at the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onionlab.experiment.schema import (
    FIRST_CONSENSUS_S,
    ONION_SERVICES_START_S,
    RELAY_ROLES,
    NetworkSettings,
    Scheduler,
    Settings,
    Torrc,
    TorSettings,
)
from onionlab.experiment.schema.traffic_settings import MARKOV, MODEL_KEYS
from onionlab.experiment.tor_options import (
    OPTION_DEFAULTS_LAYER,
    RESERVED_OPTIONS,
    SOCKS_FLAGS,
    SOCKS_PORT,
    Setting,
    default_layers,
    describe_ignored,
    experiment_layers,
    groups_of,
    keep_options,
    overriding,
    parameter_settings,
    resolve_options,
    unread_because,
)
from onionlab.experiment.tor_parameters import CONSENSUS_PARAMETERS
from onionlab.experiment.tornettools import TornetSettings, TornetTor
from onionlab.network.sample import ADDRESSES_PER_ROLE, MIN_BANDWIDTH_RATE_BYTES_PER_S
from onionlab.programs.tor.variants import TorVariant
from onionlab.yamlfile.units import format_rate, format_time, milliseconds, nearest, show

KIST_INTERVAL_MAX_MS = 100  # KIST_SCHED_RUN_INTERVAL_MAX in src/core/or/scheduler.h
MIN_BANDWIDTH_RATE_BIT_PER_S = 8 * MIN_BANDWIDTH_RATE_BYTES_PER_S
CC_ALGORITHMS = (0, 2)  # fixed windows and Vegas: Tor 0.4.9 replaces any other by its default
PERF_CLASS = "perf"
SERVER_GRAPH = "server"
_NOT_WITH_MARKOV = {
    "request": "request_bytes",
    "pause": "pause",
    "streams": "streams",
    "stagger": "stagger_s",
    "repeat": "repeat",
    "circuit": "circuit",
}
"""Keys of a class of traffic that ask for downloads of a size -> their attributes."""


@dataclass(frozen=True)
class KnownNames:
    """What other files define; None if such a file is missing."""

    variants: Mapping[str, TorVariant] | None = None
    capacities: frozenset[str] | None = None
    geographies: frozenset[str] | None = None
    peers: frozenset[str] | None = None
    is_file: Callable[[str], bool] | None = field(default=None, compare=False)
    """Whether there is a file of that path, relative to the checkout."""
    tor_defaults: Mapping[str, str] = field(default_factory=dict)
    """Name of a file of configs/tor, without its ending -> its text."""


@dataclass(frozen=True)
class Finding:
    """A location below the settings and what is wrong there."""

    location: tuple[str, ...]
    message: str


def impossible(settings: Settings, known: KnownNames) -> Iterator[Finding]:
    """Everything for which a run of these settings could not give a result."""
    yield from _network(settings.network, known)
    yield from _hosts(settings)
    yield from _bootstrap(settings)
    yield from variants_of_tor(settings.tor.variants, settings.tor.baseline, known)
    yield from check_tor_options(
        settings.tor, known, defaults=known.tor_defaults, own=_own_options(settings.network)
    )
    yield from _traffic(settings)
    yield from _pieces(settings, known)
    yield from _markov(settings, known)
    yield from _onion_services(settings)


def questionable(settings: Settings) -> Iterator[Finding]:
    """What can be run, but probably is not what was meant."""
    loaded_s = settings.time.warm_up_s
    for name, traffic_class in sorted(settings.traffic.items()):
        start = traffic_class.start
        begins_s = start.after_s + start.spread_s
        if loaded_s < begins_s < loaded_s + settings.time.measured_s and traffic_class.count:
            message = (
                f"the last of these clients start {format_time(begins_s)} after the bootstrap, "
                f"inside the measured span (warm_up is {format_time(loaded_s)})"
            )
            yield Finding(("traffic", name, "start"), message)
    limits = {
        one.timeout_s
        for one in settings.traffic.values()
        if one.count and one.timeout_s is not None and not one.is_load
    }
    if limits and settings.time.drain_s < min(limits):
        # Longer timeouts than the drain are common (bulk): the estimates know censored streams.
        message = (
            f"shorter than every timeout (the least is {format_time(min(limits))}): streams that "
            "start late are cut off by the end, in every class"
        )
        yield Finding(("time", "drain"), message)
    yield from unknown_parameters(settings)


def unknown_parameters(settings: Settings | TornetSettings) -> Iterator[Finding]:
    """Yield the consensus parameters that Tor 0.4.9 does not know."""
    for parameter in sorted(settings.tor.consensus_params.keys() - CONSENSUS_PARAMETERS.keys()):
        message = "Tor 0.4.9 reads no parameter of this name; only another Tor may"
        yield Finding(("tor", "consensus_params", parameter), message)


def _pieces(settings: Settings, known: KnownNames) -> Iterator[Finding]:
    for name, entry in sorted(settings.traffic.items()):
        where = ("traffic", name)
        if entry.kind != "pieces":
            if "request_rule" in entry.model_fields_set:
                yield Finding((*where, "request_rule"), "only read with kind: pieces")
            continue
        if known.peers is not None and entry.request_rule not in known.peers:
            message = f"no variant {show(entry.request_rule)} of libtorrent"
            yield Finding(
                (*where, "request_rule"), message + nearest(entry.request_rule, known.peers)
            )
        if entry.stallout_s is not None:
            yield Finding((*where, "stallout"), "a download in pieces knows no stallout: null")


def _markov(settings: Settings, known: KnownNames) -> Iterator[Finding]:
    for name, entry in sorted(settings.traffic.items()):
        where = ("traffic", name)
        if entry.kind != MARKOV:
            if entry.request_bytes is None:
                yield Finding((*where, "request"), "missing: size of each download")
            for key in entry.models:
                yield Finding((*where, key), "only read with kind: markov")
            continue
        for key in MODEL_KEYS:
            path = entry.models.get(key)
            if path is None:
                message = "missing; with kind: markov expected a file with a Markov model of TGen"
                yield Finding((*where, key), message)
            elif known.is_file is not None and not known.is_file(path):
                message = f"there is no file {show(path)}; paths are relative to the checkout"
                yield Finding((*where, key), message)
        for key, attribute in _NOT_WITH_MARKOV.items():
            if attribute in entry.model_fields_set and getattr(entry, attribute) is not None:
                message = "cannot be set with kind: markov: the models say when and how much"
                yield Finding((*where, key), message)


def _network(network: NetworkSettings, known: KnownNames) -> Iterator[Finding]:
    count = {role: entry.count for role, entry in network.relays.items()}
    total = sum(count.values())
    relays = ("network", "relays")
    if count["exit"] + count["exitguard"] == 0:
        yield Finding(relays, "no exit: no stream could leave the network; give exit or exitguard")
    if count["guard"] + count["exitguard"] == 0:
        yield Finding(
            relays, "no guard: no client could enter the network; give guard or exitguard"
        )
    if count["exitguard"] == 1 and count["exit"] + count["guard"] == 0:
        message = "the only exit is the only guard, and a relay takes one position in a circuit"
        yield Finding(relays, message)
    if total < 3:
        yield Finding(relays, f"a circuit needs 3 different relays, this network has {total}")
    for role, entry in network.relays.items():
        if known.capacities is not None and entry.capacity not in known.capacities:
            message = _unknown("capacity distribution", entry.capacity, known.capacities)
            yield Finding((*relays, role, "capacity"), message)
        rate = entry.bandwidth_rate_bit_per_s
        if rate is not None and (rate < MIN_BANDWIDTH_RATE_BIT_PER_S or rate % 8):
            message = (
                f"Tor takes whole bytes per second, and at least 75 KiB/s, got {format_rate(rate)}"
            )
            if rate < MIN_BANDWIDTH_RATE_BIT_PER_S:
                message += "; for less set a capacity, which limits the relay's link"
            yield Finding((*relays, role, "bandwidth_rate"), message)
        if rate is not None and network.limited_by != "link":
            message = f"network.limited_by: {network.limited_by} sets these relays' rate already"
            yield Finding((*relays, role, "bandwidth_rate"), message)
    if known.geographies is not None and network.geography not in known.geographies:
        message = _unknown("geography", network.geography, known.geographies)
        yield Finding(("network", "geography"), message)
    if network.servers.count == 0:
        yield Finding(("network", "servers", "count"), "no server: the clients have nobody to ask")


def _onion_services(settings: Settings) -> Iterator[Finding]:
    for name, entry in settings.traffic.items():
        if entry.to != "onion-services":
            continue
        where = ("traffic", name, "to")
        if settings.network.onion_services == 0:
            yield Finding(where, "no onion service: network.onion_services is 0")
        if entry.kind == "pieces":
            yield Finding(where, f"kind: {entry.kind} fetches from servers alone")
        if entry.circuit == "one":
            message = "circuit: one is a circuit through an exit, and onion services have none"
            yield Finding(where, message)


def _hosts(settings: Settings) -> Iterator[Finding]:
    if settings.client_count - settings.network.perf_clients == 0:
        yield Finding(("traffic",), "no client: every class has a count of 0")
    network = settings.network
    crowds = [
        ("clients", settings.client_count, ("traffic",)),
        ("servers", network.servers.count, ("network", "servers", "count")),
        ("onion services", network.onion_services, ("network", "onion_services")),
        ("authorities", network.authorities, ("network", "authorities")),
        *(
            (f"{role} relays", entry.count, ("network", "relays", role, "count"))
            for role, entry in network.relays.items()
        ),
    ]
    for who, count, location in crowds:
        if count > ADDRESSES_PER_ROLE:
            message = f"more {who} than addresses: {count} of them, {ADDRESSES_PER_ROLE} addresses"
            yield Finding(location, message)


def _bootstrap(settings: Settings) -> Iterator[Finding]:
    """Streams that begin before their client's Tor is there fail, and would count."""
    least_s, why = FIRST_CONSENSUS_S, "clients' Tors do not start before"
    if any(one.to == "onion-services" for one in settings.traffic.values()):
        least_s, why = ONION_SERVICES_START_S[1], "onion services start until then"
    if settings.time.bootstrap_s < least_s:
        message = f"expected at least {format_time(least_s)}: {why}, and traffic starts at its end"
        yield Finding(("time", "bootstrap"), message)


def _own_options(network: NetworkSettings) -> dict[str, str]:
    """Return the options, in lower case, that relays have in their own torrc, and for which key."""
    keys = [
        f"network.relays.{role}.bandwidth_rate"
        for role, entry in network.relays.items()
        if entry.count and entry.bandwidth_rate_bit_per_s is not None
    ]
    if network.limited_by != "link":
        keys.append(f"network.limited_by: {network.limited_by}")
    return dict.fromkeys(("bandwidthrate", "bandwidthburst"), keys[0]) if keys else {}


def variants_of_tor(variants: Sequence[str], baseline: str, known: KnownNames) -> Iterator[Finding]:
    """What is wrong with the variants of an experiment with Tor."""
    for position, variant in enumerate(variants):
        if variant in variants[:position]:
            yield Finding(("tor", "variants"), f"{show(variant)} is listed twice")
        elif known.variants is not None and variant not in known.variants:
            yield Finding(("tor", "variants"), _unknown("variant", variant, known.variants))
    if baseline not in variants:
        names = ", ".join(variants)
        message = f"expected one of this experiment's variants ({names}), got {show(baseline)}"
        yield Finding(("tor", "baseline"), message + nearest(baseline, variants))


def check_tor_options(
    tor: TorSettings | TornetTor,
    known: KnownNames,
    *,
    defaults: Mapping[str, str] | None = None,
    own: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    """Yield what Tor would refuse or ignore of its scheduler, parameters and options.

    defaults: text of each file of configs/tor; None for networks that bring their own. own: option
    in lower case -> the key that writes it to the torrc of relays.
    """
    if tor.scheduler and milliseconds(tor.scheduler.run_interval_s) > KIST_INTERVAL_MAX_MS:
        message = f"Tor takes at most {KIST_INTERVAL_MAX_MS} ms"
        yield Finding(("tor", "scheduler", "run_interval"), message)
    every = known.variants or {}
    variants = [every[name] for name in tor.variants if name in every]
    own = own or {}
    settings = _settings(tor, variants, defaults)
    parameters = parameter_settings(tor.consensus_params, has_defaults=defaults is not None)
    for variant, hosts in zip(variants, settings, strict=True):
        for option in variant.torrc:
            if option.casefold() in own:
                message = f"{own[option.casefold()]} overrides {option} of {variant.name}"
                yield Finding(("tor", "variants"), message)
            ignored = unread_because(option, hosts.values(), parameters)
            if ignored:
                message = f"{option} of {variant.name}: {describe_ignored(ignored)}"
                yield Finding(("tor", "variants"), message)
    yield from _torrc(tor.torrc, variants, own, port=None if defaults is None else SOCKS_PORT)
    yield from _unread_options(tor, settings, parameters)
    yield from _consensus_parameters(tor.consensus_params, settings, parameters)


def _torrc(
    torrc: Torrc, variants: Sequence[TorVariant], own: Mapping[str, str], port: int | None
) -> Iterator[Finding]:
    for who in ("all", "authority", "relay", "client"):
        given: dict[str, str] = {}
        for option, lines in sorted(getattr(torrc, who).items()):
            where = ("tor", "torrc", who, option)
            letters = option.casefold()
            # Tor accepts the beginning of an option's name for the option.
            taken_for = next((one for one in RESERVED_OPTIONS if one.startswith(letters)), None)
            if who == "client" and letters == "socksport":
                other = port is not None and lines[0].split()[:1] != [str(port)]
                if len(lines) > 1 or other:
                    message = f"expected one line that begins with {port or 'the port'}"
                    yield Finding(where, f"{message}, which the traffic generators use")
                for flag in lines[0].split()[1:]:
                    known = flag.casefold().removeprefix("no") in SOCKS_FLAGS
                    if not known and not flag.casefold().startswith("sessiongroup="):
                        yield Finding(where, f"Tor has no flag {flag} of SocksPort")
            elif taken_for is not None:
                yield Finding(where, f"cannot be set here: {RESERVED_OPTIONS[taken_for]}")
            elif letters in own and who in ("all", "relay"):
                message = f"{own[letters]} overrides it in a relay's own torrc: remove one of them"
                yield Finding(where, message)
            if letters in given:
                message = f"Tor does not tell cases apart, and {given[letters]} is set here too"
                yield Finding(where, message)
            given[letters] = option
            yield from (Finding(where, message) for message in _of_variants(option, variants))


def _of_variants(option: str, variants: Sequence[TorVariant]) -> Iterator[str]:
    """Yield why an experiment must not override an option of its variants."""
    values = {
        variant.name: value
        for variant in variants
        for name, value in variant.torrc.items()
        if name.casefold() == option.casefold()
    }
    for variant in variants:
        value = values.get(variant.name)
        # An option whose value the proof names makes the variant what it is.
        if value and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", variant.proof or ""):
            yield f"cannot be set here: variant {variant.name} is {option} {value}"
            return
    if len(set(values.values())) > 1:
        names = ", ".join(f"{name}: {value}" for name, value in values.items())
        yield f"cannot be set here: the compared variants differ in it ({names})"


def _settings(
    tor: TorSettings | TornetTor,
    variants: Sequence[TorVariant],
    defaults: Mapping[str, str] | None,
) -> list[dict[str, dict[str, Setting]]]:
    """Return kind of host -> its options, for each variant."""
    kept = keep_options(defaults or {}, tor.consensus_params)
    return [
        {
            role: resolve_options(
                [
                    *([] if defaults is None else [OPTION_DEFAULTS_LAYER]),
                    *default_layers(role, kept),
                    *experiment_layers(
                        role, scheduler=tor.scheduler, variant=variant, torrc=tor.torrc
                    ),
                ]
            )
            for role in ("authority", "relay", "client")
        }
        for variant in variants
    ]


def _unread_options(
    tor: TorSettings | TornetTor,
    settings: Sequence[Mapping[str, Mapping[str, Setting]]],
    parameters: Mapping[str, Setting],
) -> Iterator[Finding]:
    """Yield the options that no host reads which gets them, whatever its variant."""
    places: dict[tuple[str, ...], str] = {
        ("torrc", group, option): option for group, its in tor.torrc for option in its
    }
    if tor.scheduler and tor.scheduler.run_interval_s != Scheduler().run_interval_s:
        places["scheduler", "run_interval"] = "KISTSchedRunInterval"
    for place, option in sorted(places.items()):
        group = place[1] if place[0] == "torrc" else "all"
        hosts = [its for one in settings for role, its in one.items() if group in groups_of(role)]
        setting = unread_because(option, hosts, parameters)
        if setting:
            yield Finding(("tor", *place), describe_ignored(setting))


def _consensus_parameters(
    parameters: Mapping[str, int],
    settings: Sequence[Mapping[str, Mapping[str, Setting]]],
    voted: Mapping[str, Setting],
) -> Iterator[Finding]:
    for parameter, value in sorted(parameters.items()):
        where = ("tor", "consensus_params", parameter)
        # Tor ignores a parameter it does not know, so a slip of the pen would go unnoticed.
        meant = nearest(parameter, CONSENSUS_PARAMETERS, cutoff=0.8)
        if parameter not in CONSENSUS_PARAMETERS and meant:
            yield Finding(where, f"Tor 0.4.9 reads no parameter of this name{meant}")
            continue
        accepted = CONSENSUS_PARAMETERS.get(parameter)
        if parameter == "cc_alg" and value not in CC_ALGORITHMS:
            yield Finding(where, f"expected 0 (fixed windows) or 2 (Vegas), got {value}")
        elif accepted and value not in accepted:
            message = f"Tor 0.4.9 accepts {accepted[0]} to {accepted[-1]}"
            yield Finding(where, f"{message}, and replaces other values by the nearest of these")
        found = [setting for one in settings for setting in overriding(parameter, one)]
        hosts = [its for one in settings for its in one.values()]
        setting = found[0] if found else unread_because(parameter, hosts, voted)
        if setting:
            yield Finding(where, describe_ignored(setting))


def _traffic(settings: Settings) -> Iterator[Finding]:
    if PERF_CLASS in settings.traffic:
        message = "this name belongs to the clients of network.perf_clients"
        yield Finding(("traffic", PERF_CLASS), message)
    for role in RELAY_ROLES:
        if role in settings.traffic:
            message = "this name belongs to the relays of this role, where they are traced"
            yield Finding(("traffic", role), message)
    if SERVER_GRAPH in settings.traffic:
        # A class's traffic stands in a file of the class's name, and so does the servers'.
        message = "this name belongs to what the servers run"
        yield Finding(("traffic", SERVER_GRAPH), message)
    ends_s = settings.time.warm_up_s + settings.time.measured_s
    for name, traffic_class in sorted(settings.traffic.items()):
        start = traffic_class.start
        if traffic_class.count and start.after_s + start.spread_s >= ends_s:
            message = (
                f"some of these clients would start after the measured span, which ends "
                f"{format_time(ends_s)} after the bootstrap"
            )
            yield Finding(("traffic", name, "start"), message)
        if traffic_class.circuit == "one" and traffic_class.repeat != "once":
            # Tor takes a new circuit for new streams after MaxCircuitDirtiness, and should.
            yield Finding(("traffic", name, "circuit"), "`one` takes `repeat: once`")
        if traffic_class.stagger_s and traffic_class.streams == 1:
            yield Finding(("traffic", name, "stagger"), "there is only one stream: set streams")


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    names = ", ".join(sorted(known))
    return f"unknown {what} {show(name)}; known are {names}{nearest(name, sorted(known))}"
