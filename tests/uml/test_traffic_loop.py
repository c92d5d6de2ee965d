"""The event loop wakes up only for a reason, because a busy loop would stop virtual time."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from onionlab.engines.uml.traffic import loop as loop_module
from onionlab.engines.uml.traffic import wire
from onionlab.engines.uml.traffic.driver import Driver
from onionlab.engines.uml.traffic.loop import EDGE_IN, LEVEL_IN, Loop
from onionlab.engines.uml.traffic.traffic_file import read_traffic_file
from onionlab.errors import UserError

from .traffic_support import OPTIONS, client_graphml, free_port, server_graphml, write_traffic_file

IDLE_S = 3.0


def driver_until(tmp_path: Path, graphs: dict[str, str], seconds: float) -> Driver:
    stop_ms = round((time.time() % 1 + seconds) * 1000)
    return Driver(read_traffic_file(write_traffic_file(tmp_path, graphs, stop_ms=stop_ms)))


COMMAND = wire.command("c", replace(OPTIONS, recv_bytes=50_000_000), model_seed=1)


@pytest.mark.parametrize("half_close", [False, True])
def test_idle_and_half_closed_connections_cause_no_wake_ups(
    tmp_path: Path, half_close: bool
) -> None:
    port = free_port()
    driver = driver_until(tmp_path, {"s": server_graphml(port, heartbeat="0 s")}, IDLE_S)
    # The clients send nothing, half a password, half a command, or a command whose answer they do
    # not read.
    openings = [b"", b"T8nN", COMMAND[:300], COMMAND + b"x" * 100] * 5
    opened = []

    def connect() -> None:
        for says in openings:
            opened.append(socket.create_connection(("127.0.0.1", port)))
            opened[-1].sendall(says)
            if half_close:
                opened[-1].shutdown(socket.SHUT_WR)

    driver.loop.at(driver.loop.now_us, connect)
    driver.run()
    for sock in opened:
        sock.close()
    # The event loop has one turn for the start and one for the stop. Each connection has turns for
    # its accept, its data and its end. It has another turn whenever the kernel's buffers grow,
    # because it is then writable.
    assert len(openings) <= driver.loop.turns <= 2 + 20 * len(openings)


@pytest.mark.parametrize("proxied", [True, False])
def test_a_waiting_client_wakes_up_only_for_heartbeats(tmp_path: Path, proxied: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        graph = client_graphml(
            port, proxy=port if proxied else None, start={"heartbeat": "1 s", "stallout": "0"}
        )
        driver = driver_until(tmp_path, {f"c{i}": graph for i in range(20)}, IDLE_S)
        driver.run()
    assert driver.loop.turns <= 10 + 20 * IDLE_S


def test_time_that_does_not_advance_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MAX_TURNS_IN_AN_INSTANT", 100)
    loop = Loop()
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic_ns=lambda: 10**9))
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.send(b"x")
        loop.watch(reading.fileno(), LEVEL_IN, lambda events: None)
        with pytest.raises(UserError, match="without time passing"):
            loop.run()
    loop.close()


def test_an_ended_stream_receives_no_more_events() -> None:
    loop = Loop()
    pairs = [socket.socketpair() for _ in range(2)]
    calls: list[int] = []

    def first_ends_both(events: int) -> None:
        calls.append(events)
        for mine, _ in pairs:
            loop.forget(mine.fileno())
        loop.stop()

    for mine, other in pairs:
        other.send(b"x")
        loop.watch(mine.fileno(), EDGE_IN, first_ends_both)
        loop.want_writable(mine.fileno())
    loop.run()
    assert len(calls) == 1
    for mine, other in pairs:
        mine.close()
        other.close()
    loop.close()
