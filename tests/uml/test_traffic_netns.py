"""Sockets in other network namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onionlab.engines.uml.traffic.netns import Namespaces
from onionlab.errors import UserError

from .traffic_support import (
    client_graphml,
    parse_log,
    played,
    server_graphml,
    wait_until,
    write_traffic_file,
)

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
    """Path of a network namespace of its own, with its loopback up."""
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
        hosts = [
            {
                "name": name,
                "graph": str(tmp_path / f"{name}.graphml"),
                "start_ms": 0,
                "log": str(tmp_path / f"{name}.log"),
                "netns": places.get(name),
            }
            for name in graphs
        ]
        write_traffic_file(tmp_path, graphs)
        with played(tmp_path, graphs, hosts=hosts) as driver:
            for host in ("client1", "client2"):
                wait_until(
                    lambda host=host: driver.text(host).count("[stream-success]") >= 3,  # type: ignore[misc]
                    f"streams of {host}",
                )
            wait_until(lambda: "[stream-error]" in driver.text("outside"), "the one outside")
            driver.terminate()
    assert (driver.status, driver.errors) == (0, "")
    for number in (1, 2):
        peers = {c.server for c in parse_log(tmp_path / f"client{number}.log").completes}
        assert peers == {"localhost"}
        assert f"peername=server{number}," in driver.text(f"client{number}")


def test_the_process_comes_back() -> None:
    own = Path("/proc/self/ns/net").readlink()
    with namespace() as path:
        namespaces = Namespaces()
        namespaces.open(path)
        namespaces.enter(path)
        # The thread's, as setns() moves a thread; the tests' main thread is the process's.
        assert Path("/proc/thread-self/ns/net").readlink() != own
        namespaces.enter(path)
        namespaces.close()
    assert Path("/proc/thread-self/ns/net").readlink() == own


def test_what_is_no_namespace_is_refused(tmp_path: Path) -> None:
    namespaces = Namespaces()
    with pytest.raises(UserError, match="cannot open the network namespace"):
        namespaces.open(str(tmp_path / "nothing"))
    (tmp_path / "file").write_text("")
    namespaces.open(str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot enter the network namespace"):
        namespaces.enter(str(tmp_path / "file"))
    namespaces.close()
