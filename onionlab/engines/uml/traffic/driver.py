"""Play all hosts of a traffic file in one process."""

from __future__ import annotations

import contextlib
import gc
import resource
import signal
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from onionlab.errors import UserError

from .action_graph import ActionGraph, load_graph
from .clock import Clock
from .host import Host
from .log_writer import TgenLogWriter
from .loop import LEVEL_IN, Loop
from .markov_model import MarkovModel
from .netns import Namespaces
from .traffic_file import TrafficFile

SPARE_FILES = 64
STREAMS_PER_HOST = 16


class HostNames:
    """Names and addresses from the traffic file, or otherwise from the system.

    Every name is looked up before the first host starts, because a blocking query would stop all
    hosts.
    """

    def __init__(self, traffic: TrafficFile, graphs: list[ActionGraph]) -> None:
        self._addresses = dict(traffic.names)
        self._addresses |= {host.name: host.address for host in traffic.hosts if host.address}
        self._names = {address: name for name, address in self._addresses.items()}
        self._names["127.0.0.1"] = "localhost"
        self._addresses["localhost"] = "127.0.0.1"
        unknown: set[str] = set()
        for graph in graphs:
            for stream in graph.streams:
                unknown |= {peer.name for peer in (*stream.peers, *stream.proxies)}
        for name in sorted(unknown - self._addresses.keys()):
            if name.endswith(".onion"):
                # The proxy resolves these names; the system cannot.
                continue
            with contextlib.suppress(OSError, UnicodeError):
                self._addresses[name] = socket.gethostbyname(name)

    def address(self, name: str) -> str | None:
        """Return the IPv4 address of a name."""
        return self._addresses.get(name) or self._addresses.get(name.lower())

    def name(self, address: str) -> str:
        """Return the name of an address, the address itself if it has none."""
        return self._names.get(address, address)


class Driver:
    """The driver process. `run` returns on SIGTERM or SIGINT, or at the end of the simulation."""

    def __init__(self, traffic: TrafficFile) -> None:
        """Read all graphs and open all logs. Raises UserError."""
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self._traffic = traffic
        self._namespaces = Namespaces()
        self._hosts: list[Host] = []
        raise_file_limit(SPARE_FILES + len(traffic.hosts) * (3 + STREAMS_PER_HOST))
        graphs: list[ActionGraph] = []
        shared: dict[Path, ActionGraph] = {}
        for host in traffic.hosts:
            graph = shared.get(host.graph)
            if graph is None:
                graph = load_graph(host.graph, host.start_directory)
                # Paths of models are relative to each host's own directory.
                if not graph.has_models:
                    shared[host.graph] = graph
            graphs.append(graph)
            if host.netns is not None:
                self._namespaces.open(host.netns)
        packet_models = _packet_models(graphs)
        names = HostNames(traffic, graphs)
        for host, graph in zip(traffic.hosts, graphs, strict=True):
            self._hosts.append(
                Host(
                    host,
                    graph,
                    seed=traffic.seed,
                    loop=self.loop,
                    log=TgenLogWriter(host.log, graph.start.log_level, self.clock),
                    names=names,
                    namespaces=self._namespaces,
                    verify_payload=traffic.verify_payload,
                    low_water_bytes=traffic.receive_low_water_bytes,
                    packet_models=packet_models,
                )
            )

    def run(self) -> None:
        """Play all hosts. Raises UserError; the logs are complete up to the error."""
        self.clock.start()
        start_us = self.clock.monotonic_of_unix(self._traffic.epoch_unix_s * 1_000_000)
        for host, entry in zip(self._hosts, self._traffic.hosts, strict=True):
            self.loop.at(start_us + entry.start_ms * 1000, host.start)
        self.loop.at(start_us + self._traffic.stop_ms * 1000, self.loop.stop)
        self._flush_later()
        # All existing objects live until the end, so exclude them from garbage collection.
        gc.freeze()
        try:
            with self._stopped_by_signals():
                self.loop.run()
        finally:
            self._close()

    def _flush_later(self) -> None:
        self.loop.at(self.clock.now_us + self._traffic.flush_interval_ms * 1000, self._flush)

    def _flush(self) -> None:
        for host in self._hosts:
            host.log.flush()
        self._flush_later()

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        reading, writing = socket.socketpair()
        with reading, writing:
            reading.setblocking(False)
            writing.setblocking(False)
            self.loop.watch(reading.fileno(), LEVEL_IN, lambda events: self.loop.stop())
            before = {
                number: signal.signal(number, lambda *_: None)
                for number in (signal.SIGTERM, signal.SIGINT)
            }
            wakeup = signal.set_wakeup_fd(writing.fileno())
            try:
                yield
            finally:
                signal.set_wakeup_fd(wakeup)
                for number, handler in before.items():
                    signal.signal(number, handler)
                self.loop.forget(reading.fileno())

    def _close(self) -> None:
        first: UserError | None = None
        for host in self._hosts:
            try:
                host.close()
            except UserError as error:
                first = first or error
        self._namespaces.close()
        self.loop.close()
        if first is not None:
            raise first


def _packet_models(graphs: Iterable[ActionGraph]) -> dict[str, MarkovModel]:
    """Return the models that clients request from servers by path. Raises UserError."""
    models: dict[str, MarkovModel] = {}
    for graph in graphs:
        for path, model in graph.packet_models.items():
            if models.setdefault(path, model) != model:
                raise UserError(
                    f"{graph.path}: {path!r} is a different packet model here than in an earlier "
                    "graph",
                    "Servers identify a model only by this path: use different paths for "
                    "different models.",
                )
    return models


def raise_file_limit(needed: int) -> None:
    """Raise the limit of open files if necessary. Raises UserError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    wanted = hard if hard == resource.RLIM_INFINITY else max(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    except (OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if hard < needed:
            raise UserError(
                f"{needed} open files are needed, but the limit of this process is {hard}",
                "Raise the limit: `ulimit -Hn`, or LimitNOFILE= of a service.",
            ) from None
