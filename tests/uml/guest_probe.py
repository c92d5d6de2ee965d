"""Commands that hosts inside a guest run in tests. They need only the standard library.

Each command prints lines of JSON and then sleeps, because every program has to run until the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

PORT = 5000
BUFFER_BYTES = 1 << 16
WARM_UP_S = 4.0


def say(**data: object) -> None:
    # A single call writes the line and its end, because several threads print.
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def accept_all(serve: Callable[[socket.socket], None], port: int) -> None:
    with socket.create_server(("0.0.0.0", port), backlog=512) as server:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()


def swallow(connection: socket.socket) -> None:
    """Print how many bytes arrive after TCP has reached its rate, and in how many seconds."""
    steady_after_s = time.monotonic() + WARM_UP_S
    first_s = last_s = 0.0
    total = 0
    while data := connection.recv(BUFFER_BYTES):
        last_s = time.monotonic()
        if first_s:
            total += len(data)
        elif last_s >= steady_after_s:
            first_s = last_s
    say(received=total, seconds=last_s - first_s)


def hold(connection: socket.socket) -> None:
    """Keep the connection open without reading from it."""
    time.sleep(1_000_000)
    connection.close()


def echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(BUFFER_BYTES):
        connection.sendall(data)


def confirm(connection: socket.socket) -> None:
    """Read transfers, which begin with their size in bytes. Send a byte at the end of each."""
    while head := connection.recv(8, socket.MSG_WAITALL):
        (left,) = struct.unpack("=Q", head)
        while left:
            left -= len(connection.recv(min(left, BUFFER_BYTES)))
        connection.sendall(b"x")


def serve() -> None:
    """Swallow on PORT, echo on PORT + 1, confirm on PORT + 2, hold on PORT + 3."""
    threading.Thread(target=accept_all, args=(hold, PORT + 3), daemon=True).start()
    threading.Thread(target=accept_all, args=(confirm, PORT + 2), daemon=True).start()
    threading.Thread(target=accept_all, args=(echo, PORT + 1), daemon=True).start()
    accept_all(swallow, PORT)


def connect(*hosts: str) -> None:
    """Print the time that a connection to each host takes, which is a round trip."""
    for host in hosts:
        address = socket.gethostbyname(host)
        started_s = time.monotonic()
        with socket.create_connection((address, PORT)):
            say(host=host, connect_s=time.monotonic() - started_s)


def run_threads(target: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=target) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def outstanding(connection: socket.socket) -> dict[str, int]:
    """Return the number of unacknowledged bytes, and how many of them TCP has not sent yet."""
    siocoutqnsd = 0x894B
    queued, unsent = struct.pack("i", 0), struct.pack("i", 0)
    queued = fcntl.ioctl(connection, termios.TIOCOUTQ, queued)
    unsent = fcntl.ioctl(connection, siocoutqnsd, unsent)
    return {"queued": struct.unpack("i", queued)[0], "unsent": struct.unpack("i", unsent)[0]}


def send(host: str, seconds: str, connections: str = "1") -> None:
    """Send as much as possible for some seconds over each connection.

    Print each connection's retransmissions and queues.
    """

    def stream(end_s: float) -> None:
        with socket.create_connection((host, PORT)) as connection:
            data = bytes(BUFFER_BYTES)
            connection.settimeout(1.0)
            while time.monotonic() < end_s:
                try:
                    connection.send(data)
                except TimeoutError:
                    continue
            raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            (retransmitted,) = struct.unpack_from("=I", raw, 100)
            say(retransmitted=retransmitted, **outstanding(connection))

    end_s = time.monotonic() + float(seconds)
    run_threads(lambda: stream(end_s), int(connections))


def fill(host: str, connections: str) -> None:
    """Fill connections from which the host reads nothing.

    Print how many bytes each connection accepts.
    """
    data = bytes(BUFFER_BYTES)
    opened = [socket.create_connection((host, PORT + 3)) for _ in range(int(connections))]
    taken = dict.fromkeys(opened, 0)
    for connection in opened:
        connection.setblocking(False)
    for _ in range(100):
        for connection in opened:
            with contextlib.suppress(BlockingIOError):
                while True:
                    taken[connection] += connection.send(data)
        time.sleep(0.1)
    for amount in taken.values():
        say(taken=amount)
    time.sleep(1_000_000)


def ping(host: str, count: str, interval_s: str, connections: str = "1") -> None:
    """Send single bytes to the echo server, and print each round-trip time.

    Each connection sends ``count`` bytes, one every ``interval_s`` seconds.
    """

    def echoed() -> None:
        with socket.create_connection((host, PORT + 1)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(int(count)):
                started_s = time.monotonic()
                connection.sendall(b"x")
                connection.recv(1)
                say(ping_s=time.monotonic() - started_s)
                time.sleep(float(interval_s))

    run_threads(echoed, int(connections))


def transfer(host: str, size_bytes: str, count: str) -> None:
    """Send ``size_bytes`` bytes ``count`` times, and print the duration of each transfer."""
    with socket.create_connection((host, PORT + 2)) as connection:
        for _ in range(int(count)):
            started_s = time.monotonic()
            connection.sendall(struct.pack("=Q", int(size_bytes)) + bytes(int(size_bytes)))
            connection.recv(1)
            say(transfer_s=time.monotonic() - started_s)


def facts() -> None:
    """Print values that may differ between guests, and a program's view of its host."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    maps = Path("/proc/self/maps").read_text().splitlines()
    say(
        random=os.urandom(16).hex(),
        library=next((line.split()[-1] for line in maps if "calls.so" in line), ""),
        port=port,
        pid=os.getpid(),
        host_name=socket.gethostname(),
        own_address=socket.gethostbyname(socket.gethostname()),
        time_s=time.time(),
        address_of_object=id(object()),
        hash=hash("text"),
        open_files=os.sysconf("SC_OPEN_MAX"),
        environment=dict(os.environ),
        working_directory=str(Path.cwd()),
    )


def fail(status: str, after_s: str = "0") -> None:
    """Print a line to standard error after a time, and end with a status."""
    time.sleep(float(after_s))
    print("the last words", file=sys.stderr, flush=True)
    sys.exit(int(status))


def spin() -> None:
    """Never sleep, so that simulated time stands still."""
    while True:
        pass


def hoard() -> None:
    """Allocate all memory."""
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 16) * 64))


def touch(path: str) -> None:
    """Try to write a file of the machine on which the guest runs. Print the outcome."""
    try:
        with open(path, "w") as file:  # noqa: PTH123
            file.write("written")
        say(written=path)
    except OSError as error:
        say(refused=error.errno)


def main() -> None:
    command, *arguments = sys.argv[1:]
    globals()[command](*arguments)
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
