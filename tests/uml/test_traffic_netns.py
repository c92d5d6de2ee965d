"""The traffic driver opens the sockets of each host in the host's network namespace."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .traffic_support import client_graphml, run_driver, server_graphml

HOLD = """
import fcntl, socket, struct, sys
with socket.socket() as sock:
    flags = struct.pack("16sH14x", b"lo", 1)
    fcntl.ioctl(sock, 0x8914, flags)
print("up", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    """Yield the path of a new network namespace with its loopback enabled."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare to make network namespaces")
    holder = subprocess.Popen(
        [unshare, "--net", sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "up\n":
            pytest.skip("this machine allows no network namespaces")
        yield f"/proc/{holder.pid}/ns/net"
    finally:
        holder.stdin.close()
        holder.wait(10)
        holder.stdout.close()


def test_two_hosts_with_the_same_port_in_two_namespaces(tmp_path: Path) -> None:
    port = 80
    graphs = {
        "server1": server_graphml(port),
        "client1": client_graphml(port),
        "server2": server_graphml(port),
        "client2": client_graphml(port),
        "outside": client_graphml(port, pause="1 s"),
    }
    with namespace() as one, namespace() as two:
        places = {"server1": one, "client1": one, "server2": two, "client2": two}
        hosts = {name: {"netns": path} for name, path in places.items()}
        with run_driver(tmp_path, graphs, hosts=hosts) as driver:
            for host in ("client1", "client2"):
                driver[host].wait_for("[stream-success]", 3)
            driver["outside"].wait_for("[stream-error]")
    for number in (1, 2):
        log = driver[f"client{number}"]
        assert {stream.server for stream in log.parsed.completes} == {"localhost"}
        assert f"peername=server{number}," in log.text
