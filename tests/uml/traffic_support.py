"""Graphs, a SOCKS5 proxy, and processes of the driver and of TGen, for tests of the driver."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import networkx as nx

from analysis.records.tgenlog import TgenLog
from onionlab.engines.uml.traffic import __file__ as traffic_init
from onionlab.engines.uml.traffic.action_graph import StreamOptions
from onionlab.engines.uml.traffic.markov_model import MarkovModel
from onionlab.engines.uml.traffic.options import Peer
from onionlab.engines.uml.traffic.traffic_file import TrafficFile, TrafficHost

TRAFFIC = Path(traffic_init).parent
LIMIT_S = 120.0
"""A generous time limit in seconds, because tests are slow on a busy machine."""

Attributes = Mapping[str, str]

OPTIONS = StreamOptions(
    id="stream",
    kind="stream",
    peers=(Peer("server9", 80),),
    proxies=(),
    username=None,
    password=None,
    send_bytes=200,
    recv_bytes=3000,
    timeout_us=0,
    stallout_us=0,
)


def graphml(vertices: Mapping[str, Attributes], edges: Sequence[tuple[str, ...]] = ()) -> str:
    """Return a TGen configuration. edges: source, target and, for weighted edges, the weight."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for vertex, attributes in vertices.items():
        graph.add_node(vertex, **attributes)
    for source, target, *weight in edges:
        graph.add_edge(source, target, **({"weight": weight[0]} if weight else {}))
    return "\n".join(nx.generate_graphml(graph))


def server_graphml(port: int, **start: str) -> str:
    return graphml({"start": {"serverport": str(port), "heartbeat": "1 second", **start}})


def client_graphml(
    port: int,
    *,
    proxy: int | None = None,
    pause: str = "100 ms",
    start: Attributes | None = None,
    stream: Attributes | None = None,
    host: str = "127.0.0.1",
) -> str:
    """Return the graph of a client that repeats a stream and a pause."""
    first = {"peers": f"{host}:{port}", "heartbeat": "1 second", **(start or {})}
    if proxy is not None:
        first["socksproxy"] = f"localhost:{proxy}"
    return graphml(
        {
            "start": first,
            "stream": {"sendsize": "1000 bytes", "recvsize": "320 KiB", **(stream or {})},
            "pause": {"time": pause},
        },
        [("start", "stream"), ("stream", "pause"), ("pause", "stream")],
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class HostLog:
    """The log of a host, which the driver or TGen writes."""

    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text() if self.path.exists() else ""

    @property
    def parsed(self) -> TgenLog:
        log = TgenLog()
        log.feed(self.path.read_bytes().split(b"\n")[:-1])
        assert log.malformed == 0, log.examples
        return log

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until the log contains ``text`` at least ``count`` times."""
        wait_until(lambda: self.text.count(text) >= count, f"{text} in {self.path}")


@dataclass
class DriverRun:
    """A driver process and its files."""

    directory: Path
    process: subprocess.Popen[str]

    def __getitem__(self, host: str) -> HostLog:
        return HostLog(self.directory / f"{host}.log")


def write_traffic_file(
    directory: Path,
    graphs: Mapping[str, str],
    *,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
    **changes: Any,
) -> Path:
    """Write a traffic file of hosts that all start at once, and write their graphs.

    hosts: host -> settings that differ from the defaults below. changes: other keys of the file.
    """
    entries = []
    for name, graph in graphs.items():
        path = directory / f"{name}.graphml"
        path.write_text(graph)
        entry = TrafficHost(name, str(path), str(directory), 0, str(directory / f"{name}.log"))
        entries.append(replace(entry, **(hosts or {}).get(name, {})))
    values = {"seed": 1, "stop_ms": 10**9, "names": {}, "receive_low_water_bytes": 1, **changes}
    path = directory / "traffic.json"
    TrafficFile(epoch_unix_s=int(time.time()), hosts=tuple(entries), **values).write(path)
    return path


# This program runs the driver, and lets it write its logs every 50 ms, since tests wait for lines.
DRIVER = """
import sys
from pathlib import Path
from onionlab.engines.uml.traffic import driver
from onionlab.engines.uml.traffic.action_graph import StreamOptions
from onionlab.engines.uml.traffic.markov_model import MarkovModel
from onionlab.engines.uml.traffic.options import Peer
from onionlab.engines.uml.traffic.traffic_file import read_traffic_file
driver.FLUSH_INTERVAL_US = 50_000
played = driver.Driver(read_traffic_file(Path(sys.argv[1])))
played.stop_at_signals()
played.run()
"""


@contextlib.contextmanager
def run_driver(directory: Path, graphs: Mapping[str, str], **changes: Any) -> Iterator[DriverRun]:
    """Run the driver with these graphs. At the end, send SIGTERM to it, as the engine does.

    Fail if the driver fails.
    """
    traffic_file = write_traffic_file(directory, graphs, **changes)
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(traffic_file)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=TRAFFIC.parents[3],
        env={**os.environ, "TZ": "UTC"},
    )
    with process:
        try:
            yield DriverRun(directory, process)
            process.terminate()
            _, errors = process.communicate(timeout=LIMIT_S)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()


@contextlib.contextmanager
def run_tgen(tgen: Path, directory: Path, name: str, graph: str) -> Iterator[HostLog]:
    """Run TGen with this graph, and terminate it at the end."""
    (directory / f"{name}.graphml").write_text(graph)
    path = directory / f"{name}.log"
    environment = {**os.environ, "TGENHOSTNAME": name}
    command = [str(tgen), f"{name}.graphml"]
    with (
        path.open("w") as log,
        subprocess.Popen(command, cwd=directory, stdout=log, env=environment) as process,
    ):
        try:
            yield HostLog(path)
        finally:
            process.terminate()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out while waiting for {what}"
        time.sleep(0.02)


def wait_for_server(port: int) -> None:
    def accepts() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    wait_until(accepts, f"a server on port {port}")


class FakeHost:
    """A host that is also its own log and event loop."""

    name = "client1"
    packet_models: Mapping[str, MarkovModel] = {}

    def __init__(self, *, low_water: int = 1, info: bool = False) -> None:
        self.low_water_bytes = low_water
        self.wants_info = info
        self.now_us = 1_000_000
        self.read = self.written = 0
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.ended: list[object] = []
        self.writable_wanted = False
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.log = self.loop = self

    def count_bytes(self, read: int, written: int) -> None:
        self.read += read
        self.written += written

    def want_writable(self, fd: int) -> None:
        self.writable_wanted = True

    def resolve(self, name: str) -> str | None:
        return {"server9": "11.0.0.9"}.get(name)

    def stream_ended(self, stream: object) -> None:
        self.ended.append(stream)

    def message(self, place: str, text: str) -> None:
        self.lines.append(text)

    critical = warning = info = message

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def at(self, time_us: int, callback: Callable[[], None]) -> None:
        self.timers.append((time_us, callback))

    def wait(self) -> int:
        """Let the next timer expire. Return how long it had to run, in microseconds."""
        before = self.now_us
        self.now_us, callback = self.timers.pop(0)
        callback()
        return self.now_us - before


@dataclass
class Proxy:
    """A SOCKS5 proxy on loopback with configurable errors.

    Attributes:
        status: SOCKS status in the proxy's answers to requests.
        methods: The proxy's answer to greetings.
        limit: Number of bytes that it forwards from the server.
        then: What it does with the connection after this number: "silence", "cut" or "reset".
        piece_bytes: Number of bytes that it forwards at once.
        swallow: Whether it never answers.
        hang_up_at: "greeting" or "request": message at which it hangs up instead of answering.
        requests: All requests of clients.
        logins: User name and password of each client that has sent them.
        client_bytes: The bytes that the last client has sent after its request.
        client_left: Set when a client has closed its side.
    """

    status: int = 0
    methods: bytes = b"\x05\x00"
    limit: int | None = None
    then: str = "silence"
    piece_bytes: int | None = None
    swallow: bool = False
    hang_up_at: str = ""
    requests: list[bytes] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)
    client_bytes: bytes = b""
    client_left: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Proxy:
        handle = self._handle

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                # Close the connection here, because the server would shut it down first.
                with contextlib.suppress(OSError), self.request:
                    handle(self.request)

        self._over = threading.Event()
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, client: socket.socket) -> None:
        if self.swallow:
            self._over.wait()
            return
        greeting = _exactly(client, 3)
        if self.hang_up_at == "greeting":
            return
        client.sendall(self.methods)
        if greeting[2] == 2:
            version, length = _exactly(client, 2)
            user = _exactly(client, length)
            password = _exactly(client, _exactly(client, 1)[0])
            self.logins.append(user + b":" + password)
            assert version == 1
            client.sendall(b"\x01\x00")
        request = _exactly(client, 10)
        self.requests.append(request)
        if self.hang_up_at == "request":
            return
        client.sendall(bytes([5, self.status, 0, 1, 127, 0, 0, 1, 0, 80]))
        if self.status:
            return
        address = socket.inet_ntoa(request[4:8])
        (port,) = struct.unpack("!H", request[8:10])
        with socket.create_connection((address, port)) as server:
            over = threading.Event()
            upstream = threading.Thread(target=self._upstream, args=(client, server, over))
            upstream.start()
            try:
                self._downstream(client, server)
            finally:
                # While the other thread reads from a socket, close() does not close the connection.
                # So the other thread has to end first.
                over.set()
                upstream.join()

    def _upstream(
        self, client: socket.socket, server: socket.socket, over: threading.Event
    ) -> None:
        self.client_bytes = b""
        with contextlib.suppress(OSError):
            while not over.is_set() and not self._over.is_set():
                if select.select([client], [], [], 0.05)[0]:
                    data = client.recv(65536)
                    if not data:
                        self.client_left.set()
                        server.shutdown(socket.SHUT_WR)
                        return
                    self.client_bytes += data
                    server.sendall(data)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        passed = 0
        while passed != self.limit:
            data = server.recv(65536 if self.limit is None else min(65536, self.limit - passed))
            if not data:
                return
            for index in range(0, len(data), self.piece_bytes or len(data)):
                client.sendall(data[index : index + (self.piece_bytes or len(data))])
                if self.piece_bytes is not None:
                    time.sleep(0.001)
            passed += len(data)
        if self.then == "silence":
            self._over.wait()
        elif self.then == "cut":
            # Let the client close first, because closing with unread bytes causes a reset.
            client.shutdown(socket.SHUT_WR)
            self.client_left.wait(LIMIT_S)
            self.client_left.clear()
        else:
            time.sleep(0.2)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise ConnectionError("the client closed the connection")
        data += piece
    return data
