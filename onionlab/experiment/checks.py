"""Find settings that are impossible or suspicious although each value is valid.

The functions get settings and the names that other files define; they read no files. They yield
findings. A finding is a path of keys, with which the loader finds the line, and a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from onionlab.experiment.network_settings import NetworkSettings
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.settings import FIRST_CONSENSUS_S, ONION_SERVICES_START_S, Settings
from onionlab.experiment.tor_checks import (
    Finding,
    KnownNames,
    describe_unknown,
    find_tor_errors,
    find_tor_warnings,
)
from onionlab.experiment.tornettools import TornetSettings
from onionlab.experiment.traffic_settings import MARKOV, MODEL_KEYS, TrafficClass
from onionlab.network.layout import RELAY_ROLES
from onionlab.network.sample import (
    ADDRESSES_PER_ROLE,
    MAX_BANDWIDTH_BYTES,
    MAX_NAME,
    MIN_BANDWIDTH_RATE_BYTES_PER_S,
    client_name,
)
from onionlab.yamlfile.units import format_rate, format_time, nearest, show

RESERVED_CLASSES = {
    "perf": "this name belongs to the clients of network.perf_clients",
    # The TGen graph of a class has the name of the class. The graph of the servers is "server".
    "server": "this name belongs to what the servers run",
    **dict.fromkeys(
        RELAY_ROLES, "this name belongs to the relays of this role, where they are traced"
    ),
}
NOT_WITH_MARKOV = ("request", "pause", "streams", "stagger", "repeat", "circuit")
"""Keys that describe downloads of a fixed size. A class of Markov clients cannot have them."""


@singledispatch
def find_errors(settings: Any, known: KnownNames) -> Iterator[Finding]:
    """Yield errors: settings with which a run cannot give a valid result."""
    raise TypeError(settings)


@singledispatch
def find_warnings(settings: Any, known: KnownNames) -> Iterator[Finding]:
    """Yield settings that are allowed but probably unintended."""
    return iter(())


@find_errors.register
def _(settings: Settings, known: KnownNames) -> Iterator[Finding]:
    yield from _check_network(settings.network, known)
    yield from _check_sizes(settings)
    yield from find_tor_errors(settings.tor, known, _own_options(settings.network))
    least_s, why = FIRST_CONSENSUS_S, "clients' Tors do not start before"
    yield from _check_arti(settings, known)
    if any(one.to == "onion-services" for one in settings.traffic.values()):
        least_s, why = ONION_SERVICES_START_S[1], "onion services start until then"
    if settings.time.bootstrap_s < least_s:
        message = f"expected at least {format_time(least_s)}: {why}, and traffic starts at its end"
        yield ("time", "bootstrap"), message
    for name, entry in sorted(settings.traffic.items()):
        for keys, message in _check_class(name, entry, settings, known):
            yield ("traffic", name, *keys), message


@find_errors.register
def _(settings: TornetSettings, known: KnownNames) -> Iterator[Finding]:
    yield from find_tor_errors(settings.tor, known, None)
    for name in _arti_variants(settings, known):
        message = f"{name} has clients of Arti, and imported networks configure those of C Tor"
        yield ("tor", "variants"), f"{message}; remove it"


@find_errors.register
def _(settings: PeersSettings, known: KnownNames) -> Iterator[Finding]:
    own = settings.libtorrent
    if known.peers is not None:
        for name in dict.fromkeys((*own.variants, own.baseline)):
            if name not in known.peers:
                key = "variants" if name in own.variants else "baseline"
                message = f"no variant {show(name)} of libtorrent{nearest(name, known.peers)}"
                yield ("libtorrent", key), message
    twice = next((name for name in own.variants if own.variants.count(name) > 1), None)
    if twice:
        yield ("libtorrent", "variants"), f"{show(twice)} is listed twice"
    if own.baseline not in own.variants:
        yield ("libtorrent", "baseline"), "expected one of the variants"


@find_warnings.register
def _(settings: TornetSettings, known: KnownNames) -> Iterator[Finding]:
    yield from find_tor_warnings(settings.tor, known, None)


@find_warnings.register
def _(settings: Settings, known: KnownNames) -> Iterator[Finding]:
    loaded_s = settings.time.warm_up_s
    for name, entry in sorted(settings.traffic.items()):
        begins_s = entry.start.after_s + entry.start.spread_s
        if loaded_s < begins_s < loaded_s + settings.time.measured_s and entry.count:
            message = (
                f"the last of these clients start {format_time(begins_s)} after the bootstrap, "
                f"inside the measured span (warm_up is {format_time(loaded_s)})"
            )
            yield ("traffic", name, "start"), message
    timeouts_s = [
        one.timeout_s
        for one in settings.traffic.values()
        if one.count and one.timeout_s is not None and not one.is_load
    ]
    # The drain is the time after the measured span in which streams can end. A timeout longer than
    # the drain is common, for example for bulk downloads, and the estimates account for streams
    # that the end of the run cuts off (censoring). So warn only if all timeouts are longer.
    if timeouts_s and settings.time.drain_s < min(timeouts_s):
        message = (
            f"shorter than every timeout (the least is {format_time(min(timeouts_s))}): streams "
            "that start late are cut off by the end, in every class"
        )
        yield ("time", "drain"), message
    yield from find_tor_warnings(settings.tor, known, known.tor_defaults)


def find_errors_in_networks(settings: TornetSettings) -> Iterator[Finding]:
    """Yield errors: settings that contradict the facts about the imported networks."""
    facts, time = settings.facts, settings.time
    if time.given_stop_s is not None and time.given_stop_s > facts.stop_s:
        message = (
            f"the networks were made for {format_time(facts.stop_s)}: their keys may not be valid "
            "for longer"
        )
        yield ("time", "stop"), message
    if time.measured_start_s >= time.measured_end_s:
        message = (
            f"nothing would be measured: the simulation ends after {format_time(time.stop_s)}, and "
            f"{format_time(time.drain_s)} before that streams no longer count (drain)"
        )
        yield ("time", "measured_from"), message
    if time.measured_start_s < facts.bootstrap_end_s:
        message = (
            f"until {format_time(facts.bootstrap_end_s)} the networks bootstrap, and no link "
            "limits anything"
        )
        yield ("time", "measured_from"), message
    if all(one["load"] for one in settings.classes.values()):
        yield ("network", "name"), "none of its clients fetches files: nothing to measure"


def _check_class(
    name: str, entry: TrafficClass, settings: Settings, known: KnownNames
) -> Iterator[Finding]:
    """Yield the errors of a traffic class. The paths of keys in them start below the class."""
    if name in RESERVED_CLASSES:
        yield (), RESERVED_CLASSES[name]
    last = client_name(name, entry.count)
    if entry.count and len(last) > MAX_NAME:
        message = (
            f"one of its clients is called {last}, and Tor takes names of at most {MAX_NAME} "
            f"characters; use at most {MAX_NAME - len(last) + len(name)} letters"
        )
        yield (), message
    ends_s = settings.time.warm_up_s + settings.time.measured_s
    if entry.count and entry.start.after_s + entry.start.spread_s >= ends_s:
        message = (
            f"some of these clients would start after the measured span, which ends "
            f"{format_time(ends_s)} after the bootstrap"
        )
        yield ("start",), message
    if entry.circuit == "one" and entry.repeat != "once":
        # Repeated downloads cannot share one circuit: when MaxCircuitDirtiness has passed since the
        # first use of a circuit, Tor uses another circuit for new streams.
        yield ("circuit",), "`one` takes `repeat: once`"
    if entry.stagger_s and entry.streams == 1:
        yield ("stagger",), "there is only one stream: set streams"
    if entry.to == "onion-services":
        if settings.network.onion_services == 0:
            yield ("to",), "no onion service: network.onion_services is 0"
        if entry.kind == "pieces":
            yield ("to",), f"kind: {entry.kind} fetches from servers alone"
        if entry.circuit == "one":
            message = "circuit: one is a circuit through an exit, and onion services have none"
            yield ("to",), message
    if entry.kind == "pieces":
        if known.peers is not None and entry.request_rule not in known.peers:
            hint = nearest(entry.request_rule, known.peers)
            message = f"no variant {show(entry.request_rule)} of libtorrent{hint}"
            yield ("request_rule",), message
        if entry.stallout_s is not None:
            yield ("stallout",), "a download in pieces knows no stallout: null"
    elif "request_rule" in entry.model_fields_set:
        yield ("request_rule",), "only read with kind: pieces"
    if entry.kind != MARKOV:
        if entry.request_bytes is None:
            yield ("request",), "missing: size of each download"
        yield from (((key,), "only read with kind: markov") for key in entry.models)
        return
    for key in MODEL_KEYS:
        path = entry.models.get(key)
        if path is None:
            message = "missing; with kind: markov expected a file with a Markov model of TGen"
            yield (key,), message
        elif known.is_file is not None and not known.is_file(path):
            yield (key,), f"there is no file {show(path)}; paths are relative to the checkout"
    fields = type(entry).model_fields
    given = {
        fields[name].alias or name
        for name in entry.model_fields_set
        if getattr(entry, name) is not None
    }
    for key in NOT_WITH_MARKOV:
        if key in given:
            yield (key,), "cannot be set with kind: markov: the models say when and how much"


def _arti_variants(settings: Settings | TornetSettings, known: KnownNames) -> list[str]:
    """Return the names of the experiment's variants with clients of Arti."""
    variants = known.variants or {}
    return [name for name in settings.tor.variants if name in variants and variants[name].client]


def _check_arti(settings: Settings, known: KnownNames) -> Iterator[Finding]:
    """Yield errors for settings that Arti does not support, or with which no client runs Arti."""
    names, tor = _arti_variants(settings, known), settings.tor
    if not names:
        return
    have = f"{names[0]} has clients of Arti"
    unused = next((name for name in names if name != tor.baseline), None)
    if tor.deployment.where == "relays" and unused:
        message = f"clients run the baseline {tor.baseline}, so the Arti of {unused} is not used"
        yield ("tor", "deployment"), f"{message}; expected clients or all"
    for group in ("all", "client"):
        if getattr(tor.torrc, group):
            message = f"{have}, which read no torrc; set it in tor.torrc.relay, or remove it"
            yield ("tor", "torrc", group), message
    options = {name.casefold() for name in tor.torrc.authority}
    if settings.network.onion_services and "v3authvotinginterval" in options:
        message = (
            f"{have}, whose period of onion services' directories is that of the voting interval "
            "in configs/tor/common.torrc; remove V3AuthVotingInterval"
        )
        yield ("tor", "torrc", "authority"), message
    for name, entry in sorted(settings.traffic.items()):
        if entry.circuit == "one":
            message = f"{have}, and only C Tor logs the circuit of a stream; remove `circuit: one`"
            yield ("traffic", name, "circuit"), message


def _check_network(network: NetworkSettings, known: KnownNames) -> Iterator[Finding]:
    count = {role: entry.count for role, entry in network.relays.items()}
    total = sum(count.values())
    relays = ("network", "relays")
    if count["exit"] + count["exitguard"] == 0:
        yield relays, "no exit: no stream could leave the network; give exit or exitguard"
    if count["guard"] + count["exitguard"] == 0:
        yield relays, "no guard: no client could enter the network; give guard or exitguard"
    if count["exitguard"] == 1 and count["exit"] + count["guard"] == 0:
        yield relays, "the only exit is the only guard, and a relay takes one position in a circuit"
    if total < 3:
        yield relays, f"a circuit needs 3 different relays, this network has {total}"
    for role, entry in network.relays.items():
        if known.capacities is not None and entry.capacity not in known.capacities:
            message = describe_unknown("capacity distribution", entry.capacity, known.capacities)
            yield (*relays, role, "capacity"), message
        rate = entry.bandwidth_rate_bit_per_s
        if rate is None:
            continue
        is_too_low = rate < 8 * MIN_BANDWIDTH_RATE_BYTES_PER_S
        if is_too_low or rate % 8:
            more = "; for less set a capacity, which limits the relay's link" if is_too_low else ""
            message = (
                f"Tor takes whole bytes per second, and at least 75 KiB/s, got {format_rate(rate)}"
            )
            yield (*relays, role, "bandwidth_rate"), message + more
        if rate > 8 * MAX_BANDWIDTH_BYTES:
            message = (
                f"Tor takes at most {MAX_BANDWIDTH_BYTES:,} bytes/s, got {format_rate(rate)}; for "
                "more set a capacity, which limits the relay's link"
            )
            yield (*relays, role, "bandwidth_rate"), message
        if network.limited_by != "link":
            message = f"network.limited_by: {network.limited_by} sets these relays' rate already"
            yield (*relays, role, "bandwidth_rate"), message
    if known.geographies is not None and network.geography not in known.geographies:
        message = describe_unknown("geography", network.geography, known.geographies)
        yield ("network", "geography"), message


def _check_sizes(settings: Settings) -> Iterator[Finding]:
    """Yield errors: no servers, no clients, or more hosts of a kind than there are addresses."""
    network = settings.network
    if network.servers.count == 0:
        yield ("network", "servers", "count"), "no server: the clients need at least one"
    if settings.client_count - network.perf_clients == 0:
        yield ("traffic",), "no client: every class has a count of 0"
    for hosts, count, location in (
        ("clients", settings.client_count, ("traffic",)),
        ("servers", network.servers.count, ("network", "servers", "count")),
        ("onion services", network.onion_services, ("network", "onion_services")),
        ("authorities", network.authorities, ("network", "authorities")),
        *(
            (f"{role} relays", entry.count, ("network", "relays", role, "count"))
            for role, entry in network.relays.items()
        ),
    ):
        if count > ADDRESSES_PER_ROLE:
            message = (
                f"more {hosts} than addresses: {count} of them, {ADDRESSES_PER_ROLE} addresses"
            )
            yield location, message


def _own_options(network: NetworkSettings) -> dict[str, str]:
    """Return the options that the experiment puts into the relays' own torrc files.

    The result is a dict: option in lower case -> the experiment's key that sets it.
    """
    keys = [
        f"network.relays.{role}.bandwidth_rate"
        for role, entry in network.relays.items()
        if entry.count and entry.bandwidth_rate_bit_per_s is not None
    ]
    if network.limited_by != "link":
        keys.append(f"network.limited_by: {network.limited_by}")
    return dict.fromkeys(("bandwidthrate", "bandwidthburst"), keys[0]) if keys else {}
