"""Compose a run directory: network, keys, torrc, tgen graphs and the engine's files.

The result is a function of settings, variant, seed and repeat. The seed determines the network, and
the repeat the differences between its runs. No path, time or name of the machine is used, so the
same inputs result in the same bytes everywhere. Their hash is the run's name.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from analysis.formats.files import CLIENTS, HOST_TEMPLATES, RUN, TRACE_PLAN
from analysis.formats.manifest import TorrcSetting, identity_hash
from analysis.formats.run_files import Clients, RunClock, TracedHost, written
from onionlab.engines.base import EPOCH_UNIX_S, Engine, Process, Simulation
from onionlab.experiment import AnySettings
from onionlab.experiment.schema import (
    FIRST_CONSENSUS_S,
    ONION_SERVICES_START_S,
    NetworkSettings,
    RelayRole,
    Settings,
    TrafficClass,
)
from onionlab.experiment.schema.traffic_settings import MARKOV
from onionlab.experiment.tor_options import (
    SOCKS_PORT,
    Layer,
    describe_settings,
    parse_options,
)
from onionlab.network import (
    Host,
    Network,
    NetworkRequest,
    RelayGroup,
    load_geography,
    load_relays,
    sample_network,
)
from onionlab.network.draws import draw, draw_integer, draw_order, run_seed
from onionlab.network.layout import RELAY_ROLES
from onionlab.network.sample import PERF_CLASS
from onionlab.programs.installed import has_aes, shared_libraries
from onionlab.programs.libtorrent.build import peer_program
from onionlab.programs.tor.variants import TorVariant
from onionlab.rundir import keys, markov, tgen, torrc
from onionlab.rundir.circuits import APP_LOG, SharedCircuit
from onionlab.rundir.keycache import authority_keys, relay_keys
from onionlab.rundir.rendezvous import RENDEZVOUS_LOG, Rendezvous
from onionlab.rundir.shares import select_share
from onionlab.rundir.trace import trace_lines, trace_plan, traced_hosts, traced_series
from onionlab.rundir.verify_tor import Expectation, ProofRequirement

RUN_FORMAT = 1

# During the bootstrap, authorities start first, then relays, so that the first consensus (20 s,
# configs/tor/common.torrc) contains all relays. Clients start when they can fetch a consensus.
AUTHORITY_START_MS = 1_000
RELAY_START_MS = (2_000, 8_000)
CLIENT_START_SHARE_OF_BOOTSTRAP = (0.75, 0.9)
SERVER_START_MS = 1_000

# The clients and sizes that tornettools' `plot` command expects (50 KiB, 1 MiB, 5 MiB).
PERF_REQUEST_BYTES = 51_200
PERF_PAUSE_MS = 60_000
PERF_TIMEOUT_MS = 15_000

# For downloads in pieces, servers use one port per traffic class.
PIECES_FIRST_PORT = 6881
PIECES_SAMPLE_US = 1_000_000

# Roles whose logs show early which variant is in use: all hosts with Tor except clients.
WATCHED_ROLES = ("authority", *RELAY_ROLES)

# TGen needs only one thread, and the threads of OpenBLAS, a dependency of igraph, spin under
# Shadow.
TGEN_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class BuiltProgram(Protocol):
    """The properties of a built program that determine a run's identity."""

    @property
    def path(self) -> Path:
        """The path of the executable."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the executable."""


@dataclass(frozen=True)
class RunDirectory:
    """A run that has not been simulated yet.

    files: relative path -> content; expectations: host -> required log content of its program, in
    the form of the experiment's kind; tor_programs: base names of the built programs in use;
    private_folders: folders that only their owner may read, which Tor requires of a
    HiddenServiceDir; tor_options: kind of host -> torrc option -> its setting, for the manifest.
    """

    files: dict[str, bytes]
    simulation: Simulation
    expectations: Mapping[str, Any]
    tor_programs: tuple[str, ...]
    private_folders: tuple[str, ...] = ()
    tor_options: dict[str, dict[str, TorrcSetting]] = field(default_factory=dict)

    def identity(self, programs: Mapping[str, BuiltProgram], engine: Engine) -> dict[str, Any]:
        """Return everything that determines the run's results."""
        return {
            "format": RUN_FORMAT,
            "files": {
                path: hashlib.sha256(content).hexdigest()
                for path, content in sorted(self.files.items())
            },
            "programs": {name: programs[name].sha256 for name in self.tor_programs},
            "libraries": self._libraries(programs, engine),
            "processor": {"aes": has_aes()},
            "engine": engine.identity,
        }

    def _libraries(self, programs: Mapping[str, BuiltProgram], engine: Engine) -> dict[str, str]:
        """Return the shared libraries of all programs: file name -> SHA-256."""
        built = [programs[name].path for name in self.tor_programs]
        libraries: dict[str, str] = {}
        for path in [*built, *engine.programs.values()]:
            libraries |= shared_libraries(path)
        return libraries

    def run_id(self, programs: Mapping[str, BuiltProgram], engine: Engine) -> str:
        """Return the run's name in the store."""
        return identity_hash(self.identity(programs, engine))

    def write(self, directory: Path) -> None:
        """Write the files below `directory`."""
        for relative, content in self.files.items():
            path = directory / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        # Do not depend on the umask: under Shadow, Tor logs permissions that it corrects.
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
    """Compose one run of one variant on the network of a seed.

    baseline: the variant for hosts outside the experiment's deployment; known_options: torrc
    options that the built Tor supports, in lower case. Raises UserError if the network is
    impossible.
    """
    network = sample_network(network_request(root, settings), seed)
    own_seed = run_seed(seed, repeat)
    authorities = {h.name: authority_keys(root, seed, h.name) for h in network.by_role("authority")}
    relays = {h.name: relay_keys(root, seed, h.name) for h in network.relays}
    services = {h.name: _onion_keys(seed, h.name) for h in network.by_role("onion-service")}
    deployed = _deployed_hosts(settings, network, seed)
    traced = traced_hosts(settings.tor.trace, {h.name: h.role for h in network.relays}, seed)
    variants_by_host = {
        h.name: variant if h.name in deployed else baseline
        for h in network.hosts
        if h.role != "server"
    }

    in_use = {v.name: v for v in variants_by_host.values()}
    programs = {
        name: tor_program(traced_series(v.series) if name in traced else v.series)
        for name, v in variants_by_host.items()
    }

    files = torrc.shared_files(
        root,
        network=network,
        authorities=authorities,
        relays=relays,
        tor=settings.tor,
        variants=in_use.values(),
        known_options=known_options,
    )
    shared = frozenset(files)
    shared_layers = functools.cache(
        lambda role, name: torrc.shared_layers(
            root, settings.tor, known_options, role, in_use[name]
        )
    )
    layers: list[tuple[str, TorVariant, list[Layer]]] = []
    files[torrc.BANDWIDTH_FILE] = torrc.bandwidth_file(
        network,
        authorities,
        relays,
        dedicated_middles=settings.network.middle_hops == "dedicated",
    )
    files |= _traffic_files(root, settings, network, services, own_seed)
    plan = trace_plan(
        traced, {h.name: TracedHost(role=h.role, address=h.address) for h in network.hosts}
    )
    if plan is not None:
        files[TRACE_PLAN] = written(plan)
    processes: dict[str, tuple[Process, ...]] = {}
    for host in network.hosts:
        if host.role == "server":
            processes[host.name] = (
                _tgen_process("server", SERVER_START_MS),
                *_seed_processes(settings, host, own_seed),
            )
            continue
        host_variant = variants_by_host[host.name]
        own = [*_own_options(settings, host), *trace_lines(host.name in traced)]
        files |= torrc.host_files(host, variant=host_variant.name, shared=shared, own=own)
        below = shared_layers(host.role, host_variant.name)
        own_layer = Layer("its own torrc", parse_options("\n".join(own)), file="torrc")
        layers.append((host.role, host_variant, [*below, own_layer]))
        own_keys = authorities.get(host.name) or relays.get(host.name)
        for name, content in (own_keys.files if own_keys else {}).items():
            files[f"{HOST_TEMPLATES}/{host.name}/keys/{name}"] = content
        if host.name in services:
            folder = f"{HOST_TEMPLATES}/{host.name}/{torrc.ONION_SERVICE_FOLDER}"
            files |= {f"{folder}/{name}": c for name, c in services[host.name].files.items()}
        processes[host.name] = _host_processes(
            settings,
            network,
            host,
            programs[host.name],
            own_seed if host.role == "client" else seed,
        )

    simulation = Simulation(
        network=network,
        processes=processes,
        seed=own_seed,
        stop_ms=_ms(settings.time.stop_s),
        options=engine_options(settings, engine.name),
        watched=tuple(host.name for host in network.hosts if host.role in WATCHED_ROLES),
        endless_streams=markov.endless_streams(settings, files),
    )
    files |= engine.configuration(simulation)
    return RunDirectory(
        files=files,
        simulation=simulation,
        expectations={
            host.name: replace(
                _expectation(
                    settings, network, relays, authorities, host, variants_by_host[host.name]
                ),
                traced=host.name in traced,
            )
            for host in network.hosts
            if host.role != "server"
        },
        tor_programs=tuple(
            sorted(
                {
                    *programs.values(),
                    *(peer_program(entry.request_rule) for _, entry in _pieces_classes(settings)),
                }
            )
        ),
        private_folders=tuple(
            f"{HOST_TEMPLATES}/{name}/{torrc.ONION_SERVICE_FOLDER}" for name in sorted(services)
        ),
        tor_options=describe_settings(layers),
    )


def tor_program(series: str | None) -> str:
    """Return the base name of the Tor binary of a patch series."""
    return f"tor-{series or 'stock'}"


def mean_capacity_bit_per_s(root: Path, network: NetworkSettings, role: RelayRole) -> float:
    """Return the mean capacity of a role's relays before the factors are applied."""
    relays = load_relays(root, role.capacity)
    both = network.limited_by == "both"
    return sum(one.carries_bit_per_s if both else one.link_bit_per_s for one in relays) / len(
        relays
    )


def network_request(root: Path, settings: Settings) -> NetworkRequest:
    """Return the request for a network with these settings."""
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


def _traffic_files(
    root: Path,
    settings: Settings,
    network: Network,
    services: Mapping[str, keys.OnionServiceKeys],
    seed: int,
) -> dict[str, bytes]:
    """Return the tgen graphs and the files with the clients' roles and the run's clock.

    Raises UserError if a Markov model is missing or invalid.
    """
    peers = {
        "servers": [host.name for host in network.by_role("server")],
        "onion-services": [one.address for one in services.values()],
    }
    client_graph = functools.partial(
        tgen.client_graph,
        heartbeat_ms=_ms(settings.engine.tgen.heartbeat_s),
        log_level=settings.engine.tgen.loglevel,
    )
    files = {"conf/tgen.server.graphml": tgen.server_graph()}
    for name, entry in settings.traffic.items():
        if entry.kind == MARKOV:
            files |= markov.markov_files(
                root, name, entry, settings, network, servers=peers[entry.to], seed=seed
            )
        if entry.kind != "tgen":
            continue
        assert entry.request_bytes is not None
        files[f"conf/tgen.{name}.graphml"] = client_graph(
            servers=peers[entry.to],
            request_bytes=entry.request_bytes,
            pause_choices_ms=[_ms(time_s) for time_s in entry.pause.times_s],
            timeout_ms=_ms(entry.timeout_s or 0),
            stallout_ms=_ms(entry.stallout_s or 0),
            streams=entry.streams,
            stagger_ms=_ms(entry.stagger_s),
            repeat=entry.repeat == "forever",
        )
    if settings.network.perf_clients:
        files[f"conf/tgen.{PERF_CLASS}.graphml"] = client_graph(
            servers=peers["servers"],
            request_bytes=PERF_REQUEST_BYTES,
            pause_choices_ms=[PERF_PAUSE_MS],
            timeout_ms=PERF_TIMEOUT_MS,
            stallout_ms=0,
        )
    clients = {host.name: host.traffic_class or "" for host in network.by_role("client")}
    files[CLIENTS] = written(Clients(clients))
    files[RUN] = written(RunClock(epoch_unix_s=EPOCH_UNIX_S, stop_s=settings.time.stop_s))
    return files


def _pieces_classes(settings: Settings) -> list[tuple[int, TrafficClass]]:
    """Return the classes that fetch in pieces, each with its port on the servers."""
    return [
        (PIECES_FIRST_PORT + number, entry)
        for number, (_, entry) in enumerate(sorted(settings.traffic.items()))
        if entry.kind == "pieces"
    ]


def _peer_arguments(entry: TrafficClass, seed: int) -> tuple[str, ...]:
    """Return the arguments on which both ends of a class's downloads have to agree."""
    return (
        *("--transport", "tcp"),
        *("--size", str(entry.request_bytes)),
        *("--content-seed", str(seed)),
        # The logs are needed for streams only, not for every change of the requests.
        *("--sample-us", str(PIECES_SAMPLE_US)),
    )


def _seed_processes(settings: Settings, host: Host, seed: int) -> tuple[Process, ...]:
    """Return the peers of a server, one for each class that fetches in pieces."""
    return tuple(
        Process(
            program=peer_program(entry.request_rule),
            arguments=(
                *("seed", "--listen", host.name, "--port", str(port)),
                *_peer_arguments(entry, seed),
            ),
            start_ms=SERVER_START_MS,
        )
        for port, entry in _pieces_classes(settings)
    )


def _pieces_process(
    settings: Settings, network: Network, host: Host, entry: TrafficClass, start_ms: int, seed: int
) -> Process:
    """Return a client that fetches in pieces: sequential downloads, each from one server."""
    (port,) = (port for port, other in _pieces_classes(settings) if other is entry)
    servers = ",".join(f"{server.name}:{port}" for server in network.by_role("server"))
    pauses_ms = [_ms(time_s) for time_s in entry.pause.times_s]
    return Process(
        program=peer_program(entry.request_rule),
        arguments=(
            *("fetch", "--from", servers),
            *("--socks", f"127.0.0.1:{SOCKS_PORT}"),
            *_peer_arguments(entry, seed),
            *("--downloads", "0"),
            *(("--pause-ms", ",".join(map(str, pauses_ms))) if pauses_ms else ()),
            *("--timeout-ms", str(_ms(entry.timeout_s or 0))),
            *("--draw-seed", str(draw_integer(0, 2**31 - 1, seed, "pieces", host.name))),
        ),
        start_ms=start_ms,
    )


def _host_processes(
    settings: Settings, network: Network, host: Host, program: str, seed: int
) -> tuple[Process, ...]:
    bootstrap_ms = _ms(settings.time.bootstrap_s)
    if host.role == "authority":
        tor_start_ms = AUTHORITY_START_MS
    elif host.role == "onion-service":
        first_ms, last_ms = map(_ms, ONION_SERVICES_START_S)
        tor_start_ms = _draw_ms(first_ms, last_ms, seed, "tor start", host.name)
    elif host.role == "client":
        early, late = (round(share * bootstrap_ms) for share in CLIENT_START_SHARE_OF_BOOTSTRAP)
        first_ms = max(_ms(FIRST_CONSENSUS_S), early)
        tor_start_ms = _draw_ms(first_ms, max(first_ms, late), seed, "tor start", host.name)
    else:
        tor_start_ms = _draw_ms(*RELAY_START_MS, seed, "tor start", host.name)
    tor = Process(
        program=program,
        arguments=("--defaults-torrc", "torrc-defaults", "-f", "torrc"),
        start_ms=tor_start_ms,
    )
    if host.role == "onion-service":
        # Only the service's own Tor process connects to it.
        loopback = {**TGEN_ENVIRONMENT, "TGENIP": "127.0.0.1"}
        server = replace(_tgen_process("server", SERVER_START_MS), environment=loopback)
        return (tor, server)
    if host.role != "client":
        return (tor,)
    assert host.traffic_class is not None
    entry = settings.traffic.get(host.traffic_class)
    after_s, spread_s = (entry.start.after_s, entry.start.spread_s) if entry else (0.0, 60.0)
    first_ms = bootstrap_ms + _ms(after_s)
    start_ms = _draw_ms(first_ms, first_ms + _ms(spread_s), seed, "traffic start", host.name)
    if entry is not None and entry.kind == "pieces":
        return (tor, _pieces_process(settings, network, host, entry, start_ms, seed))
    if entry is not None and entry.kind == MARKOV:
        return (tor, Process("tgen", (markov.GRAPH,), start_ms, TGEN_ENVIRONMENT))
    return (tor, _tgen_process(host.traffic_class, start_ms))


def _tgen_process(graph: str, start_ms: int) -> Process:
    return Process("tgen", (f"../../../conf/tgen.{graph}.graphml",), start_ms, TGEN_ENVIRONMENT)


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
    # Tor's default burst is a gigabyte, which would never take effect.
    return [f"BandwidthRate {rate}", f"BandwidthBurst {rate}"]


def _one_circuit(
    settings: Settings,
    network: Network,
    relays: Mapping[str, keys.RelayKeys],
    traffic_class: str | None,
) -> SharedCircuit | None:
    """Return the circuit that a client's streams have to share, or None if they need not."""
    entry = settings.traffic.get(traffic_class or "")
    if entry is None or entry.circuit != "one":
        return None
    roles = [("guard", "exitguard"), RELAY_ROLES, ("exit", "exitguard")]
    if settings.network.middle_hops == "dedicated" and network.by_role("middle"):
        roles[1] = ("middle",)
    hops = tuple(
        frozenset(relays[host.name].fingerprint for host in network.by_role(*allowed))
        for allowed in roles
    )
    return SharedCircuit(entry.streams, hops)


def _rendezvous(
    settings: Settings,
    network: Network,
    relays: Mapping[str, keys.RelayKeys],
    authorities: Mapping[str, keys.AuthorityKeys],
    traffic_class: str | None,
) -> Rendezvous | None:
    """Return the relays allowed in a client's circuits to onion services, if it builds any."""
    entry = settings.traffic.get(traffic_class or "")
    if entry is None or entry.to != "onion-services":
        return None
    guards = network.by_role("guard", "exitguard")
    return Rendezvous(
        guards=frozenset(relays[host.name].fingerprint for host in guards),
        relays=frozenset(one.fingerprint for one in relays.values())
        | frozenset(one.fingerprint for one in authorities.values()),
    )


def _expectation(
    settings: Settings,
    network: Network,
    relays: Mapping[str, keys.RelayKeys],
    authorities: Mapping[str, keys.AuthorityKeys],
    host: Host,
    variant: TorVariant,
) -> Expectation:
    """Return the required log content of the host's Tor process."""
    requirement = ProofRequirement.MUST
    if variant.proof_from == "an-exit":
        requirement = (
            ProofRequirement.ONE_OF if host.role in ("exit", "exitguard") else ProofRequirement.MAY
        )
    return Expectation(
        proof=variant.proof,
        is_client=host.role in ("client", "onion-service"),
        requirement=requirement,
        circuit=_one_circuit(settings, network, relays, host.traffic_class),
        rendezvous=_rendezvous(settings, network, relays, authorities, host.traffic_class),
    )


def _deployed_hosts(settings: Settings, network: Network, seed: int) -> set[str]:
    """Return the hosts that run the variant.

    Each relay has a fixed rank, so the relays of a smaller fraction are a subset of those of a
    larger one. Raises UserError if a fraction is less than one relay.
    """
    deployment = settings.tor.deployment
    if deployment.where == "all":
        return {host.name for host in network.hosts}
    ranked = draw_order([host.name for host in network.relays], seed, "deployment")
    return set(select_share(ranked, deployment.fraction, "tor.deployment", "relays"))


def engine_options(settings: AnySettings, engine: str) -> dict[str, Any]:
    """Return the experiment's options for one engine."""
    own = getattr(settings.engine, engine, None)
    return own.model_dump() if own is not None else {}


def _draw_ms(low: int, high: int, seed: int, *label: str) -> int:
    return low + round((high - low) * draw(seed, *label))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


# All variants and levels of a seed use the same keys.
_onion_keys = functools.cache(keys.make_onion_service_keys)
