"""Downloads over the private network on busy and nearly idle circuits."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

BLOCK = bytes(1 << 16)
REQUEST_BYTES = 8
BUSY_CIRCUITS = 6
QUIET_CIRCUITS = 12
BUSY_BYTES = 4 << 20
QUIET_BYTES = 400
QUIET_PAUSE_S = 2.0
TIMEOUT_S = 30.0


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Run a server that sends as many bytes as each request asks for; yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while request := connection.recv(REQUEST_BYTES, socket.MSG_WAITALL):
                left = int.from_bytes(request, "big")
                while left > 0:
                    left -= connection.send(BLOCK[:left])

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.close()


def load(socks_port: int, server_port: int, seconds: float) -> tuple[int, int]:
    """Load all circuits for some seconds. Return the number of downloads and their bytes."""
    stop_at = time.monotonic() + seconds
    done: list[int] = []
    clients = [
        threading.Thread(
            target=_client, args=(socks_port, server_port, f"{kind}{i}", size, pause, stop_at, done)
        )
        for kind, count, size, pause in (
            ("busy", BUSY_CIRCUITS, BUSY_BYTES, 0.0),
            ("quiet", QUIET_CIRCUITS, QUIET_BYTES, QUIET_PAUSE_S),
        )
        for i in range(count)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return len(done), sum(done)


def _client(
    socks_port: int,
    server_port: int,
    name: str,
    size: int,
    pause_s: float,
    stop_at: float,
    done: list[int],
) -> None:
    while time.monotonic() < stop_at:
        with (
            contextlib.suppress(OSError),
            _connect(socks_port, server_port, name) as stream,
        ):
            stream.sendall(size.to_bytes(REQUEST_BYTES, "big"))
            left = size
            while left and time.monotonic() < stop_at:
                got = len(stream.recv(1 << 16))
                if not got:
                    break
                left -= got
            if left == 0:
                done.append(size)
        time.sleep(min(pause_s, max(0.0, stop_at - time.monotonic())))


def _connect(socks_port: int, server_port: int, name: str) -> socket.socket:
    """Open a stream over Tor. Each name gets its own circuit (IsolateSOCKSAuth)."""
    stream = socket.create_connection(("127.0.0.1", socks_port), TIMEOUT_S)
    user = name.encode()
    stream.sendall(b"\x05\x01\x02")
    _expect(stream, 2)
    stream.sendall(b"\x01" + bytes([len(user)]) + user + b"\x01x")
    _expect(stream, 2)
    stream.sendall(b"\x05\x01\x00\x01" + bytes([127, 0, 0, 1]) + server_port.to_bytes(2, "big"))
    reply = _expect(stream, 10)
    if reply[1] != 0:
        stream.close()
        time.sleep(0.2)
        raise ConnectionError("Tor refused the stream")
    return stream


def _expect(stream: socket.socket, n: int) -> bytes:
    got = stream.recv(n, socket.MSG_WAITALL)
    if len(got) < n:
        stream.close()
        raise ConnectionError("Tor closed the connection")
    return got
