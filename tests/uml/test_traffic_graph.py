"""The driver's reading of TGen's graphs: what our experiments write, and what it refuses."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.engines.uml.traffic.action_graph import (
    ActionGraph,
    LogLevel,
    Pause,
    StreamOptions,
    load_graph,
)
from onionlab.engines.uml.traffic.options import Peer, parse_peers, parse_size, parse_time
from onionlab.errors import UserError
from onionlab.rundir import tgen

from .traffic_support import client_graphml, graphml, server_graphml

START = {"peers": "server1:80"}
STREAM = {"sendsize": "1000 bytes", "recvsize": "320 KiB"}


def load(tmp_path: Path, text: str | bytes) -> ActionGraph:
    path = tmp_path / "some.graphml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_graph(path)


def refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "some.graphml") in caught.value.message
    return caught.value.message


def test_a_client_of_ours(tmp_path: Path) -> None:
    graph = load(
        tmp_path,
        tgen.client_graph(
            servers=["server1", "server2"],
            request_bytes=327680,
            pause_choices_ms=[1000, 12345],
            timeout_ms=60000,
            stallout_ms=0,
            heartbeat_ms=1000,
            log_level="message",
        ),
    )
    assert graph.start.server_port is None
    assert graph.start.heartbeat_us == 1_000_000
    assert graph.start.log_level is LogLevel.MESSAGE
    assert graph.actions["stream"] == StreamOptions(
        id="stream",
        peers=(Peer("server1", 80), Peer("server2", 80)),
        proxies=(Peer("localhost", 9000),),
        username=None,
        password=None,
        send_bytes=1000,
        recv_bytes=327680,
        timeout_us=60_000_000,
        stallout_us=0,
    )
    assert graph.actions["pause"] == Pause("pause", (1_000_000, 12_345_000), 1)
    assert graph.next == {"start": ("stream",), "stream": ("pause",), "pause": ("stream",)}


def test_a_bulk_client_of_ours_has_no_pause(tmp_path: Path) -> None:
    text = tgen.client_graph(
        servers=["server1"],
        request_bytes=5 << 20,
        pause_choices_ms=[],
        timeout_ms=0,
        stallout_ms=30000,
        heartbeat_ms=500,
        log_level="info",
    )
    graph = load(tmp_path, text)
    assert graph.next == {"start": ("stream",), "stream": ("stream",)}
    assert graph.start.heartbeat_us == 500_000
    assert graph.start.log_level is LogLevel.INFO


def test_a_server_of_ours(tmp_path: Path) -> None:
    graph = load(tmp_path, tgen.server_graph())
    assert graph.start.server_port == 80
    assert graph.start.heartbeat_us == 0
    assert not graph.actions
    assert graph.edges == 0


def test_defaults_are_tgens(tmp_path: Path) -> None:
    graph = load(tmp_path, graphml({"start": START, "stream": STREAM}, [("start", "stream")]))
    assert graph.start.heartbeat_us == 1_000_000
    assert graph.start.delay_us == 0
    assert graph.start.log_level is LogLevel.MESSAGE
    (stream,) = graph.streams
    assert (stream.timeout_us, stream.stallout_us) == (0, 30_000_000)
    assert stream.proxies == ()


def test_start_holds_defaults_that_a_stream_overrides(tmp_path: Path) -> None:
    graph = load(
        tmp_path,
        graphml(
            {
                "start": {**START, **STREAM, "timeout": "5", "socksusername": "one"},
                "stream_a": {"timeout": "0"},
                "b_stream": {"recvsize": "7 kb", "socksusername": ""},
            },
            [("start", "b_stream"), ("start", "stream_a")],
        ),
    )
    first, second = graph.actions["stream_a"], graph.actions["b_stream"]
    assert isinstance(first, StreamOptions)
    assert isinstance(second, StreamOptions)
    assert (first.timeout_us, second.timeout_us) == (0, 5_000_000)
    assert (first.recv_bytes, second.recv_bytes) == (327680, 7000)
    assert first.username == second.username == "one"
    # igraph lists a vertex's neighbours in the order of the vertices, not of the edges.
    assert graph.next["start"] == ("stream_a", "b_stream")


REFUSED: dict[str, tuple[dict[str, dict[str, str]], list[tuple[str, str]]]] = {
    "vertex 'end1' is not supported": ({"start": START, "end1": {}}, [("start", "end1")]),
    "vertex 'flow' is not supported": ({"start": START, "flow": {}}, [("start", "flow")]),
    "vertex 'stream_at_end' is not supported": (
        {"start": START, "stream_at_end": STREAM},
        [("start", "stream_at_end")],
    ),
    "vertex 'other' is not supported": ({"start": START, "other": {}}, [("start", "other")]),
    "vertex 'stream': attribute 'packetmodelpath' is not supported": (
        {"start": START, "stream": {**STREAM, "packetmodelpath": "x"}},
        [("start", "stream")],
    ),
    "vertex 'start': attribute 'socksauthseed' is not supported": (
        {"start": {**START, "socksauthseed": "3"}},
        [],
    ),
    "vertex 'pause': attribute 'sendsize' is not supported": (
        {"start": START, "pause": {"sendsize": "1"}},
        [("start", "pause")],
    ),
    "vertex 'stream': attribute 'peers' is needed": (
        {"start": {}, "stream": STREAM},
        [("start", "stream")],
    ),
    "vertex 'stream': attribute 'recvsize' is needed": (
        {"start": START, "stream": {"sendsize": "1"}},
        [("start", "stream")],
    ),
    "vertex 'stream': attribute 'sendsize' is needed, and not 0": (
        {"start": START, "stream": {"sendsize": "0", "recvsize": "1"}},
        [("start", "stream")],
    ),
    "attribute 'sendsize': '1.5 MiB' is not a size": (
        {"start": START, "stream": {**STREAM, "sendsize": "1.5 MiB"}},
        [("start", "stream")],
    ),
    "attribute 'timeout': '3 weeks' has an unknown unit": (
        {"start": START, "stream": {**STREAM, "timeout": "3 weeks"}},
        [("start", "stream")],
    ),
    "attribute 'peers': 'server1' is not a peer": ({"start": {"peers": "server1"}}, []),
    "attribute 'peers': '80000' is not a port": ({"start": {"peers": "a:80000"}}, []),
    "attribute 'loglevel': 'loud' is not a log level": ({"start": {"loglevel": "loud"}}, []),
    "needs one start vertex, has 0": ({"stream": {**START, **STREAM}}, []),
    "needs one start vertex, has 2": ({"start": {}, "start2": {}}, [("start", "start2")]),
    "vertex 'start' has an edge to itself": ({"start": START}, [("start", "start")]),
    "vertex 'pause' is not connected": ({"start": START, "pause": {}}, []),
    "there is no such vertex": ({"start": START}, [("start", "stream")]),
    "vertex 'pause' is on a loop on which no time passes": (
        {"start": START, "pause": {"time": "1 s,0 s"}},
        [("start", "pause"), ("pause", "pause")],
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, reason: str) -> None:
    vertices, edges = REFUSED[reason]
    assert reason in refusal(tmp_path, graphml(vertices, edges))


def test_a_weighted_edge_is_refused(tmp_path: Path) -> None:
    text = graphml({"start": START, "stream": STREAM}, [("start", "stream")])
    text = text.replace(
        "target='stream'/>", "target='stream'><data key='w'>1</data></edge>"
    ).replace("<graph ", "<key id='w' for='edge' attr.name='weight'/><graph ")
    assert "edge start -> stream: attribute 'weight' is not supported" in refusal(tmp_path, text)


def test_a_default_value_of_a_key_is_refused(tmp_path: Path) -> None:
    text = graphml({"start": START}).replace(
        "attr.type='string'/>", "attr.type='string'><default>x:1</default></key>"
    )
    assert "default value for 'peers'" in refusal(tmp_path, text)


def test_undirected_graphs_are_refused(tmp_path: Path) -> None:
    text = graphml({"start": START}).replace("'directed'", "'undirected'")
    assert "directed" in refusal(tmp_path, text)


@given(st.binary(max_size=200) | st.text(alphabet="<>/='\" abgnopdehrmlk", max_size=100))
def test_no_file_is_more_than_refused(text: bytes | str) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.raises(UserError):
        load(Path(directory), text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.graphml: cannot read this TGen graph"):
        load_graph(tmp_path / "nothing.graphml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10240", 10240),
        ("5 b", 5),
        ("5 kb", 5000),
        ("5 KiB", 5120),
        ("3 Megabytes", 3_000_000),
        ("2 mib", 2 << 20),
        ("1 GB", 10**9),
        ("1 tebibyte", 1 << 40),
        ("0", 0),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize(
    ("text", "value_us"),
    [
        ("10", 10_000_000),
        ("1500 nanoseconds", 1),
        ("3 us", 3),
        ("250 msec", 250_000),
        ("1 Second", 1_000_000),
        ("2 min", 120_000_000),
        ("1 hr", 3_600_000_000),
    ],
)
def test_times(text: str, value_us: int) -> None:
    assert parse_time(text) == value_us


@pytest.mark.parametrize("text", ["", " ", "-1", "1 ", "1  s", "1s", "x", "1.5", "1 s s", "\u0661"])
def test_what_is_neither_size_nor_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a|unknown unit"):
        parse_size(text)
    with pytest.raises(ValueError, match=r"is not a|unknown unit"):
        parse_time(text)


def test_a_size_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        parse_size("9223372036854775808")


names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789.-", min_size=1, max_size=20)


@given(st.lists(st.tuples(names, st.integers(1, 65535)), min_size=1, max_size=9))
def test_peers_come_back(peers: list[tuple[str, int]]) -> None:
    text = ",".join(f"{name}:{port}" for name, port in peers)
    assert parse_peers(text) == tuple(Peer(*peer) for peer in peers)


def test_the_graphs_of_these_tests_are_accepted(tmp_path: Path) -> None:
    assert load(tmp_path, server_graphml(8080)).start.server_port == 8080
    assert load(tmp_path, client_graphml(8080, proxy=9000)).edges == 3
