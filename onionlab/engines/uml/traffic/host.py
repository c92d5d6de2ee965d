"""One host, which behaves like a TGen process: it walks through its graph and writes a log."""

from __future__ import annotations

import errno
import os
import platform
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from onionlab.errors import UserError

from .action_graph import ActionGraph, StreamOptions
from .graph_walk import GraphWalk
from .log_writer import TgenLogWriter
from .loop import EDGE_IN, LEVEL_IN, Loop
from .markov_model import MarkovModel
from .netns import Namespaces
from .stream import Stream
from .stream_state import StreamState, WhenOver
from .traffic_file import TrafficFile, TrafficHost
from .transport import Address, Transport

_NONBLOCKING_STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_MAIN = "[_tgenmain_run]"
_KINDS = ("streams", "flows", "traffics")
_COUNTED = ("created", "succeeded", "failed", "pending")


class Host:
    """A client, a server, or both, according to its graph.

    entry: the host's entry in the traffic file. packet_models: the models that clients may request
    from servers, by their paths in graphs.
    """

    def __init__(
        self,
        entry: TrafficHost,
        graph: ActionGraph,
        traffic: TrafficFile,
        loop: Loop,
        namespaces: Namespaces,
        packet_models: Mapping[str, MarkovModel],
    ) -> None:
        self.name = entry.name
        self.loop = loop
        self.log = TgenLogWriter(Path(entry.log), graph.start.log_level, loop)
        self.packet_models = packet_models
        # If status lines are logged, each arrival of payload needs a line. Small pieces must
        # therefore also wake up the process.
        self.low_water_bytes = 1 if self.log.wants_info else traffic.receive_low_water_bytes
        self._entry = entry
        self._bind = entry.bind or "0.0.0.0"
        self._graph = graph
        self._traffic = traffic
        self._namespaces = namespaces
        self._listener: socket.socket | None = None
        self._streams: dict[int, Stream] = {}
        self._stream_count = 0
        self._bytes_read = 0
        self._bytes_written = 0
        self._since_heartbeat: Counter[str] = Counter()
        self._total: Counter[str] = Counter()
        self._walk = GraphWalk(self, graph, traffic.seed)

    # --- start

    def start(self) -> None:
        """Start like a TGen process. Raises UserError if the host cannot listen on its port."""
        start, log = self._graph.start, self.log
        log.message(
            f"[tgen-main.c:43] {_MAIN}",
            "Initializing TGen v1.1.2 running GLib (none) and IGraph (none) on host "
            f"{self.name} with process id {os.getpid()}",
        )
        log.message(
            f"[tgen-main.c:43] {_MAIN}",
            "In TGen's place: the traffic driver of onionlab's engine uml, on Python "
            f"{platform.python_version()}",
        )
        vertices, edges = len(self._graph.next), self._graph.edges
        log.message(
            "[tgen-graph.c:1307] [tgengraph_new]",
            f"successfully loaded graphml file '{self._graph.path}' and validated actions: graph "
            f"is weakly connected with 1 cluster, {vertices} "
            f"{'vertex' if vertices == 1 else 'vertices'}, and {edges} "
            f"{'edge' if edges == 1 else 'edges'}",
        )
        log.message(
            "[tgen-log.c:76] [tgenlog_setLogFilterLevel]",
            f"Changed log level filter from 'default' to '{start.log_level.name.lower()}'",
        )
        if start.heartbeat_us:
            self._next_heartbeat_us = self.loop.now_us + start.heartbeat_us
            self.loop.at(self._next_heartbeat_us, self._heartbeat)
        else:
            log.warning(
                "[tgen-driver.c:720] [_tgendriver_setHeartbeatTimerHelper]",
                "The heartbeat message was disabled, so log output may be sparse.",
            )
        if start.server_port is not None:
            self._listen(start.server_port)
        log.message(f"[tgen-main.c:137] {_MAIN}", "entering main loop to watch descriptors")
        if self._graph.edges:
            self.loop.at(self.loop.now_us + start.delay_us, self._walk.start)

    def _listen(self, port: int) -> None:
        try:
            self._namespaces.enter(self._entry.netns)
            listener = socket.socket(socket.AF_INET, _NONBLOCKING_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._bind, port))
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            raise UserError(
                f"host {self.name}: cannot serve on port {port}: {error.strerror}"
            ) from error
        self._listener = listener
        # The listener is level-triggered, so each wake-up needs only one accept(). With an edge
        # trigger, another accept() would have to find that there are no more connections.
        self.loop.watch(listener.fileno(), LEVEL_IN, self._accept)
        self.log.message(
            "[tgen-server.c:164] [tgenserver_new]", f"server listening at {self._bind}:{port}"
        )
        self.log.message(
            "[tgen-driver.c:675] [_tgendriver_startServerHelper]",
            f"Started server on port {port} using descriptor {listener.fileno()}",
        )

    # --- streams

    def open_stream(
        self,
        options: StreamOptions,
        remote: Address,
        proxy: Address | None,
        model_seed: int,
        when_over: WhenOver,
    ) -> bool:
        target = proxy or remote
        if target.address is None and target.name is not None:
            target.address = self.resolve(target.name)
        sock = self._connect(target, options.id)
        if sock is None:
            return False
        login = options.username, options.password
        transport = Transport(sock, remote, self.resolve, proxy, *login)
        self._add(Stream(self, transport, self._stream_count, options, model_seed, when_over))
        return True

    def _connect(self, target: Address, vertex: str) -> socket.socket | None:
        sock = None
        try:
            self._namespaces.enter(self._entry.netns)
            sock = socket.socket(socket.AF_INET, _NONBLOCKING_STREAM)
            if self._entry.bind is not None:
                sock.bind((self._entry.bind, 0))
            number = sock.connect_ex((target.address or "0.0.0.0", target.port))
        except OSError as error:
            self._raise_if_out_of_resources(error)
            number = error.errno or errno.EIO
        if sock is not None and number in (0, errno.EINPROGRESS):
            return sock
        self.log.critical(
            "[tgen-transport.c:340] [tgentransport_newActive]",
            f"connect(): socket {sock.fileno() if sock else -1} returned -1 error {number}: "
            f"{os.strerror(number)}",
        )
        self.log.warning(
            "[tgen-generator.c:399] [_tgengenerator_createStream]",
            f"failed to initialize transport for stream '{vertex}'",
        )
        if sock is not None:
            sock.close()
        return None

    def _accept(self, events: int) -> None:
        assert self._listener is not None
        try:
            sock, (address, port) = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._raise_if_out_of_resources(error)
            raise
        client = Address(self._traffic.names_by_address.get(address, address), address, port)
        transport = Transport(sock, client, self.resolve)
        self._add(Stream(self, transport, self._stream_count, self._graph.start))

    def _add(self, stream: Stream) -> None:
        self._stream_count += 1
        fd = stream.sock.fileno()
        self._streams[fd] = stream
        self.count("streams-created")
        if self.log.wants_info:
            stream.log_created()
        self.loop.watch(fd, EDGE_IN, stream.on_event)
        stream.begin()

    def _raise_if_out_of_resources(self, error: OSError) -> None:
        if error.errno in _OUT_OF_RESOURCES:
            raise UserError(
                f"host {self.name}: no more sockets: {error.strerror}",
                f"{len(self._streams)} streams of this host are open. `ulimit -n` limits all of a "
                "process's sockets.",
            ) from error

    # --- the interface for streams and the walk

    def count_bytes(self, read: int, written: int) -> None:
        self._bytes_read += read
        self._bytes_written += written

    def resolve(self, name: str) -> str | None:
        """Return the IPv4 address of a name, or None after a warning if the name is unknown."""
        address = self._traffic.names.get(name) or self._traffic.names.get(name.lower())
        if address is None:
            self.log.warning(
                "[tgen-peer.c:59] [_tgenpeer_lookupIP]",
                f"getaddrinfo(): returned {socket.EAI_NONAME} host '{name}': name not known",
            )
        return address

    def stream_ended(self, stream: StreamState) -> None:
        fd = stream.sock.fileno()
        self.loop.forget(fd)
        del self._streams[fd]
        stream.sock.close()
        success = stream.fault == "NONE"
        self.count("streams-succeeded" if success else "streams-failed")
        if stream.when_over is not None:
            stream.when_over(stream)

    def count(self, what: str) -> None:
        self._since_heartbeat[what] += 1
        self._total[what] += 1

    # --- heartbeats

    def _heartbeat(self) -> None:
        self._next_heartbeat_us += self._graph.start.heartbeat_us
        self.loop.at(self._next_heartbeat_us, self._heartbeat)
        for stream in list(self._streams.values()):
            stream.on_heartbeat()
        recent, total = self._since_heartbeat, self._total
        for kind in _KINDS:
            ended = total[f"{kind}-succeeded"] + total[f"{kind}-failed"]
            total[f"{kind}-pending"] = total[f"{kind}-created"] - ended
        names = [f"{kind}-{what}" for kind in _KINDS for what in _COUNTED]
        fields = [f"bytes-read={self._bytes_read}", f"bytes-written={self._bytes_written}"]
        fields += [f"{name}={recent[name]}" for name in names if recent[name]]
        fields += [f"total-{name}={total[name]}" for name in names if total[name]]
        self.log.message(
            "[tgen-driver.c:254] [_tgendriver_onHeartbeat]",
            f"[driver-heartbeat] [{','.join(fields)}]",
        )
        self._bytes_read = self._bytes_written = 0
        recent.clear()

    def close(self) -> None:
        """Close all sockets and the log."""
        for stream in self._streams.values():
            stream.sock.close()
        self._streams.clear()
        if self._listener is not None:
            self._listener.close()
        self.log.close()
