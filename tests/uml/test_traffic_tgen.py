"""The driver and TGen serve each other, and log the same errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .traffic_support import (
    Proxy,
    client_graphml,
    free_port,
    run_driver,
    run_tgen,
    server_graphml,
    wait_for_server,
)

pytestmark = pytest.mark.shadow


@pytest.mark.parametrize("sizes", [("1000 bytes", "320 KiB"), ("1", "1"), ("3 MiB", "5 MiB")])
def test_our_client_and_the_real_server(tgen: Path, tmp_path: Path, sizes: tuple[str, str]) -> None:
    port = free_port()
    stream = {"sendsize": sizes[0], "recvsize": sizes[1]}
    with run_tgen(tgen, tmp_path, "server1", server_graphml(port)) as server:
        wait_for_server(port)
        with Proxy() as proxy:
            graphs = {"client1": client_graphml(port, proxy=proxy.port, stream=stream)}
            with run_driver(tmp_path, graphs) as driver:
                driver["client1"].wait_for("[stream-", 3)
        # The probe of the port is logged as a failed stream, so only successful ones are counted.
        server.wait_for("[stream-success]", 3)
    assert all(stream.success for stream in driver["client1"].parsed.completes)
    assert "error=MD5" not in server.text
    assert server.text.count("MD5 checksums failed") == 0


@pytest.mark.parametrize("sizes", [("1000 bytes", "320 KiB"), ("1", "1"), ("3 MiB", "5 MiB")])
def test_the_real_client_and_our_server(tgen: Path, tmp_path: Path, sizes: tuple[str, str]) -> None:
    port = free_port()
    stream = {"sendsize": sizes[0], "recvsize": sizes[1]}
    with run_driver(tmp_path, {"server1": server_graphml(port)}) as driver:
        wait_for_server(port)
        with run_tgen(tgen, tmp_path, "client1", client_graphml(port, stream=stream)) as client:
            client.wait_for("[stream-", 3)
    assert all(stream.success for stream in client.parsed.completes)
    assert driver["server1"].text.count("[stream-success]") >= 3


def test_the_same_bytes_on_the_wire(tgen: Path, tmp_path: Path) -> None:
    port = free_port()
    sent: list[bytes] = []
    with run_driver(tmp_path, {"server1": server_graphml(port)}), Proxy() as proxy:
        wait_for_server(port)
        graph = client_graphml(port, proxy=proxy.port, pause="1 hour")
        with run_tgen(tgen, tmp_path, "client1", graph) as client:
            client.wait_for("[stream-success]")
            sent.append(proxy.client_bytes)
        directory = tmp_path / "ours"
        directory.mkdir()
        with run_driver(directory, {"client1": graph}) as ours:
            ours["client1"].wait_for("[stream-success]")
            sent.append(proxy.client_bytes)
        assert proxy.requests[0] == proxy.requests[1]

    def comparable(message: bytes) -> bytes:
        message = re.sub(rb"MODEL_SEED=\d+", b"MODEL_SEED=0", message)
        message = re.sub(rb"MD5 [0-9a-f]{32}", b"MD5 sum", message)
        return re.sub(rb"(</graphml>\n)([a-z])\2+", rb"\1letters", message)

    assert comparable(sent[0]) == comparable(sent[1])
    assert len(comparable(sent[0])) > 2000


BEHAVIOURS = {
    "refuses": {"status": 4},
    "unknown status": {"status": 0x99},
    "no method": {"methods": b"\x05\xff"},
    "hangs up at once": {"hang_up_at": "greeting"},
    "hangs up when asked": {"hang_up_at": "request"},
    "cut in the response": {"limit": 30, "then": "cut"},
    "cut in the payload": {"limit": 100_000, "then": "cut"},
    "reset in the payload": {"limit": 100_000, "then": "reset"},
    "never answers": {"swallow": True},
    "falls silent in the response": {"limit": 30},
    "falls silent in the payload": {"limit": 100_000},
    "falls silent before the checksum": {"limit": 69 + 327680},
    "falls silent before the end": {"limit": 69 + 327680 + 37},
}


@pytest.mark.parametrize("limit", ["timeout", "stallout"])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_errors_are_logged_like_in_tgen(
    tgen: Path, tmp_path: Path, behaviour: str, limit: str
) -> None:
    port = free_port()
    ours_directory = tmp_path / "ours"
    ours_directory.mkdir()
    options = {"timeout": "0", "stallout": "0", limit: "1500 ms"}
    with run_driver(tmp_path, {"server1": server_graphml(port)}):
        wait_for_server(port)
        with Proxy(**BEHAVIOURS[behaviour]) as proxy:  # type: ignore[arg-type]
            graph = client_graphml(
                port,
                proxy=proxy.port,
                pause="1 hour",
                stream=options,
                start={"heartbeat": "500 ms"},
                host="localhost",
            )
            with (
                run_tgen(tgen, tmp_path, "client1", graph) as client,
                run_driver(
                    ours_directory, {"client1": graph}, receive_low_water_bytes=16384
                ) as ours,
            ):
                client.wait_for("Generator status")
                ours["client1"].wait_for("Generator status")
    assert without_numbers(ours["client1"].text) == without_numbers(client.text)


def without_numbers(log: str) -> list[str]:
    """Return the lines about streams without times and other numbers that vary randomly."""
    lines = [line for line in log.splitlines() if "client1" in line or "roxy" in line]
    kept = []
    for line in lines:
        text = line.split(" ", 3)[3]
        if "Initializing" in text or "graphml" in text:
            continue
        # Totals vary, because the model's seed has a random number of digits, and because TGen
        # subtracts 1 from its total for each read that would have blocked.
        text = re.sub(r"total-bytes-(recv|send)=\d\d+", r"total-bytes-\1=N", text)
        text = re.sub(r"fd=\d+|localhost:127.0.0.1:\d+|-ts=\d+", "", text)
        kept.append(re.sub(r"(usecs-to-[a-z-]+)=\d+", r"\1=N", text))
    assert kept, log
    return kept
