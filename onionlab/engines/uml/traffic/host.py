"""One host: the behaviour of a TGen process, its walk through the graph and its log."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from onionlab.errors import UserError

from . import log_lines
from .action_graph import (
    Action,
    ActionGraph,
    FlowOptions,
    Pause,
    Seed,
    StreamOptions,
    TrafficOptions,
)
from .generator import FlowGenerator
from .glib_random import GlibRandom
from .log_writer import TgenLogWriter
from .loop import EDGE_IN, EDGE_IN_OUT, LEVEL_IN, Loop
from .markov_model import MarkovModel, load_model
from .markov_walk import MarkovWalk
from .netns import Namespaces
from .options import Peer
from .states import StreamFault
from .stream import Stream
from .traffic_file import HostEntry
from .transport import Address

INSTANT_US = 1000
HOLD_US = 1_000_000
STREAMS_IN_AN_INSTANT = 1000

_NONBLOCKING_STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# TGen draws seven of these for a login that is both user name and password (tgen-generator.c).
_LOGIN_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@#&?!"
_LOGIN_LENGTH = 7

_MAIN = "[_tgenmain_run]"


class NameResolver(Protocol):
    """The names and addresses of the simulation's hosts."""

    def address(self, name: str) -> str | None:
        """Return the IPv4 address of a name."""

    def name(self, address: str) -> str:
        """Return the name of an address, the address itself if it has none."""


class Host:
    """A client, a server, or both, according to its graph.

    Draws (such as a stream's peer or a pause's length) depend on the run's seed, the host's name,
    the vertex and the number of the visit: the n-th stream of a client has the same peer in every
    variant of Tor, independent of the durations of earlier streams. Seeds in a graph are used like
    in TGen, in the order in which flows and streams start.

    packet_models: the models that clients may request from servers, by their paths in graphs.
    """

    def __init__(
        self,
        entry: HostEntry,
        graph: ActionGraph,
        *,
        seed: int,
        loop: Loop,
        log: TgenLogWriter,
        names: NameResolver,
        namespaces: Namespaces,
        verify_payload: bool = False,
        low_water_bytes: int = 1,
        packet_models: Mapping[str, MarkovModel] | None = None,
    ) -> None:
        self.name = entry.name
        self.verify_payload = verify_payload
        # Every arrival matters if status lines are logged.
        self.low_water_bytes = 1 if log.wants_info else low_water_bytes
        self.log = log
        self.wants_info = log.wants_info
        self._entry = entry
        self._bind = entry.bind or "0.0.0.0"
        self._graph = graph
        self._seed = seed
        self._loop = loop
        self._clock = loop.clock
        self._names = names
        self._namespaces = namespaces
        self._listener: socket.socket | None = None
        self._streams: dict[int, Stream] = {}
        self._stream_count = 0
        self._bytes_read = 0
        self._bytes_written = 0
        self._since_heartbeat: Counter[str] = Counter()
        self._total: Counter[str] = Counter()
        self._visits: Counter[str] = Counter()
        self._pause_arrivals: Counter[str] = Counter()
        self._packet_models = packet_models or {}
        self._model_seeds: dict[str, GlibRandom] = {}
        self._logins: dict[str, GlibRandom] = {}
        # Callbacks for the end of a stream, by the stream's number.
        self._when_over: dict[int, Callable[[], None]] = {}
        # Like TGen, look up each of a graph's peers only once.
        self._peers: dict[Peer, Address] = {}
        self._instant_us = -1
        self._streams_in_instant = 0
        self._client_started = False

    # --- start

    def start(self) -> None:
        """Start like a TGen process. Raises UserError if the host cannot continue."""
        start = self._graph.start
        log = self.log
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
        vertices = len(self._graph.actions) + 1
        log.message(
            "[tgen-graph.c:1307] [tgengraph_new]",
            f"successfully loaded graphml file '{self._graph.path}' and validated actions: graph "
            f"is weakly connected with 1 cluster, {_plural(vertices, 'vertex', 'vertices')}, and "
            f"{_plural(self._graph.edges, 'edge', 'edges')}",
        )
        log.message(
            "[tgen-log.c:76] [tgenlog_setLogFilterLevel]",
            f"Changed log level filter from 'default' to '{start.log_level.name.lower()}'",
        )
        if start.heartbeat_us:
            self._loop.at(self.now_us + start.heartbeat_us, self._heartbeat)
            self._next_heartbeat_us = self.now_us + start.heartbeat_us
        else:
            log.warning(
                "[tgen-driver.c:720] [_tgendriver_setHeartbeatTimerHelper]",
                "The heartbeat message was disabled, so log output may be sparse.",
            )
        if start.server_port is not None:
            self._listen(start.server_port)
        log.message(f"[tgen-main.c:137] {_MAIN}", "entering main loop to watch descriptors")
        if self._graph.edges:
            self._loop.at(self.now_us + start.delay_us, self._start_client)

    def _start_client(self) -> None:
        self.log.message(
            "[tgen-driver.c:819] [_tgendriver_onStartClientTimerExpired]",
            f"starting client using action graph '{self._graph.path}'",
        )
        self._client_started = True
        self._continue_from(self._graph.start.id)

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
        # Level-triggered: one accept() per wake-up, without a final call that finds nothing.
        self._loop.watch(listener.fileno(), LEVEL_IN, self._accept)
        self.log.message(
            "[tgen-server.c:164] [tgenserver_new]", f"server listening at {self._bind}:{port}"
        )
        self.log.message(
            "[tgen-driver.c:675] [_tgendriver_startServerHelper]",
            f"Started server on port {port} using descriptor {listener.fileno()}",
        )

    # --- the walk through the graph

    def _continue_from(self, vertex: str) -> None:
        draw = 0.0
        if vertex in self._graph.choices:
            # 53 bits ensure that the result is less than 1.
            draw = (self._draw(vertex, "edge") >> 11) / 2**53
            self._visits[vertex] += 1
        for following in self._graph.following(vertex, draw):
            self._loop.soon(functools.partial(self._act, following))

    def _act(self, vertex: str) -> None:
        action = self._graph.actions.get(vertex)
        if action is None:
            self._continue_from(vertex)
        elif isinstance(action, Pause):
            self._pause(action)
        elif isinstance(action, TrafficOptions):
            self._start_traffic(action)
        elif isinstance(action, FlowOptions):
            self._start_flow(action, functools.partial(self._continue_after, action))
        else:
            self._start_stream(action)

    def _pause(self, pause: Pause) -> None:
        if pause.times_us:
            time_us = pause.times_us[self._draw(pause.id, "time") % len(pause.times_us)]
            self._visits[pause.id] += 1
            if time_us:
                self._loop.at(
                    self.now_us + time_us, functools.partial(self._continue_from, pause.id)
                )
                return
        else:
            self._pause_arrivals[pause.id] += 1
            if self._pause_arrivals[pause.id] < pause.incoming:
                return
            self._pause_arrivals[pause.id] = 0
        self._continue_from(pause.id)

    def _draw(self, vertex: str, what: str) -> int:
        """Return a number below 2**64 that depends only on the position in the walk."""
        label = (str(self._seed), self.name, vertex, str(self._visits[vertex]), what)
        digest = hashlib.shake_256("\x1f".join(label).encode()).digest(8)
        return int.from_bytes(digest, "big")

    # --- streams

    def _start_traffic(self, options: TrafficOptions) -> None:
        def begin_flow(traffic: FlowGenerator) -> bool:
            self._start_flow(options.flow, traffic.child_over)
            return True

        def over() -> None:
            self._count("traffics-succeeded")
            self._continue_after(options)

        walk = MarkovWalk(options.flow_model, self._model_seed(options.flow.stream, "flow model"))
        self._visits[options.id] += 1
        self._count("traffics-created")
        FlowGenerator(
            self,
            walk,
            vertex=options.id,
            kind="traffic",
            child_kind="flow",
            begin_child=begin_flow,
            when_over=over,
        ).start()

    def _start_flow(self, options: FlowOptions, when_over: Callable[[], None]) -> None:
        walk = MarkovWalk(options.stream_model, self._model_seed(options.stream, "stream model"))
        # All streams of a flow share one proxy and one login, so that Tor may use one circuit for
        # them.
        stream = self._with_login(options.stream)
        proxy = self._proxy(stream)
        self._visits[options.id] += 1
        self._count("flows-created")

        def over() -> None:
            self._count("flows-succeeded")
            when_over()

        FlowGenerator(
            self,
            walk,
            vertex=options.id,
            kind="flow",
            child_kind="stream",
            begin_child=lambda flow: self._open_stream(stream, proxy, flow.child_over),
            when_over=over,
        ).start()

    def _continue_after(self, action: Action) -> None:
        """Continue after a flow or traffic, delayed if it ended in the instant of its start."""
        if self._exceeds_instant_limit():
            self._loop.at(self.now_us + HOLD_US, functools.partial(self._continue_from, action.id))
        else:
            self._continue_from(action.id)

    def _start_stream(self, options: StreamOptions) -> None:
        self._count("flows-created")
        options = self._with_login(options)
        if not self._open_stream(options, self._proxy(options), None):
            self._flow_ended(options.id, 0, success=False)

    def _proxy(self, options: StreamOptions) -> Address | None:
        if not options.proxies:
            return None
        return self._peer(options.proxies[self._draw(options.id, "proxy") % len(options.proxies)])

    def _with_login(self, options: StreamOptions) -> StreamOptions:
        """Return the options with a login for the proxy if they include a seed for logins."""
        if options.auth_seed is None:
            return options
        draw = _generator(self._logins, options.auth_seed).integer
        letters = [_LOGIN_LETTERS[draw() % len(_LOGIN_LETTERS)] for _ in range(_LOGIN_LENGTH)]
        return replace(options, username="".join(letters), password="".join(letters))

    def _model_seed(self, options: StreamOptions, what: str) -> int:
        """Return the seed of a new walk through a model."""
        if options.model_seed is None:
            return self._draw(options.id, what) % 2**32
        return _generator(self._model_seeds, options.model_seed).integer()

    def _open_stream(
        self,
        options: StreamOptions,
        proxy: Address | None,
        when_over: Callable[[], None] | None,
    ) -> bool:
        """Start a stream. Return False if the connection fails immediately."""
        vertex = options.id
        remote = self._peer(options.peers[self._draw(vertex, "peer") % len(options.peers)])
        model_seed = self._model_seed(options, "model")
        self._visits[vertex] += 1
        target = proxy or remote
        if target.address is None and target.name is not None:
            target.address = self.resolve(target.name)
        sock = self._connect(target, vertex)
        if sock is None:
            return False
        stream = Stream(
            self,
            sock,
            self._stream_count,
            vertex=vertex,
            remote=remote,
            options=options,
            proxy=proxy,
            model_seed=model_seed,
            timeout_us=options.timeout_us,
            stallout_us=options.stallout_us,
        )
        if when_over is not None:
            self._when_over[stream.id] = when_over
        self._add(stream)
        return True

    def _peer(self, peer: Peer) -> Address:
        if peer not in self._peers:
            self._peers[peer] = Address.from_peer(peer)
        return self._peers[peer]

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
            self.log.critical(
                "[tgen-server.c:86] [tgenserver_onEvent]",
                f"accept(): socket {self._listener.fileno()} returned -1 error {error.errno}: "
                f"{error.strerror}",
            )
            return
        remote = Address(self._names.name(address), address, port)
        start = self._graph.start
        stream = Stream(
            self,
            sock,
            self._stream_count,
            vertex="passive-stream",
            remote=remote,
            timeout_us=start.timeout_us,
            stallout_us=start.stallout_us,
        )
        self._add(stream)

    def _add(self, stream: Stream) -> None:
        self._stream_count += 1
        self._streams[stream.fd] = stream
        self._count("streams-created")
        if self.wants_info:
            self.log.info(*log_lines.created(stream))
        self._loop.watch(stream.fd, EDGE_IN, stream.on_event)
        stream.begin()

    def _raise_if_out_of_resources(self, error: OSError) -> None:
        if error.errno in _OUT_OF_RESOURCES:
            raise UserError(
                f"host {self.name}: no more sockets: {error.strerror}",
                f"{len(self._streams)} streams of this host are open. `ulimit -n` limits all of a "
                "process's sockets.",
            ) from error

    # --- what a stream asks of its host

    @property
    def now_us(self) -> int:
        """The current time of the monotonic clock."""
        return self._clock.now_us

    def count_bytes(self, read: int, written: int) -> None:
        """Add bytes to the counters of the next heartbeat."""
        self._bytes_read += read
        self._bytes_written += written

    def want_writable(self, stream: Stream) -> None:
        """Notify the stream when its socket is writable again."""
        self._loop.change(stream.fd, EDGE_IN_OUT)

    def resolve(self, name: str) -> str | None:
        """Return the IPv4 address of a name."""
        address = self._names.address(name)
        if address is None:
            self.log.warning(
                "[tgen-peer.c:59] [_tgenpeer_lookupIP]",
                f"getaddrinfo(): returned {socket.EAI_NONAME} host '{name}': name not known",
            )
        return address

    def call_at(self, time_us: int, callback: Callable[[], None]) -> None:
        """Call back at a time of the monotonic clock."""
        self._loop.at(time_us, callback)

    def model_at(self, path: str) -> MarkovModel | None:
        """Return the packet model at a path: a client graph's model, or the server's own file."""
        if path in self._packet_models:
            return self._packet_models[path]
        try:
            return load_model(self._entry.start_directory / path)
        except UserError:
            return None

    def stream_ended(self, stream: Stream) -> None:
        """Close a stream that has ended, and continue the walk."""
        self._loop.forget(stream.fd)
        del self._streams[stream.fd]
        stream.sock.close()
        success = stream.fault is StreamFault.NONE
        self._count("streams-succeeded" if success else "streams-failed")
        when_over = self._when_over.pop(stream.id, None)
        if when_over is not None:
            when_over()
        elif stream.options is not None:
            # In TGen a flow of one stream has succeeded when the stream has ended, successfully or
            # not.
            failed_at_once = not success and self.now_us - stream.started < INSTANT_US
            self._flow_ended(stream.options.id, 1, success=True, hold=failed_at_once)

    def _flow_ended(self, vertex: str, streams: int, *, success: bool, hold: bool = False) -> None:
        self.log.message(
            "[tgen-generator.c:287] [_tgengenerator_onCompleteHelper]",
            f"Generator status for action '{vertex}': completed {streams} of {streams} streams, "
            "flow is complete",
        )
        self._count("flows-succeeded" if success else "flows-failed")
        if hold or not success or self._exceeds_instant_limit():
            # TGen would retry immediately, and simulated time would never advance.
            self._loop.at(self.now_us + HOLD_US, functools.partial(self._continue_from, vertex))
        else:
            self._continue_from(vertex)

    def _exceeds_instant_limit(self) -> bool:
        if self._instant_us != self.now_us:
            self._instant_us = self.now_us
            self._streams_in_instant = 0
        self._streams_in_instant += 1
        return self._streams_in_instant > STREAMS_IN_AN_INSTANT

    # --- heartbeats

    def _count(self, what: str) -> None:
        self._since_heartbeat[what] += 1
        self._total[what] += 1

    def _heartbeat(self) -> None:
        self._next_heartbeat_us += self._graph.start.heartbeat_us
        self._loop.at(self._next_heartbeat_us, self._heartbeat)
        for stream in list(self._streams.values()):
            stream.receiving.drain()
            stream.check_timeouts()
        recent, total = self._since_heartbeat, self._total
        fields = [f"bytes-read={self._bytes_read}", f"bytes-written={self._bytes_written}"]
        for kind in ("streams", "flows", "traffics"):
            for what in ("created", "succeeded", "failed"):
                if count := recent[f"{kind}-{what}"]:
                    fields.append(f"{kind}-{what}={count}")
        for kind in ("streams", "flows", "traffics"):
            for what in ("created", "succeeded", "failed"):
                if count := total[f"{kind}-{what}"]:
                    fields.append(f"total-{kind}-{what}={count}")
            pending = (
                total[f"{kind}-created"] - total[f"{kind}-succeeded"] - total[f"{kind}-failed"]
            )
            if pending:
                fields.append(f"total-{kind}-pending={pending}")
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


def _generator(generators: dict[str, GlibRandom], seed: Seed) -> GlibRandom:
    if seed.owner not in generators:
        generators[seed.owner] = GlibRandom(seed.seed)
    return generators[seed.owner]


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
