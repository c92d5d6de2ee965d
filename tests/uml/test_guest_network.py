"""Programs inside a guest measure that its network has the configured properties."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from onionlab.engines.uml.engine import UmlEngine
from uml.guest_support import MBIT, Net, read_output, run_guest

pytestmark = [pytest.mark.uml, pytest.mark.slow]

# The share of payload in a TCP packet of 1500 bytes with time stamps.
PAYLOAD_SHARE = 1448 / 1500
# The maximum time that a handshake's two packets take in addition to the latency. Each packet has
# 60 bytes and passes two links of 100 Mbit/s or more.
HANDSHAKE_ON_WIRE_S = 0.00005


# For each pair of hosts: the rate of the sender's upstream link and of the receiver's downstream
# link in Mbit/s, and the number of seconds for which data is sent. TCP reaches its rate after 4 s.
PAIRS = [(10, 50, 12), (50, 10, 12), (2, 2, 20), (100, 100, 6), (0.5, 20, 20)]
CONNECTIONS = 10
MANY = 200
MEMORY_BYTES = 384 * 2**20


def add_round_trips(net: Net) -> None:
    for name in ("a", "b", "c"):
        net.host(name)
    net.host("b2", place="place-b")
    net.latency("a", "b", 12_345)
    net.latency("a", "c", 150_001)
    net.latency("b", "c", 1)
    net.latency_us[frozenset(("place-b",))] = 777
    for name in ("b", "c", "b2"):
        net.run(name, "serve")
    net.run("a", "connect", "b", "c", "b2", at_ms=2000)
    net.run("b", "connect", "c", "b2", "b", at_ms=2000)


def add_pairs(net: Net) -> None:
    for number, (up_mbit, down_mbit, seconds) in enumerate(PAIRS):
        sender, receiver = f"sender{number}", f"receiver{number}"
        net.host(sender, up=round(up_mbit * MBIT))
        net.host(receiver, down=round(down_mbit * MBIT))
        net.run(receiver, "serve")
        net.run(sender, "send", receiver, str(seconds), at_ms=4000)


def add_full_upstream(net: Net) -> None:
    net.host("full-up", up=5 * MBIT)
    net.host("wide-down", down=50 * MBIT)
    net.latency("full-up", "wide-down", 20_000)
    net.run("wide-down", "serve")
    net.run("full-up", "send", "wide-down", "30", str(CONNECTIONS), at_ms=4000)


def add_full_downstream(net: Net) -> None:
    net.host("full-down", down=10 * MBIT)
    net.run("full-down", "serve")
    for name in ("one", "two", "watcher"):
        net.host(name)
        net.latency(name, "full-down", 20_000)
    for name in ("one", "two"):
        net.run(name, "send", "full-down", "40", "2", at_ms=4000)
    net.run("watcher", "ping", "full-down", "250", "0.1", at_ms=10_000)


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory, uml_engine: UmlEngine) -> Path:
    """Return the directory of a single run for all tests, because booting a guest is slow.

    Each test has its own hosts. Computing takes no simulated time in a guest, so these hosts do not
    affect each other.
    """
    net = Net()
    for add in (add_round_trips, add_pairs, add_full_upstream, add_full_downstream):
        add(net)
    directory = tmp_path_factory.mktemp("guest")
    run_guest(directory, uml_engine, net, stop_s=80)
    return directory


def test_a_round_trip_is_twice_the_latency(guest: Path) -> None:
    from_a = {line["host"]: line["connect_s"] for line in read_output(guest, "a")}
    from_b = {line["host"]: line["connect_s"] for line in read_output(guest, "b", 1)}
    expected_a = {"b": 2 * 0.012345, "c": 2 * 0.150001, "b2": 2 * 0.012345}
    expected_b = {"c": 2 * 0.000001, "b2": 2 * 0.000777, "b": 0.0}
    for measured, expected in ((from_a, expected_a), (from_b, expected_b)):
        assert measured.keys() == expected.keys()
        for host, connect_s in measured.items():
            assert 0 <= connect_s - expected[host] <= HANDSHAKE_ON_WIRE_S, host


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=[f"{up}-{down}" for up, down, _ in PAIRS])
def test_tcp_uses_the_rate_of_the_slower_link(guest: Path, number: int) -> None:
    up_mbit, down_mbit, _ = PAIRS[number]
    (end,) = [line for line in read_output(guest, f"receiver{number}") if "received" in line]
    rate = end["received"] * 8 / end["seconds"]
    assert rate == pytest.approx(min(up_mbit, down_mbit) * MBIT * PAYLOAD_SHARE, rel=0.001)


def test_a_full_upstream_link_keeps_data_in_sockets_without_loss(guest: Path) -> None:
    ends = [line for line in read_output(guest, "full-up") if "retransmitted" in line]
    assert len(ends) == CONNECTIONS
    assert sum(end["retransmitted"] for end in ends) == 0
    # Bytes that have left the sockets are in flight or in the link's short queue.
    in_flight = sum(end["queued"] - end["unsent"] for end in ends)
    bandwidth_delay_bytes = 5 * MBIT / 8 * 0.040
    assert in_flight < bandwidth_delay_bytes + CONNECTIONS * 2 * 1500
    assert sum(end["unsent"] for end in ends) > 5 * in_flight


def test_codel_keeps_the_queue_of_a_full_downstream_link_short(guest: Path) -> None:
    queued_s = sorted(line["ping_s"] - 0.040 for line in read_output(guest, "watcher"))
    assert len(queued_s) == 250
    # CoDel keeps the queue near its target of 10 ms, and TCP's bursts exceed it.
    assert 0.002 < statistics.median(queued_s) < 0.025
    assert queued_s[int(0.95 * len(queued_s))] < 0.060


def test_connections_do_not_depend_on_the_memory_of_the_guest(
    tmp_path: Path, uml_engine: UmlEngine
) -> None:
    """Linux limits the buffers of all connections to 1/16 of the memory, but not in a guest."""
    taken = []
    for memory_bytes in (MEMORY_BYTES, 4 * MEMORY_BYTES):
        net = Net(options={"memory_bytes": memory_bytes}, default_latency_us=1_000)
        net.host("busy")
        net.host("reader")
        net.run("reader", "serve")
        net.run("busy", "fill", "reader", str(MANY), at_ms=2000)
        directory = tmp_path / str(memory_bytes)
        run_guest(directory, uml_engine, net, stop_s=20)
        taken.append([line["taken"] for line in read_output(directory, "busy")])
    assert len(taken[0]) == MANY
    # The comparison proves something only because the buffers exceed Linux's usual limit for the
    # smaller memory.
    assert sum(taken[0]) > MEMORY_BYTES / 16
    assert taken[0] == taken[1]
