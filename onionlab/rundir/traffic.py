"""Generate the traffic of a run: TGen's graphs, Markov models, and the programs that use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.formats.files import HOST_TEMPLATES
from onionlab.engines.base import Process
from onionlab.engines.markov_models import mean_streams_per_s, never_ends, read_markov_model
from onionlab.errors import UserError
from onionlab.experiment.settings import Settings
from onionlab.experiment.tor_options import SOCKS_PORT
from onionlab.experiment.traffic_settings import MARKOV, MODEL_KEYS, TrafficClass
from onionlab.network.draws import draw, draw_integer
from onionlab.network.layout import Host, Network
from onionlab.network.sample import PERF_CLASS
from onionlab.programs.libtorrent.build import peer_program
from onionlab.rundir import tgen
from onionlab.rundir.keys import OnionServiceKeys
from onionlab.yamlfile.units import milliseconds

SERVER_START_MS = 1_000
MARKOV_GRAPH = "tgen.graphml"
"""The file name of a Markov client's graph in the client's folder."""
MAX_SEED = 2**31 - 1

# tornettools' `plot` command expects perf clients, which download 50 KiB, 1 MiB and 5 MiB. The perf
# clients here download only 50 KiB.
PERF_REQUEST_BYTES = 51_200
PERF_PAUSE_MS = 60_000
PERF_TIMEOUT_MS = 15_000
PERF_SPREAD_S = 60.0

# Clients of a class of kind `pieces` download from libtorrent peers on the servers. Each such class
# has its own port.
PIECES_FIRST_PORT = 6881
# The peers report their progress at most once a second, because only streams and the goodput of
# each second are read from their logs.
PIECES_SAMPLE_US = 1_000_000

# Disable the extra threads of OpenBLAS, a library that TGen loads together with igraph. TGen needs
# only one thread, and the extra threads would spin under Shadow.
TGEN_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


def traffic_files(
    root: Path,
    settings: Settings,
    network: Network,
    services: Mapping[str, OnionServiceKeys],
    seed: int,
) -> dict[str, bytes]:
    """Return the graphs and Markov models of all clients and servers, by path.

    Raises UserError if a Markov model is missing or invalid.
    """
    servers = {
        "servers": [host.name for host in network.by_role("server")],
        "onion-services": [one.address for one in services.values()],
    }
    logs: dict[str, Any] = {
        "heartbeat_ms": milliseconds(settings.engine.tgen.heartbeat_s),
        "log_level": settings.engine.tgen.loglevel,
    }
    files = {"conf/tgen.server.graphml": tgen.server_graph()}
    for name, entry in settings.traffic.items():
        limits: dict[str, Any] = {
            "servers": servers[entry.to],
            "timeout_ms": milliseconds(entry.timeout_s or 0),
            "stallout_ms": milliseconds(entry.stallout_s or 0),
        }
        if entry.kind == MARKOV:
            files |= _read_models(root, name, entry)
            # A TGen client sends the server the path of a model instead of the model. The server
            # resolves this path in its own folder, so the path must be valid in any host's folder.
            models = {
                key.removesuffix("_model"): f"../../../{_model_path(name, key)}"
                for key in entry.models
            }
            for host in network.by_role("client"):
                if host.traffic_class == name:
                    graph = tgen.markov_graph(
                        **limits,
                        **logs,
                        models=models,
                        # A host plays the models in the same way in networks of different sizes,
                        # because these seeds depend only on the run's seed and the host's name.
                        model_seed=draw_integer(0, MAX_SEED, seed, "markov models", host.name),
                        login_seed=draw_integer(0, MAX_SEED, seed, "markov logins", host.name),
                    )
                    files[f"{HOST_TEMPLATES}/{host.name}/{MARKOV_GRAPH}"] = graph
        elif entry.kind == "tgen":
            assert entry.request_bytes is not None
            files[f"conf/tgen.{name}.graphml"] = tgen.client_graph(
                **limits,
                **logs,
                request_bytes=entry.request_bytes,
                pause_choices_ms=_pauses_ms(entry),
                streams=entry.streams,
                stagger_ms=milliseconds(entry.stagger_s),
                repeat=entry.repeat == "forever",
            )
    if settings.network.perf_clients:
        files[f"conf/tgen.{PERF_CLASS}.graphml"] = tgen.client_graph(
            **logs,
            servers=servers["servers"],
            request_bytes=PERF_REQUEST_BYTES,
            pause_choices_ms=[PERF_PAUSE_MS],
            timeout_ms=PERF_TIMEOUT_MS,
            stallout_ms=0,
        )
    return files


def endless_streams(settings: Settings, files: Mapping[str, bytes]) -> int:
    """Return the expected number of streams that outlast the run because only a timeout ends them.

    files: the run's files by path, including Markov models.
    """
    found = 0.0
    for name, entry in settings.traffic.items():
        flow, stream, packet = (files.get(_model_path(name, key)) for key in MODEL_KEYS)
        if packet is None or not never_ends(packet):
            continue
        running_s = settings.time.stop_s - settings.time.bootstrap_s - entry.start.after_s
        open_s = max(0.0, min(running_s, entry.timeout_s or running_s))
        found += entry.count * mean_streams_per_s(flow, stream) * open_s
    return round(found)


def expected_endless_streams(root: Path, settings: Settings) -> int:
    """Return the result of `endless_streams` for a run whose directory is not composed yet.

    Return 0 if a Markov model cannot be read or is invalid.
    """
    try:
        models = {
            _model_path(name, key): (root / path).read_bytes()
            for name, entry in settings.traffic.items()
            for key, path in entry.models.items()
        }
        return endless_streams(settings, models)
    except (OSError, ValueError):
        return 0


def server_processes(settings: Settings, host: Host, seed: int) -> tuple[Process, ...]:
    """Return the processes of a server: TGen, and a peer for each class that fetches in pieces."""
    peers = (
        Process(
            program=peer_program(entry.request_rule),
            arguments=(
                *("seed", "--listen", host.name, "--port", str(port)),
                *_peer_arguments(entry, seed),
            ),
            start_ms=SERVER_START_MS,
        )
        for port, entry in _pieces_classes(settings).values()
    )
    return (_tgen_process("server", SERVER_START_MS), *peers)


def onion_service_process() -> Process:
    """Return the web server of an onion service. Only the service's own Tor connects to it."""
    return _tgen_process("server", SERVER_START_MS, TGENIP="127.0.0.1")


def client_process(settings: Settings, network: Network, host: Host, seed: int) -> Process:
    """Return the process that generates a client's traffic."""
    name = host.traffic_class or ""
    entry = settings.traffic.get(name)
    after_s, spread_s = 0.0, PERF_SPREAD_S
    if entry is not None:
        after_s, spread_s = entry.start.after_s, entry.start.spread_s
    first_ms = milliseconds(settings.time.bootstrap_s) + milliseconds(after_s)
    last_ms = first_ms + milliseconds(spread_s)
    start_ms = draw_ms(first_ms, last_ms, seed, "traffic start", host.name)
    if entry is not None and entry.kind == MARKOV:
        return Process("tgen", (MARKOV_GRAPH,), start_ms, TGEN_ENVIRONMENT)
    if entry is None or entry.kind != "pieces":
        return _tgen_process(name, start_ms)
    port, _ = _pieces_classes(settings)[name]
    pauses = ",".join(map(str, _pauses_ms(entry)))
    return Process(
        program=peer_program(entry.request_rule),
        arguments=(
            *("fetch", "--from"),
            ",".join(f"{server.name}:{port}" for server in network.by_role("server")),
            *("--socks", f"127.0.0.1:{SOCKS_PORT}"),
            *_peer_arguments(entry, seed),
            *("--downloads", "0"),
            *(("--pause-ms", pauses) if pauses else ()),
            *("--timeout-ms", str(milliseconds(entry.timeout_s or 0))),
            *("--draw-seed", str(draw_integer(0, MAX_SEED, seed, "pieces", host.name))),
        ),
        start_ms=start_ms,
    )


def peer_programs(settings: Settings) -> set[str]:
    """Return the programs of all classes that fetch in pieces."""
    return {peer_program(entry.request_rule) for _, entry in _pieces_classes(settings).values()}


def draw_ms(low: int, high: int, seed: int, *label: str) -> int:
    """Draw a time in [low, high], in whole milliseconds."""
    return low + round((high - low) * draw(seed, *label))


def _read_models(root: Path, name: str, entry: TrafficClass) -> dict[str, bytes]:
    files = {}
    for key, path in entry.models.items():
        place = _model_path(name, key)
        try:
            files[place] = read_markov_model(root / path, path)
        except UserError as error:
            raise UserError(f"traffic.{name}.{key}: {error.message}", error.hint) from error
        if key == "packet_model" and not entry.timeout_s and never_ends(files[place]):
            raise UserError(
                f"traffic.{name}.{key}: {path} never ends: TGen would send on every stream until "
                "the simulation is over",
                f"set traffic.{name}.timeout, or give the model an observation `F`",
            )
    return files


def _model_path(name: str, key: str) -> str:
    """Return the path of a class's model in a run directory."""
    return f"conf/tgen.{name}.{key.removesuffix('_model')}-model.graphml"


def _pieces_classes(settings: Settings) -> dict[str, tuple[int, TrafficClass]]:
    """Return the classes that fetch in pieces: class name -> (port on the servers, class)."""
    return {
        name: (port, entry)
        for port, (name, entry) in enumerate(sorted(settings.traffic.items()), PIECES_FIRST_PORT)
        if entry.kind == "pieces"
    }


def _peer_arguments(entry: TrafficClass, seed: int) -> tuple[str, ...]:
    """Return the arguments that are equal for the two peers of a class's downloads."""
    return (
        *("--transport", "tcp"),
        *("--size", str(entry.request_bytes)),
        *("--content-seed", str(seed)),
        *("--sample-us", str(PIECES_SAMPLE_US)),
    )


def _pauses_ms(entry: TrafficClass) -> list[int]:
    return [milliseconds(time_s) for time_s in entry.pause.times_s]


def _tgen_process(graph: str, start_ms: int, **environment: str) -> Process:
    arguments = (f"../../../conf/tgen.{graph}.graphml",)
    return Process("tgen", arguments, start_ms, TGEN_ENVIRONMENT | environment)
