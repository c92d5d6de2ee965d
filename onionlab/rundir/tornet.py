"""Compose the run directory of a `tornettools` experiment, which runs on an imported network.

Files, hosts, start times and options come from the network. The experiment decides which Tor build
each host runs and optionally changes Tor's options, the number of Markov clients and the end of the
run. Each host has the files that tornettools wrote. Lines at the end of the host's torrc-defaults
include files with the experiment's options.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations_with_replacement

from analysis.formats.files import HOST_ROLES, HOST_TEMPLATES
from analysis.formats.run_files import HostRoles, RoleOfHost, TracedHost, written
from onionlab.engines.base import Engine, Process, Simulation
from onionlab.errors import UserError
from onionlab.experiment.tor_options import PARAMETERS_SOURCE, describe_settings, experiment_layers
from onionlab.experiment.tornettools import MARKOV, TornetSettings, TornetTor
from onionlab.experiment.tornettools_networks import client_class
from onionlab.network.draws import draw_order, run_seed
from onionlab.network.layout import RELAY_ROLES, Host, Link, Network, Place
from onionlab.programs.tor.variants import TorVariant
from onionlab.rundir.compose import (
    WATCHED_ROLES,
    RunDirectory,
    clock_and_clients,
    engine_options,
    expectation,
    resolved_text,
    variant_program,
)
from onionlab.rundir.tornet_options import host_options, require_effect
from onionlab.rundir.torrc import as_file, replacing_lines
from onionlab.rundir.trace import deployed_hosts, trace_files, trace_lines, traced_hosts
from onionlab.tornet.keeping import KeptTornet
from onionlab.tornet.model import Tornet, TornetHost
from onionlab.tornet.reading import GRAPH

ONIONTRACE = "oniontrace"
NS_PER_US = 1000
_FIRST_ADDRESS = ipaddress.IPv4Address("11.0.0.0")


def compose_tornet(
    settings: TornetSettings,
    kept: KeptTornet,
    *,
    variant: TorVariant,
    baseline: TorVariant,
    engine: Engine,
    repeat: int = 1,
) -> RunDirectory:
    """Compose one run of one variant on one imported network.

    The network's seed determines everything that its runs have in common. The experiment's
    deployment determines which hosts run `variant`; the other hosts run `baseline`.

    The repeat determines the engine's random numbers, and thereby the random numbers of Tor and of
    TGen's clients. The seeds of Markov models are part of the network's files, so all repeats use
    the same seeds.

    Raises UserError if the network's files have changed since the import, contradict the
    experiment, or require something that the engine does not support.
    """
    tornet = kept.tornet
    hosts = _running_hosts(settings, tornet, kept.seed)
    roles = {name: host.role for name, host in hosts.items()}
    deployed = deployed_hosts(settings.tor.deployment, roles, kept.seed)
    variants_by_host = {
        name: variant if name in deployed else baseline
        for name, host in hosts.items()
        if any(process.program == "tor" for process in host.processes)
    }
    files = _files_of_network(kept, left_out=tornet.hosts.keys() - hosts.keys())
    relays = {name: role for name, role in roles.items() if role in RELAY_ROLES}
    traced = traced_hosts(settings.tor.trace, relays, kept.seed)
    programs = {
        name: variant_program(one, traced=name in traced) for name, one in variants_by_host.items()
    }
    options = host_options(settings.tor, hosts, variants_by_host, files)
    require_effect(settings.tor, options)
    for name, host_variant in variants_by_host.items():
        own = _own_torrc(settings.tor, hosts[name].role, host_variant, name in traced)
        files |= own
        path = _defaults_path(name, hosts[name])
        content = files[path]
        if own and content and not content.endswith(b"\n"):
            content += b"\n"
        files[path] = content + as_file(f"%include ../../../{one}" for one in own)
    processes = {
        name: _processes(settings, host, programs.get(name)) for name, host in hosts.items()
    }
    with_oniontrace = {
        name for name, own in processes.items() if any(one.program == ONIONTRACE for one in own)
    }
    address_of = addresses(tornet)
    files |= {
        **clock_and_clients(
            settings.time.stop_s,
            {name: kind for name, host in hosts.items() if (kind := client_class(host))},
        ),
        **trace_files(
            traced,
            {name: TracedHost(role=role, address=address_of[name]) for name, role in roles.items()},
        ),
        HOST_ROLES: written(
            HostRoles(
                hosts={
                    name: RoleOfHost(role=role, oniontrace=name in with_oniontrace)
                    for name, role in roles.items()
                }
            )
        ),
    }
    simulation = Simulation(
        network=_network(kept, hosts),
        processes=processes,
        seed=run_seed(kept.seed, repeat),
        stop_ms=round(settings.time.stop_s * 1000),
        options=engine_options(settings, engine.name),
        watched=tuple(name for name, host in hosts.items() if host.role in WATCHED_ROLES),
        bootstrap_end_ms=tornet.bootstrap_end_ms,
        shadow_options=tornet.options,
    )
    _check_start_times(simulation)
    files |= engine.configuration(simulation)
    engine.check_files(simulation, files)
    started = {*programs.values(), *([ONIONTRACE] if with_oniontrace else [])}
    return RunDirectory(
        files=files,
        simulation=simulation,
        expectations={
            name: replace(
                expectation(one, roles[name], traced=name in traced),
                may_never_bootstrap=roles[name] not in WATCHED_ROLES,
            )
            for name, one in variants_by_host.items()
        },
        tor_programs=tuple(sorted(started)),
        private_folders=_private_folders(files, hosts),
        tor_options=describe_settings(options),
        resolved=resolved_text(settings, variant.name, kept.seed, repeat),
    )


def addresses(tornet: Tornet) -> dict[str, str]:
    """Return each host's address: from the network's files, or else as Shadow assigns it.

    Shadow 3 counts up from 11.0.0.1 in the order of the hosts' names and skips addresses that are
    in use or end in 0 or 255 (its src/main/network/graph/mod.rs).
    """
    found = {name: host.address for name, host in tornet.hosts.items() if host.address}
    taken = set(found.values())
    latest = _FIRST_ADDRESS
    for name in sorted(tornet.hosts):
        while name not in found:
            latest += 1
            if int(latest) % 256 not in (0, 255) and str(latest) not in taken:
                found[name] = str(latest)
    return found


def _running_hosts(settings: TornetSettings, tornet: Tornet, seed: int) -> dict[str, TornetHost]:
    """Return the hosts of the network that take part in the run, sorted by name.

    The experiment sets the share of Markov clients that takes part. This share applies separately
    to clients that use exits and to clients that use onion services. All other hosts take part.
    """
    share = settings.traffic.markov_clients
    kinds: dict[str, list[str]] = {}
    for name, host in sorted(tornet.hosts.items()):
        kind = client_class(host)
        if kind is not None and kind.startswith(f"{MARKOV}-"):
            kinds.setdefault(kind, []).append(name)
    left_out = {
        name
        for names in kinds.values()
        for name in draw_order(names, seed, "markov clients")[max(1, round(share * len(names))) :]
    }
    return {name: host for name, host in sorted(tornet.hosts.items()) if name not in left_out}


def _files_of_network(kept: KeptTornet, left_out: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of the network's files, by path.

    The folders of the hosts in ``left_out`` are omitted. The graph of the network's paths is also
    omitted, because each engine writes its own.
    """
    folders = tuple(f"{HOST_TEMPLATES}/{name}/" for name in left_out)
    return {
        path: content
        for path, content in kept.contents().items()
        if path != GRAPH and not path.startswith(folders or ("\0",))
    }


def _own_torrc(tor: TornetTor, role: str, variant: TorVariant, is_traced: bool) -> dict[str, bytes]:
    """Return the experiment's files for a host with Tor, in the order in which Tor reads them.

    A later line overrides an earlier one.
    """
    lines: dict[str, list[str]] = {}
    for layer in experiment_layers(role, tor, variant):
        # Consensus parameters go into the file with the other options of authorities.
        name = "authority" if layer.source == PARAMETERS_SOURCE else layer.source.split(".")[-1]
        lines.setdefault(name.replace(" ", "."), []).extend(replacing_lines(layer.options))
    lines["trace"] = trace_lines(is_traced)
    return {
        f"conf/onionlab.{name}.torrc": as_file(content)
        for name, content in lines.items()
        if content
    }


def _defaults_path(name: str, host: TornetHost) -> str:
    """Return the path of the file of defaults that a host's Tor reads.

    Raises UserError if this file is not in the host's own folder.
    """
    (tor,) = (process for process in host.processes if process.program == "tor")
    folder = f"{HOST_TEMPLATES}/{name}"
    given = tor.arguments[tor.arguments.index("--defaults-torrc") + 1]
    path = posixpath.normpath(f"{folder}/{given}")
    if not path.startswith(f"{folder}/"):
        raise UserError(
            f"{name}: its file of defaults, {path}, is not in its own folder, so options of this "
            "host would also apply to others",
            "give each host its own torrc-defaults, as tornettools does, and import the network "
            "again",
        )
    return path


def _network(kept: KeptTornet, hosts: Mapping[str, TornetHost]) -> Network:
    graph = kept.path_graph()
    ids = sorted({host.node for host in hosts.values()})
    # The bandwidth of a place has no effect, because all hosts have their own links.
    places = {n: Place(f"node{n}", f"node{n}", 10**9, 10**9) for n in ids}
    address_of = addresses(kept.tornet)
    latency_us: dict[tuple[str, str], int] = {}
    loss: dict[tuple[str, str], float] = {}
    for a, b in combinations_with_replacement(ids, 2):
        path = graph.paths[a, b]
        pair = (places[a].name, places[b].name)
        if path.latency_ns % NS_PER_US:
            raise UserError(
                f"{kept.directory / GRAPH} has a latency of {path.latency_ns} ns, but paths must "
                "have whole microseconds",
                "generate the network with an atlas that has such latencies, for example "
                "tornettools' atlas",
            )
        latency_us[pair] = path.latency_ns // NS_PER_US
        loss[pair] = path.packet_loss
    return Network(
        hosts=tuple(
            Host(
                name=name,
                role=host.role,
                traffic_class=client_class(host),
                place=places[host.node].name,
                address=address_of[name],
                link=Link(host.up_bit_per_s, host.down_bit_per_s),
            )
            for name, host in hosts.items()
        ),
        places=tuple(places.values()),
        latency_us=latency_us,
        packet_loss=0.0,
        path_loss=loss,
    )


def _processes(settings: TornetSettings, host: TornetHost, tor: str | None) -> tuple[Process, ...]:
    """Return the processes of a host. tor: the base name of its Tor binary."""
    return tuple(
        Process(**one.model_dump() | ({"program": tor} if one.program == "tor" else {}))
        for one in host.processes
        if one.program != ONIONTRACE or settings.network.oniontrace != "none"
    )


def _check_start_times(simulation: Simulation) -> None:
    """Raise UserError if a program would start after the simulation has ended."""
    started = ((name, one) for name, own in simulation.processes.items() for one in own)
    for name, process in started:
        if process.start_ms >= simulation.stop_ms:
            raise UserError(
                f"{name} starts {process.program} after {process.start_ms / 1000:g} s, but the "
                f"simulation ends after {simulation.stop_ms / 1000:g} s",
                "set a later `time: stop`",
            )


def _private_folders(files: Iterable[str], hosts: Mapping[str, TornetHost]) -> tuple[str, ...]:
    """Return the folders that only their owner may read, as when tornettools generated the keys.

    All other folders remain readable by everyone until Tor uses them in a run: it restricts their
    permissions and logs this.
    """
    found = {f"{HOST_TEMPLATES}/{name}" for name, host in hosts.items() if host.fingerprint}
    found |= {
        posixpath.dirname(path)
        for path in files
        if path.startswith(f"{HOST_TEMPLATES}/") and "secret" in posixpath.basename(path)
    }
    return tuple(sorted(found))
