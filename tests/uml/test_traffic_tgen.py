"""The driver and TGen serve each other, and log the same errors."""

from __future__ import annotations

import itertools
import re
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from onionlab.engines.uml.traffic import wire
from onionlab.engines.uml.traffic.markov_model import Event, MarkovModel, parse_model
from onionlab.engines.uml.traffic.markov_walk import AT_ONCE_US, Burst, MarkovWalk, PacketSchedule

from .markov_support import drawn_payload, emits, logged_payloads, model_graphml, to
from .traffic_support import (
    LIMIT_S,
    OPTIONS,
    Proxy,
    client_graphml,
    free_port,
    graphml,
    run_driver,
    run_tgen,
    server_graphml,
    wait_for_server,
    wait_until,
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


# --- Markov models: for the same seeds, the same draws and bytes

# With this seed, the flows below have three and five streams, and walks through the slow model have
# several pauses on both sides.
SEED = 83

# Flows start half a second apart, and each ends long before the next one begins. So the order in
# which models get their seeds does not depend on the machine's load.
FLOW_MODEL = model_graphml(
    ("s0", "s1", "s2", "s3"),
    [
        to("s0", "s1"),
        to("s1", "s2"),
        to("s2", "s3"),
        emits("s1", "+", "uniform", low=500_000, high=700_000),
        emits("s2", "-", "normal", location=600_000, scale=20_000),
        emits("s3", "F", "uniform", low=0, high=0),
    ],
)
STREAM_MODEL = model_graphml(
    ("s0", "s1", "s2", "s3"),
    [
        to("s0", "s1", 0.3),
        to("s0", "s2", 0.7),
        to("s1", "s2", 0.6),
        to("s1", "s3", 0.4),
        to("s2", "s1", 0.6),
        to("s2", "s3", 0.4),
        emits("s1", "+", "exponential", rate=0.0001),
        emits("s2", "+", "pareto", scale=2000, shape=3),
        emits("s3", "F", "uniform", low=0, high=0),
    ],
)
PACKET_MODEL = model_graphml(
    ("s0", "s1", "s2", "s3"),
    [
        to("s0", "s1", 0.25),
        to("s0", "s2", 0.75),
        to("s1", "s1", 0.7),
        to("s1", "s2", 0.2),
        to("s1", "s3", 0.1),
        to("s2", "s1", 0.3),
        to("s2", "s2", 0.6),
        to("s2", "s3", 0.1),
        emits("s1", "+", "lognormal", 1 / 3, location=6, scale=2),
        emits("s1", "-", "exponential", 2 / 3, rate=0.001),
        emits("s2", "-", "normal", 0.9, location=4000, scale=2000),
        emits("s2", "+", "uniform", 0.1, low=5_000, high=20_000),
        emits("s3", "F", "uniform", low=0, high=0),
    ],
)
MODELS = {"flow": FLOW_MODEL, "stream": STREAM_MODEL, "packet": PACKET_MODEL}

# The model has pauses of two lengths between bursts of one to five packets, in both directions.
SLOW_MODEL = model_graphml(
    ("s0", "s1", "s2"),
    [
        to("s0", "s1"),
        to("s1", "s1", 0.97),
        to("s1", "s2", 0.03),
        emits("s1", "-", "uniform", 3, low=50, high=50),
        emits("s1", "-", "uniform", 1, low=40_000, high=90_000),
        emits("s1", "+", "uniform", 2, low=50, high=50),
        emits("s1", "+", "uniform", 1, low=40_000, high=90_000),
        emits("s2", "F", "uniform", low=0, high=0),
    ],
)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for name, text in MODELS.items():
        (tmp_path / f"{name}.graphml").write_text(text)
    return tmp_path


def client(vertex: str, port: int, *, mode: str = "graphml", **start: str) -> str:
    """Return the graph of a client that visits one vertex once."""
    paths = {f"{name}modelpath": f"{name}.graphml" for name in MODELS}
    if vertex != "traffic":
        del paths["flowmodelpath"]
    options = {**paths, "markovmodelseed": str(SEED), "packetmodelmode": mode}
    first = {"peers": f"127.0.0.1:{port}", "loglevel": "info", "heartbeat": "1 second", **start}
    return graphml({"start": first, vertex: options}, [("start", vertex)])


def generator_lines(log: str) -> list[str]:
    """Return the log's lines about the start and the end of flows and streams."""
    wanted = r"tgen-generator\.c:\d+\] \[\w+\] (.*(?:Set timer|end observation|complete).*)"
    # The order in which two streams of a flow end depends on microseconds. So lines that state how
    # many streams are still active are left out.
    return [line for line in re.findall(wanted, log) if "still active" not in line]


def streams(log: str) -> list[tuple[int, int]]:
    """Return (sent, received) payload bytes of each successful stream, ordered by stream ID."""
    return list(logged_payloads(log).values())


def packet_seeds(log: str) -> list[int]:
    """Return the seeds of TGen's packet models in the order of its streams, from its log.

    Before its main loop TGen checks the models with another seed.
    """
    _, _, walks = log.partition("entering main loop")
    wanted = r"Validating graph for markov model name 'packet\.graphml' seed (\d+)"
    return [int(seed) for seed in re.findall(wanted, walks)]


@pytest.mark.parametrize("mode", ["path", "graphml"])
@pytest.mark.parametrize("vertex", ["traffic", "flow"])
def test_the_same_flows_streams_and_bytes(tgen: Path, conf: Path, vertex: str, mode: str) -> None:
    port = free_port()
    over = f"{vertex} is complete"
    graph = client(vertex, port, mode=mode)
    with run_tgen(tgen, conf, "server1", server_graphml(port)):
        wait_for_server(port)
        with run_tgen(tgen, conf, "client1", graph) as theirs:
            theirs.wait_for(over)
        with run_driver(conf, {"client2": graph}) as ours:
            ours["client2"].wait_for(over)
    lines = generator_lines(theirs.text)
    assert len(lines) > 5
    assert generator_lines(ours["client2"].text) == lines
    sent = streams(theirs.text)
    assert len(sent) > 2
    assert streams(ours["client2"].text) == sent
    assert "[stream-error]" not in theirs.text + ours["client2"].text
    model = parse_model("packet.graphml", PACKET_MODEL.encode())
    assert [drawn_payload(model, seed) for seed in packet_seeds(theirs.text)] == sent


def test_models_of_the_real_client_and_our_server(tgen: Path, conf: Path) -> None:
    port = free_port()
    with run_driver(conf, {"server2": server_graphml(port, loglevel="info")}) as ours:
        wait_for_server(port)
        with run_tgen(tgen, conf, "client1", client("flow", port)) as theirs:
            theirs.wait_for("flow is complete")
        sent = streams(theirs.text)
        wait_until(lambda: len(streams(ours["server2"].text)) >= len(sent), "our server's lines")
    assert len(sent) > 2
    assert "[stream-error]" not in theirs.text
    assert sorted((got, out) for out, got in streams(ours["server2"].text)) == sorted(sent)


@pytest.mark.parametrize("model", ["slow", "packet"])
def test_sizes_are_cut_out_of_repeated_models(tgen: Path, conf: Path, model: str) -> None:
    """A packet model that ends before the fixed sizes are sent is repeated, as in TGen."""
    (conf / "slow.graphml").write_text(SLOW_MODEL)
    stream = {"sendsize": "20000", "recvsize": "100 kb", "packetmodelpath": f"{model}.graphml"}

    def graph(port: int) -> str:
        start = {"peers": f"127.0.0.1:{port}"}
        return graphml({"start": start, "stream": stream}, [("start", "stream")])

    port = free_port()
    with run_tgen(tgen, conf, "server1", server_graphml(port)):
        wait_for_server(port)
        with run_driver(conf, {"client2": graph(port)}) as ours:
            ours["client2"].wait_for("[stream-")
    port = free_port()
    with run_driver(conf, {"server2": server_graphml(port)}):
        wait_for_server(port)
        with run_tgen(tgen, conf, "client1", graph(port)) as theirs:
            theirs.wait_for("[stream-")
    assert streams(ours["client2"].text) == streams(theirs.text) == [(20000, 100000)]


def test_the_same_logins(tgen: Path, conf: Path) -> None:
    port = free_port()
    with run_tgen(tgen, conf, "server1", server_graphml(port)), Proxy(methods=b"\x05\x02") as proxy:
        wait_for_server(port)
        graph = client("traffic", port, socksproxy=f"localhost:{proxy.port}", socksauthseed="99")
        with run_tgen(tgen, conf, "client1", graph) as theirs:
            theirs.wait_for("traffic is complete")
        of_tgen = list(proxy.logins)
        with run_driver(conf, {"client2": graph}) as ours:
            ours["client2"].wait_for("traffic is complete")
    assert len(set(of_tgen)) == 2 < len(of_tgen)
    assert proxy.logins[len(of_tgen) :] == of_tgen


# --- the times of bursts


def list_bursts(model: MarkovModel, seed: int, mine: Event) -> list[Burst]:
    """Return all bursts of one side. mine: the event of this side's packets."""
    schedule = PacketSchedule(MarkovWalk(model, seed), mine)
    bursts = []
    while not schedule.ended:
        bursts.append(schedule.next_burst(None))
    return bursts


def arrivals(sock: socket.socket, bursts: list[Burst]) -> list[tuple[float, int]]:
    """Return times in seconds and byte counts of arrivals, until all bursts have arrived."""
    # TGen does not close the connection, because it waits for packets of this side. So the end is
    # known only by counting bytes.
    sock.settimeout(LIMIT_S)
    found = []
    left = sum(burst.send_bytes for burst in bursts)
    while left > 0:
        data = sock.recv(1 << 16)
        found.append((time.monotonic(), len(data)))
        left -= len(data) or left
    return found


READ_LATE_S = 0.02
"""Tolerated delay of reads, in seconds. The pauses that are checked take at least 0.04 s."""


def check_bursts(found: list[tuple[float, int]], bursts: list[Burst]) -> None:
    """Check that exactly the bytes of these bursts arrived, and that none arrived too early."""
    assert sum(burst.pause_us > AT_ONCE_US for burst in bursts) > 3
    assert len({burst.send_bytes for burst in bursts}) > 2
    assert sum(size for _, size in found) == sum(burst.send_bytes for burst in bursts)
    # If the first bursts are empty, their pauses delay the first bytes.
    due_s, come, at = 0.0, 0, 0
    empty_first = itertools.takewhile(lambda burst: not burst.send_bytes, bursts)
    first = found[0][0] - sum(burst.pause_us for burst in empty_first) / 1e6
    for burst in bursts:
        wanted = come + burst.send_bytes
        while come < wanted:
            when, size = found[at]
            # No bytes of this burst arrived too early, and none of the next burst arrived with it.
            # If the first read is late, later reads seem early, but by less than any pause.
            assert due_s - READ_LATE_S <= when - first < due_s + 5
            come, at = come + size, at + 1
        assert come == wanted
        due_s += burst.pause_us / 1e6


@pytest.mark.parametrize("who", ["TGen", "ours"])
def test_a_servers_bursts(tgen: Path, tmp_path: Path, who: str) -> None:
    port = free_port()
    model = parse_model("slow", SLOW_MODEL.encode())
    options = replace(OPTIONS, send_bytes=0, recv_bytes=0, packet_model=model)
    graph = server_graphml(port)
    ours = run_driver(tmp_path, {"s": graph})
    with run_tgen(tgen, tmp_path, "s", graph) if who == "TGen" else ours:
        wait_for_server(port)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(wire.command("test", options, SEED))
            answer = b""
            while not answer.endswith(b"\n"):
                answer += sock.recv(1)
            # The server uses the model that it receives, whose numbers are rounded to 15 digits.
            bursts = list_bursts(parse_model("slow", model.text), SEED, Event.TO_ORIGIN)
            found = arrivals(sock, bursts)
    assert b"CODE=NONE" in answer
    check_bursts(found, bursts)
