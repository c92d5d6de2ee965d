"""Tests of the traffic driver as a separate process, on loopback and in real time."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.records.tgenlog import Complete
from onionlab.engines.uml.traffic.driver import Driver, raise_file_limit
from onionlab.engines.uml.traffic.traffic_file import read_traffic_file
from onionlab.errors import UserError

from .markov_support import SIMPLE_EDGES, SIMPLE_STATES, emits, model_graphml, to
from .traffic_support import (
    LIMIT_S,
    TRAFFIC,
    DriverRun,
    Proxy,
    client_graphml,
    free_port,
    graphml,
    run_driver,
    server_graphml,
    write_traffic_file,
)

GOLDEN = Path(__file__).parents[1] / "analysis" / "data" / "golden"


def play_until(
    directory: Path,
    graphs: dict[str, str],
    awaited: dict[str, tuple[str, int]],
    **traffic_file: Any,
) -> DriverRun:
    """Play the graphs until the hosts' logs contain the awaited strings.

    awaited: host -> (string, minimum number of its occurrences in the host's log).
    """
    with run_driver(directory, graphs, **traffic_file) as driver:
        for host, (text, count) in awaited.items():
            driver[host].wait_for(text, count)
    return driver


def completes(driver: DriverRun, host: str) -> list[Complete]:
    found = driver[host].parsed.completes
    assert found, driver[host].text
    return found


def test_client_and_server(tmp_path: Path) -> None:
    port = free_port()
    with Proxy() as proxy:
        client = client_graphml(port, proxy=proxy.port, start={"loglevel": "info"})
        driver = play_until(
            tmp_path,
            {"server1": server_graphml(port), "client1": client},
            {"client1": ("[stream-success]", 3), "server1": ("[driver-heartbeat]", 1)},
            receive_low_water_bytes=16384,
        )
    log = driver["client1"].parsed
    for stream in log.completes:
        assert stream.success
        assert stream.payload_bytes == stream.requested_bytes == 327680
        assert stream.total_bytes == 327680 + 69 + 37 + 4
        until_data_us = (stream.proxy_response_us, stream.command_us, stream.first_byte_us)
        times_us = [0, *until_data_us, stream.last_byte_us, stream.duration_us]
        known_us = [time_us for time_us in times_us if time_us is not None]
        assert times_us == sorted(known_us)
    ids = [stream.stream_id for stream in log.completes]
    assert ids == list(range(len(ids)))
    assert log.created_us.keys() >= set(ids)
    assert 1 in log.progress[0].marks_us
    # TGen reads at most 64 KiB at once and logs each read except the last: four for 320 KiB.
    assert log.status_lines >= 4 * len(ids)
    # The driver may be stopped when only one side of a stream has ended.
    assert abs(len(completes(driver, "server1")) - len(ids)) <= 1
    assert "vertexid=passive-stream:stream,name=server1,peername=client1" in driver["server1"].text


@pytest.mark.parametrize("low_water", [1, 16384])
def test_heartbeats_count_every_byte_once(tmp_path: Path, low_water: int) -> None:
    port = free_port()
    with Proxy(piece_bytes=1000) as proxy:
        graphs = {
            "server1": server_graphml(port),
            "client1": client_graphml(
                port, proxy=proxy.port, pause="1 hour", start={"heartbeat": "100 ms"}
            ),
        }
        awaited = {"client1": ("total-streams-succeeded=1", 1)}
        driver = play_until(tmp_path, graphs, awaited, receive_low_water_bytes=low_water)
    counts = [beat.bytes_read for beat in driver["client1"].parsed.heartbeats]
    # Heartbeats count the 12 bytes of SOCKS answers, too, which streams do not.
    assert sum(counts) == 12 + 69 + 327680 + 37 + 4
    # The proxy forwards at most 1000 bytes per millisecond, so 327 KB take at least a third of a
    # second, or three heartbeats.
    assert len([count for count in counts if count]) >= 3


LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+\.\d{6}) (?P<level>\[\w+\]) (?P<rest>.*)"
)


def shape(line: str) -> str:
    """Return a log line without numbers, names and source locations, for comparison with TGen's."""
    match = LINE.fullmatch(line)
    assert match, line
    text = match["level"] + " " + match["rest"]
    text = re.sub(r"\[[\w.-]+\.c:\d+\]", "[PLACE]", text)
    text = re.sub(r"running .* on host \S+ with", "running ... on host NAME with", text)
    text = re.sub(r"'[^']*\.graphml'", "'GRAPH'", text)
    text = re.sub(r"(name|peername)=[\w()-]+", r"\1=NAME", text)
    return re.sub(r"\d+(\.\d+)?", "N", text)


def test_lines_have_the_shape_of_tgens(tmp_path: Path) -> None:
    port = free_port()
    graphs = {
        "server1": server_graphml(port),
        "direct": client_graphml(port, host="localhost"),
        "refused": client_graphml(port, proxy=1, pause="1 s", host="localhost"),
    }
    awaited = {"direct": ("[driver-heartbeat]", 2), "refused": ("[driver-heartbeat]", 2)}
    driver = play_until(tmp_path, graphs, awaited)
    ours = {
        shape(line) for host in ("direct", "refused") for line in driver[host].text.splitlines()
    }
    heartbeats = {line for line in ours if "[driver-heartbeat]" in line}
    own = {line for line in ours if "In TGen's place: the traffic driver" in line}
    assert len(own) == 1
    own |= {line for line in ours if "successfully loaded graphml" in line}
    assert len(own) > 1
    assert heartbeats
    logs = [(GOLDEN / name).read_text() for name in ("web-direct.log", "web-proxy-refused.log")]
    tgens = {shape(line) for log in logs for line in log.splitlines()}
    assert ours - own - heartbeats <= tgens
    counts = re.compile(r"[a-z-]+=N")
    known = counts.findall("".join(line for line in tgens if "[driver-heartbeat]" in line))
    assert set(counts.findall("".join(heartbeats))).difference(known) <= {
        "total-streams-pending=N",
        "total-flows-pending=N",
        "streams-failed=N",
        "total-streams-failed=N",
    }


@pytest.mark.parametrize("low_water", [1, 16384])
def test_a_silent_server_times_out_at_a_heartbeat(tmp_path: Path, low_water: int) -> None:
    port = free_port()
    # With the higher low-water mark, the last bytes before the silence do not wake up the driver.
    # So the heartbeats have to find these bytes.
    with Proxy(limit=69 + 100_000, piece_bytes=1000) as proxy:
        limits = {"client1": {"timeout": "1500 ms"}, "client2": {"stallout": "1 s"}}
        often = {"heartbeat": "500 ms"}
        graphs = {
            name: client_graphml(port, proxy=proxy.port, stream=limit, start=often)
            for name, limit in limits.items()
        } | {"server1": server_graphml(port)}
        awaited = {"client1": ("[stream-error]", 1), "client2": ("[stream-error]", 1)}
        driver = play_until(tmp_path, graphs, awaited, receive_low_water_bytes=low_water)
    timeout, stallout = completes(driver, "client1")[0], completes(driver, "client2")[0]
    assert (timeout.error, stallout.error) == ("TIMEOUT", "STALLOUT")
    assert timeout.payload_bytes == stallout.payload_bytes == 100_000
    assert timeout.duration_us >= 1_500_000
    assert timeout.last_byte_us is not None
    assert timeout.last_byte_us < timeout.duration_us - 500_000
    assert stallout.last_byte_us is not None
    assert stallout.duration_us - stallout.last_byte_us >= 990_000


def test_a_silent_client_stalls_a_server(tmp_path: Path) -> None:
    """The time limits of a server's streams are those of its start vertex."""
    port = free_port()
    graphs = {"server1": server_graphml(port, stallout="500 ms")}
    with run_driver(tmp_path, graphs) as driver:
        driver["server1"].wait_for("server listening")
        with socket.create_connection(("127.0.0.1", port)):
            driver["server1"].wait_for("[stream-error]")
    assert ",error=STALLOUT]" in driver["server1"].text


def test_draws_depend_only_on_seed_and_position(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(4)]
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    graphs = {f"server{port}": server_graphml(port) for port in ports}
    graph = client_graphml(ports[0], start={"peers": peers}, pause="10 ms")

    def remotes(name: str, seed: int, host: str = "client1") -> list[str]:
        directory = tmp_path / name
        directory.mkdir()
        driver = play_until(directory, {**graphs, host: graph}, {host: ("[stream-", 10)}, seed=seed)
        lines = re.findall(r"\[stream-\w+\].*remote=localhost:[\d.]+:(\d+)", driver[host].text)
        assert len(lines) >= 10
        return lines[:10]

    first = remotes("a", 1)
    assert remotes("b", 1) == first
    assert remotes("c", 2) != first
    assert remotes("d", 1, host="client2") != first
    assert len(set(first)) > 1


def test_parallel_branches_and_a_pause_that_waits_for_all(tmp_path: Path) -> None:
    port = free_port()
    streams = {f"stream{n}": {"sendsize": "10", "recvsize": f"{n}00"} for n in (1, 2, 3)}
    both = ("stream1", "stream2")
    graph = graphml(
        {"start": {"peers": f"127.0.0.1:{port}", "time": "100 ms"}, **streams, "pause": {}},
        [
            *(("start", name) for name in both),
            *((name, "pause") for name in both),
            ("pause", "stream3"),
        ],
    )
    graphs = {"server1": server_graphml(port), "c": graph}
    driver = play_until(tmp_path, graphs, {"c": ("[driver-heartbeat]", 2)})
    vertices = [stream.vertex for stream in completes(driver, "c")]
    assert [*sorted(vertices[:2]), *vertices[2:]] == list(streams)


def test_a_walk_follows_one_of_several_weighted_edges(tmp_path: Path) -> None:
    """Perf clients of tornettools start one stream after each pause, usually a small one."""
    port = free_port()
    weights = {"stream_50k": "12.0", "stream_1m": "2.0", "stream_5m": "1.0"}
    text = graphml(
        {"start": {"peers": f"127.0.0.1:{port}"}, "pause": {"time": "10 ms"}}
        | {name: {"sendsize": "10", "recvsize": "50"} for name in weights},
        [
            ("start", "pause"),
            ("pause", "pause"),
            *(("pause", name, weight) for name, weight in weights.items()),
        ],
    )
    graphs = {"server1": server_graphml(port), "a": text, "b": text}
    driver = play_until(tmp_path, graphs, {"a": ("[stream-success]", 90), "b": ("[stream-", 90)})
    first, second = (
        [stream.vertex for stream in completes(driver, host)[:90]] for host in ("a", "b")
    )
    assert first != second
    assert Counter(first).keys() == weights.keys()
    assert first.count("stream_50k") > 50


@pytest.mark.parametrize("mode", ["path", "graphml"])
def test_traffic_by_models(tmp_path: Path, mode: str) -> None:
    """The flows, streams and packets between a client and a server follow Markov models."""
    none = {"low": 0.0, "high": 0.0}
    end = [to("s0", "s1"), to("s1", "s1"), emits("s1", "F", "uniform", 0.2, **none)]
    models = {
        "flow": [*SIMPLE_EDGES[:2], emits("s1", "+", "uniform", low=50_000, high=50_000)],
        "stream": [*end, emits("s1", "+", "exponential", 0.8, rate=0.001)],
        "packet": [
            *end,
            emits("s1", "+", "exponential", 0.2, rate=0.0001),
            emits("s1", "-", "exponential", 0.6, rate=0.0001),
        ],
    }
    (tmp_path / "conf").mkdir()
    for name, edges in models.items():
        text = model_graphml(SIMPLE_STATES, edges)
        (tmp_path / "conf" / f"{name}.graphml").write_text(text)
    port = free_port()
    paths = {f"{name}modelpath": f"conf/{name}.graphml" for name in models}
    traffic = {**paths, "markovmodelseed": "7", "packetmodelmode": mode}
    graph = graphml(
        {"start": {"peers": f"127.0.0.1:{port}"}, "traffic": traffic}, [("start", "traffic")]
    )
    driver = play_until(
        tmp_path,
        {"server1": server_graphml(port), "c": graph},
        {"c": ("total-traffics-created=1", 2), "server1": ("[stream-success]", 10)},
    )
    found = completes(driver, "c")
    assert all(stream.success for stream in found)
    assert len({stream.payload_bytes for stream in found}) > 3
    assert driver["c"].text.count("flow is complete") > 3
    assert "[stream-error]" not in driver["server1"].text


def test_a_path_is_one_packet_model_for_all_clients(tmp_path: Path) -> None:
    """A client requests a model only by its path, so a path must not name two different models."""
    options = {"packetmodelpath": "m.graphml", "packetmodelmode": "path", "peers": "server1:80"}
    graph = graphml({"start": {}, "flow": options}, [("start", "flow")])
    hosts = {name: {"directory": str(tmp_path / name)} for name in ("client1", "client2")}
    traffic_file = write_traffic_file(tmp_path, dict.fromkeys(hosts, graph), hosts=hosts)
    for name in hosts:
        (tmp_path / name).mkdir()
        model = model_graphml(SIMPLE_STATES, SIMPLE_EDGES)
        (tmp_path / name / "m.graphml").write_text(model)
    Driver(read_traffic_file(traffic_file))
    other = emits("s1", "-", "pareto", scale=1, shape=1)
    model = model_graphml(SIMPLE_STATES, [*SIMPLE_EDGES[:2], other])
    (tmp_path / "client2" / "m.graphml").write_text(model)
    with pytest.raises(UserError, match=r"'m\.graphml' is a different packet model"):
        Driver(read_traffic_file(traffic_file))


def test_a_loop_without_pause_does_not_spin_when_refused(tmp_path: Path) -> None:
    """In virtual time a refusal takes no time, so an immediate retry would be repeated forever."""
    graph = graphml(
        {
            "start": {"peers": "127.0.0.1:9", "socksproxy": f"localhost:{free_port()}"},
            "stream": {"sendsize": "10", "recvsize": "100"},
        },
        [("start", "stream"), ("stream", "stream")],
    )
    driver = play_until(tmp_path, {"c": graph}, {"c": ("[driver-heartbeat]", 3)})
    # A stream that fails within a millisecond is repeated after a second. On a slow machine some
    # streams take longer, and are repeated at once.
    assert 1 <= len(completes(driver, "c")) < 400
    assert {stream.error for stream in completes(driver, "c")} == {"PROXY"}


def run(traffic_file: Path) -> subprocess.CompletedProcess[str]:
    """Run the driver as the guest does."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(TRAFFIC), str(traffic_file)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_hosts_start_and_stop_at_their_times(tmp_path: Path) -> None:
    now = int(time.time())
    graphs = {"c": graphml({"start": {"heartbeat": "100 ms"}})}
    hosts = {"c": {"start_ms": 2_000}}
    done = run(write_traffic_file(tmp_path, graphs, hosts=hosts, stop_ms=3_050))
    assert (done.returncode, done.stderr) == (0, "")
    lines = (tmp_path / "c.log").read_text().splitlines()
    assert float(lines[0].split()[2]) >= now + 2
    assert time.time() >= now + 3
    assert len([line for line in lines if "[driver-heartbeat]" in line]) <= 11


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"graph": "/nowhere/c.graphml"}, "/nowhere/c.graphml: cannot read this TGen graph"),
        ({"log": "/nowhere/c.log"}, "No such file or directory: '/nowhere/c.log'"),
        ({"log": "/dev/full"}, "No space left on device"),
        ({"bind": "192.0.2.1"}, "host c: cannot serve on port 80: Cannot assign"),
    ],
)
def test_an_error_is_one_line(tmp_path: Path, change: dict[str, str], error: str) -> None:
    graphs = {"c": server_graphml(80)}
    done = run(write_traffic_file(tmp_path, graphs, hosts={"c": change}, stop_ms=3000))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert error in done.stderr


def test_the_file_limit_is_raised_if_necessary(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(64, 5000)]
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda what, value: limits.append(value))
    raise_file_limit(1000)
    raise_file_limit(500)
    raise_file_limit(6000)
    assert limits[1:] == [(1000, 5000), (1000, 5000), (6000, 6000)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_complete_logs(tmp_path: Path, number: signal.Signals) -> None:
    graphs = {f"c{i}": graphml({"start": {"heartbeat": "50 ms"}}) for i in range(3)}
    with run_driver(tmp_path, graphs) as driver:
        driver["c2"].wait_for("[driver-heartbeat]")
        driver.process.send_signal(number)
        driver.process.wait(LIMIT_S)
    for host in graphs:
        assert driver[host].text.endswith("]\n")


def test_sockets_of_a_host_have_the_address_that_it_is_given(tmp_path: Path) -> None:
    port = free_port()
    graphs = {"server": server_graphml(port), "client": client_graphml(port, host="127.0.0.2")}
    hosts = {"server": {"bind": "127.0.0.2"}, "client": {"bind": "127.0.0.3"}}
    result = play_until(tmp_path, graphs, {"client": ("stream-success", 1)}, hosts=hosts)
    assert f"server listening at 127.0.0.2:{port}" in result["server"].text
    assert "127.0.0.3" in result["server"].text


# --- network namespaces

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
