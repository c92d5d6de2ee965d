"""Load for the traced guard: downloads on busy and on nearly idle circuits."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

ADDRESS = "127.0.0.1"
BLOCK = bytes(1 << 16)
REQUEST_BYTES = 8
CIRCUITS = (
    *((f"busy{i}", 4 << 20, 0.0) for i in range(6)),
    *((f"quiet{i}", 400, 2.0) for i in range(12)),
)
"""For each circuit: name, size of its downloads in bytes, and pause after each download in s."""
TIMEOUT_S = 30.0


class _Handler(socketserver.BaseRequestHandler):
    """Answers a request, a big-endian number n of REQUEST_BYTES bytes, with n bytes."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while request := self.request.recv(REQUEST_BYTES, socket.MSG_WAITALL):
                left = int.from_bytes(request, "big")
                while left > 0:
                    left -= self.request.send(BLOCK[:left])


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Run a server for downloads until the block ends. Yield its port."""
    with _Server((ADDRESS, 0), _Handler) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        try:
            yield int(listener.server_address[1])
        finally:
            listener.shutdown()


def load(socks_port: int, server_port: int, seconds: float) -> tuple[int, int]:
    """Download on all circuits for `seconds`.

    Return the number of complete downloads and their total size in bytes.
    """
    stop_at = time.monotonic() + seconds

    def download(name: str, size: int, pause_s: float) -> int:
        """Download on one circuit until `stop_at`. Return the number of complete downloads."""
        done = 0
        while time.monotonic() < stop_at:
            with contextlib.suppress(OSError), _connect(socks_port, server_port, name) as stream:
                stream.sendall(size.to_bytes(REQUEST_BYTES, "big"))
                left = size
                while left and time.monotonic() < stop_at and (got := len(stream.recv(1 << 16))):
                    left -= got
                done += left == 0
            time.sleep(min(pause_s, max(0.0, stop_at - time.monotonic())))
        return done

    with ThreadPoolExecutor(len(CIRCUITS)) as pool:
        counts = list(pool.map(lambda circuit: download(*circuit), CIRCUITS))
    sizes = (size for _, size, _ in CIRCUITS)
    return sum(counts), sum(n * size for n, size in zip(counts, sizes, strict=True))


def _connect(socks_port: int, server_port: int, name: str) -> socket.socket:
    """Open a stream to the server over Tor. Each name has its own circuit (IsolateSOCKSAuth)."""
    stream = socket.create_connection((ADDRESS, socks_port), TIMEOUT_S)
    user = name.encode()
    address = socket.inet_aton(ADDRESS) + server_port.to_bytes(2, "big")
    for message, reply_bytes, expected in (
        (b"\x05\x01\x02", 2, 2),
        (b"\x01" + bytes([len(user)]) + user + b"\x01x", 2, 0),
        (b"\x05\x01\x00\x01" + address, 10, 0),
    ):
        stream.sendall(message)
        reply = stream.recv(reply_bytes, socket.MSG_WAITALL)
        if len(reply) < reply_bytes or reply[1] != expected:
            stream.close()
            time.sleep(0.2)
            raise ConnectionError("Tor refused the stream or closed the connection")
    return stream
