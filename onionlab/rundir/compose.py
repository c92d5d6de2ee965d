"""Compose a run directory: network, keys, torrc, tgen graphs and the engine's files.

The result is a function of settings, variant, seed and repeat. The seed determines the network.
Repeats on the same network have different random numbers. No path, time or name of the machine is
used, so the same inputs result in the same bytes everywhere. The run's name is a hash of these
files, the programs and the engine.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from analysis.formats.files import CLIENTS, HOST_TEMPLATES, RESOLVED, RUN
from analysis.formats.manifest import TorrcSetting, identity_hash
from analysis.formats.run_files import Clients, RunClock, TracedHost, written
from onionlab.engines.base import EPOCH_UNIX_S, Engine, Process, Simulation
from onionlab.experiment import AnySettings
from onionlab.experiment.network_settings import NetworkSettings, RelayRole
from onionlab.experiment.settings import FIRST_CONSENSUS_S, ONION_SERVICES_START_S, Settings
from onionlab.experiment.tor_options import describe_settings, keep_options, read_defaults
from onionlab.network.draws import run_seed
from onionlab.network.geography import load_geography, load_relays
from onionlab.network.layout import RELAY_ROLES, Host, Network
from onionlab.network.sample import NetworkRequest, RelayGroup, sample_network
from onionlab.programs.arti import ArtiClient
from onionlab.programs.building import BuiltProgram
from onionlab.programs.installed import has_aes, shared_libraries
from onionlab.programs.tor.variants import STOCK, TorVariant
from onionlab.rundir import torrc, traffic
from onionlab.rundir.arti import CONFIGURATION, arti_process, arti_settings
from onionlab.rundir.circuits import APP_LOG, RENDEZVOUS_LOG, Rendezvous, SharedCircuit
from onionlab.rundir.keys import RelayKeys, load_keys, make_onion_service_keys
from onionlab.rundir.torrc import TorrcFiles
from onionlab.rundir.trace import (
    EXITS,
    deployed_hosts,
    trace_files,
    trace_lines,
    traced_hosts,
    traced_series,
)
from onionlab.rundir.verify import ARTI_CLIENT, Expectation, ProofRequirement
from onionlab.yamlfile.units import milliseconds

RUN_FORMAT = 1

# During the bootstrap, authorities start first, then relays, so that the first consensus (20 s,
# configs/tor/common.torrc) contains all relays. Clients start when they can fetch a consensus.
AUTHORITY_START_MS = 1_000
RELAY_START_MS = (2_000, 8_000)
CLIENT_START_SHARE_OF_BOOTSTRAP = (0.75, 0.9)

# Hosts with these roles, authorities and relays, show early which variant is in use. So their logs
# are read during the run.
WATCHED_ROLES = ("authority", *RELAY_ROLES)


@dataclass(frozen=True)
class RunDirectory:
    """A run that has not been simulated yet.

    Attributes:
        files: relative path -> content.
        simulation: the inputs of the engine.
        expectations: host name -> what the log of the host's program must contain. This is an
            `Expectation` for Tor, or the name of the request rule for a libtorrent peer.
        tor_programs: base names of the built programs in use.
        private_folders: folders that only their owner may read. Tor requires this of a
            HiddenServiceDir.
        tor_options: for the manifest: kind of host -> name of a torrc option -> its setting.
        resolved: content of resolved.yaml, which is not part of the identity.
    """

    files: dict[str, bytes]
    simulation: Simulation
    expectations: Mapping[str, Any]
    tor_programs: tuple[str, ...]
    private_folders: tuple[str, ...] = ()
    tor_options: dict[str, dict[str, TorrcSetting]] = field(default_factory=dict)
    resolved: str = ""

    def identity(self, programs: Mapping[str, BuiltProgram], engine: Engine) -> dict[str, Any]:
        """Return everything that determines the run's results."""
        return {
            "format": RUN_FORMAT,
            "files": {
                path: hashlib.sha256(content).hexdigest()
                for path, content in sorted(self.files.items())
            },
            "programs": {name: programs[name].sha256 for name in self.tor_programs},
            "libraries": {
                library: sha256
                for path in (
                    *(programs[name].path for name in self.tor_programs),
                    *engine.programs.values(),
                )
                for library, sha256 in shared_libraries(path).items()
            },
            "processor": {"aes": has_aes()},
            "engine": engine.identity,
        }

    def run_id(self, programs: Mapping[str, BuiltProgram], engine: Engine) -> str:
        """Return the run's name in the store."""
        return identity_hash(self.identity(programs, engine))

    def write(self, directory: Path) -> None:
        """Write the files below `directory`."""
        for relative, content in self.files.items():
            path = directory / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if self.resolved:
            (directory / RESOLVED).write_text(self.resolved, encoding="utf-8")
        # Set all permissions, because they would otherwise depend on the umask: under Shadow, Tor
        # logs each permission that it corrects, so logs would differ between machines.
        for parent in {parent for relative in self.files for parent in Path(relative).parents}:
            (directory / parent).chmod(0o755)
        for folder in self.private_folders:
            (directory / folder).chmod(0o700)


def compose(
    root: Path,
    settings: Settings,
    *,
    variant: TorVariant,
    baseline: TorVariant,
    seed: int,
    engine: Engine,
    repeat: int = 1,
    known_options: Collection[str] | None = None,
) -> RunDirectory:
    """Compose one run of one variant on the network that ``seed`` determines.

    baseline: the variant of the hosts to which the experiment does not deploy ``variant``.
    known_options: torrc options that the built Tor supports, in lower case; None if unknown. Raises
    UserError if no network can be drawn with these settings.
    """
    network = sample_network(network_request(root, settings), seed)
    own_seed = run_seed(seed, repeat)
    keys = {h.name: load_keys(root, seed, h.name) for h in network.relays} | {
        h.name: load_keys(root, seed, h.name, is_authority=True)
        for h in network.by_role("authority")
    }
    services = {h.name: _onion_keys(seed, h.name) for h in network.by_role("onion-service")}
    deployed = deployed_hosts(
        settings.tor.deployment, {h.name: h.role for h in network.hosts}, seed
    )
    traced = traced_hosts(settings.tor.trace, {h.name: h.role for h in network.relays}, seed)
    variants = {
        h.name: variant if h.name in deployed else baseline
        for h in network.hosts
        if h.role != "server"
    }
    arti = {
        h.name: client
        for h in network.by_role("client")
        if (client := variants[h.name].client) is not None
    }
    programs = {
        name: arti[name].program if name in arti else variant_program(one, traced=name in traced)
        for name, one in variants.items()
    }
    own = {
        host.name: [*_own_options(settings, host), *trace_lines(host.name in traced)]
        for host in network.hosts
    }
    torrcs = TorrcFiles(
        network,
        keys,
        tor=settings.tor,
        variants={v.name: v for n, v in variants.items() if n not in arti}.values(),
        defaults=keep_options(read_defaults(root), settings.tor.consensus_params, known_options),
    )
    files = {
        **torrcs.shared,
        torrc.BANDWIDTH_FILE: torrc.bandwidth_file(
            network, keys, dedicated_middles=settings.network.middle_hops == "dedicated"
        ),
        **traffic.traffic_files(root, settings, network, services, own_seed),
        **clock_and_clients(
            settings.time.stop_s,
            {host.name: host.traffic_class or "" for host in network.by_role("client")},
        ),
        **trace_files(
            traced, {h.name: TracedHost(role=h.role, address=h.address) for h in network.hosts}
        ),
    }
    if arti:
        files[CONFIGURATION] = arti_settings(network, keys, seed)
    options = []
    for host in network.hosts:
        folder = f"{HOST_TEMPLATES}/{host.name}"
        if host.name in keys:
            files |= {f"{folder}/keys/{name}": c for name, c in keys[host.name].files.items()}
        if host.name in services:
            service = services[host.name].files.items()
            files |= {f"{folder}/{torrc.ONION_SERVICE_FOLDER}/{name}": c for name, c in service}
        if host.name in variants and host.name not in arti:
            own_variant = variants[host.name]
            files |= torrcs.host_files(host, own_variant, own[host.name])
            options.append(torrcs.options(host.role, own_variant, own[host.name]))
    simulation = Simulation(
        network=network,
        processes={
            host.name: _processes(
                settings,
                network,
                host,
                programs.get(host.name),
                arti.get(host.name),
                seed,
                own_seed,
            )
            for host in network.hosts
        },
        seed=own_seed,
        stop_ms=milliseconds(settings.time.stop_s),
        options=engine_options(settings, engine.name),
        watched=tuple(host.name for host in network.hosts if host.role in WATCHED_ROLES),
        endless_streams=traffic.endless_streams(settings, files),
    )
    files |= engine.configuration(simulation)
    return RunDirectory(
        files=files,
        simulation=simulation,
        expectations={
            host.name: ARTI_CLIENT
            if host.name in arti
            else replace(
                expectation(variants[host.name], host.role, traced=host.name in traced),
                circuit=_required_circuits(settings, network, keys, host),
            )
            for host in network.hosts
            if host.name in variants
        },
        tor_programs=tuple(sorted({*programs.values(), *traffic.peer_programs(settings)})),
        private_folders=tuple(
            f"{HOST_TEMPLATES}/{name}/{torrc.ONION_SERVICE_FOLDER}" for name in sorted(services)
        ),
        tor_options=describe_settings(options),
        resolved=resolved_text(settings, variant.name, seed, repeat),
    )


def resolved_text(settings: AnySettings, variant: str, seed: int, repeat: int) -> str:
    """Return the content of resolved.yaml: the settings of a run with all defaults, as YAML."""
    content = {"variant": variant, "seed": seed, "repeat": repeat}
    return yaml.safe_dump(content | settings.model_dump(mode="json"), sort_keys=False)


def variant_program(variant: TorVariant, *, traced: bool = False) -> str:
    """Return the base name of a variant's Tor binary.

    traced: whether the binary also traces cells.
    """
    series = traced_series(variant.series) if traced else variant.series
    return "-".join(filter(None, ["tor", series or STOCK, variant.source_id]))


def clock_and_clients(stop_s: float, clients: dict[str, str]) -> dict[str, bytes]:
    """Return the files that list the run's times and its clients.

    clients: name of a client -> its class.
    """
    return {
        CLIENTS: written(Clients(clients)),
        RUN: written(RunClock(epoch_unix_s=EPOCH_UNIX_S, stop_s=stop_s)),
    }


def expectation(variant: TorVariant, role: str, *, traced: bool) -> Expectation:
    """Return what the log of a variant's host must contain."""
    is_relay = role in WATCHED_ROLES
    # A client or an onion service need not log a proof, because its circuits may carry no traffic.
    requirement = ProofRequirement.MUST if is_relay else ProofRequirement.MAY
    if variant.proof_from == "an-exit":
        # Such variants log their proof only when a stream has to wait, which happens only at exits.
        requirement = ProofRequirement.ONE_OF if role in EXITS else ProofRequirement.MAY
    return Expectation(
        proof=variant.proof,
        is_client=not is_relay,
        requirement=requirement,
        traced=traced,
        # A commit or a tarball can contain the patches of a series, for example after `git am`.
        # Which program runs is known nevertheless: the manifest has its source and its hash.
        any_proof=variant.has_own_code and variant.series is None,
    )


def mean_capacity_bit_per_s(root: Path, network: NetworkSettings, role: RelayRole) -> float:
    """Return the mean capacity of a role's relays before the experiment's factors are applied."""
    relays = load_relays(root, role.capacity)
    both = network.limited_by == "both"
    capacities = [one.carries_bit_per_s if both else one.link_bit_per_s for one in relays]
    return sum(capacities) / len(capacities)


def network_request(root: Path, settings: Settings) -> NetworkRequest:
    """Return the request from which `sample_network` generates a network with these settings."""
    net = settings.network
    groups = {}
    for role, entry in net.relays.items():
        groups[role] = RelayGroup(
            count=entry.count,
            source=load_relays(root, entry.capacity),
            total_bit_per_s=entry.count
            * mean_capacity_bit_per_s(root, net, entry)
            * net.capacity_total_factor(role),
            limited_by=net.limited_by,
            representative=net.capacities == "representative",
            rate_bit_per_s=entry.bandwidth_rate_bit_per_s,
        )
    return NetworkRequest(
        geography=load_geography(root, net.geography),
        authorities=net.authorities,
        relays=groups,
        servers=net.servers.count,
        server_bit_per_s=net.servers.bandwidth_bit_per_s,
        clients={name: entry.count for name, entry in settings.traffic.items()},
        client_bit_per_s=net.clients.bandwidth_bit_per_s,
        perf_clients=net.perf_clients,
        packet_loss=net.packet_loss,
        onion_services=net.onion_services,
    )


def _processes(
    settings: Settings,
    network: Network,
    host: Host,
    tor: str | None,
    arti: ArtiClient | None,
    seed: int,
    own_seed: int,
) -> tuple[Process, ...]:
    """Return the processes of a host.

    tor: the name of its Tor binary; None for a server. arti: the version of Arti that the host runs
    in place of Tor, or None. seed: the network's seed, which determines the start times of relays
    and onion services. own_seed: the run's seed.
    """
    if tor is None:
        return traffic.server_processes(settings, host, own_seed)
    bootstrap_ms = milliseconds(settings.time.bootstrap_s)
    if host.role == "client":
        early_ms, late_ms = (
            max(milliseconds(FIRST_CONSENSUS_S), round(share * bootstrap_ms))
            for share in CLIENT_START_SHARE_OF_BOOTSTRAP
        )
        start_ms = traffic.draw_ms(early_ms, late_ms, own_seed, "tor start", host.name)
    elif host.role == "authority":
        start_ms = AUTHORITY_START_MS
    else:
        is_service = host.role == "onion-service"
        first_ms, last_ms = (
            map(milliseconds, ONION_SERVICES_START_S) if is_service else RELAY_START_MS
        )
        start_ms = traffic.draw_ms(first_ms, last_ms, seed, "tor start", host.name)
    arguments = ("--defaults-torrc", "torrc-defaults", "-f", "torrc")
    processes = (Process(program=tor, arguments=arguments, start_ms=start_ms),)
    if arti is not None:
        processes = (arti_process(arti, start_ms),)
    if host.role == "onion-service":
        return (*processes, traffic.onion_service_process())
    if host.role == "client":
        return (*processes, traffic.client_process(settings, network, host, own_seed))
    return processes


def _own_options(settings: Settings, host: Host) -> list[str]:
    """Return the torrc lines that a host has because of its role or class."""
    if host.role == "onion-service":
        return [f"+Log {RENDEZVOUS_LOG}"]
    if host.role == "client":
        entry = settings.traffic.get(host.traffic_class or "")
        if entry is not None and entry.to == "onion-services":
            return [f"+Log {RENDEZVOUS_LOG}"]
        return [f"+Log {APP_LOG}"] if entry is not None and entry.circuit == "one" else []
    if host.own_limit is not None:
        return [
            f"BandwidthRate {host.own_limit.rate_bytes_per_s} bytes",
            f"BandwidthBurst {host.own_limit.burst_bytes} bytes",
        ]
    role = dict(settings.network.relays.items()).get(host.role)
    if role is None or role.bandwidth_rate_bit_per_s is None:
        return []
    rate = f"{role.bandwidth_rate_bit_per_s // 8} bytes"
    # With Tor's default burst of a gigabyte, the rate would hardly ever limit a relay.
    return [f"BandwidthRate {rate}", f"BandwidthBurst {rate}"]


def _required_circuits(
    settings: Settings, network: Network, keys: Mapping[str, RelayKeys], host: Host
) -> SharedCircuit | Rendezvous | None:
    """Return the circuits that a client's streams have to use; None if any circuit is valid."""
    entry = settings.traffic.get(host.traffic_class or "")
    if entry is None:
        return None

    def fingerprints(*roles: str) -> frozenset[str]:
        return frozenset(keys[host.name].fingerprint for host in network.by_role(*roles))

    guards = fingerprints("guard", "exitguard")
    if entry.to == "onion-services":
        return Rendezvous(guards, frozenset(one.fingerprint for one in keys.values()))
    if entry.circuit != "one":
        return None
    only_middles = settings.network.middle_hops == "dedicated" and network.by_role("middle")
    middles = fingerprints("middle") if only_middles else fingerprints(*RELAY_ROLES)
    return SharedCircuit(entry.streams, (guards, middles, fingerprints(*EXITS)))


def engine_options(settings: AnySettings, engine: str) -> dict[str, Any]:
    """Return the experiment's options for one engine."""
    own = getattr(settings.engine, engine, None)
    return own.model_dump() if own is not None else {}


# Cache the keys, because all runs on a network use the same keys.
_onion_keys = functools.cache(make_onion_service_keys)
