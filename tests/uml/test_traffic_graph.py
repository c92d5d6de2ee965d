"""Reading TGen's graphs in the driver: the graphs that experiments write, and rejected ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from onionlab.engines.uml.traffic.action_graph import ActionGraph, Pause, StreamOptions, load_graph
from onionlab.engines.uml.traffic.draws import GlibRandom
from onionlab.engines.uml.traffic.markov_model import INTERNAL_PACKET_MODEL
from onionlab.engines.uml.traffic.options import LogLevel, Peer, parse_size, parse_time
from onionlab.errors import UserError
from onionlab.rundir import tgen

from .markov_support import SIMPLE_EDGES, SIMPLE_STATES, model_graphml
from .traffic_support import graphml

START = {"peers": "server1:80"}
STREAM = {"sendsize": "1000 bytes", "recvsize": "320 KiB"}


def load(tmp_path: Path, text: str | bytes) -> ActionGraph:
    path = tmp_path / "some.graphml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_graph(path, tmp_path)


def test_a_generated_client(tmp_path: Path) -> None:
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
        kind="stream",
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


def test_a_generated_server(tmp_path: Path) -> None:
    graph = load(tmp_path, tgen.server_graph())
    assert graph.start.server_port == 80
    assert graph.start.heartbeat_us == 0
    assert not graph.actions
    assert graph.edges == 0


def test_streams_override_the_defaults_of_start_and_of_tgen(tmp_path: Path) -> None:
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
    start = graph.start
    assert (start.heartbeat_us, start.delay_us) == (1_000_000, 0)
    assert start.log_level is LogLevel.MESSAGE
    first, second = graph.streams
    assert first.proxies == ()
    assert first.stallout_us == second.stallout_us == 30_000_000
    assert (first.timeout_us, second.timeout_us) == (0, 5_000_000)
    assert (first.recv_bytes, second.recv_bytes) == (327680, 7000)
    assert first.username == second.username == "one"
    # igraph lists a vertex's neighbours in the order of the vertices, not of the edges.
    assert graph.next["start"] == ("stream_a", "b_stream")


def graph_of(stream: Mapping[str, str] = STREAM, start: Mapping[str, str] = START) -> str:
    """Return a graph with one stream."""
    return graphml({"start": start, "stream": stream}, [("start", "stream")])


def graph_of_start(**start: str) -> str:
    return graphml({"start": {**START, **start}})


def graph_with_weight(weight: str) -> str:
    return graphml({"start": START, "stream": STREAM}, [("start", "stream", weight)])


REFUSED = {
    "vertex 'end1' is not supported": graphml({"start": START, "end1": {}}, [("start", "end1")]),
    "vertex 'stream': attribute 'streammodelpath' is not supported": graph_of(
        {**STREAM, "streammodelpath": "x"}
    ),
    "attribute 'socksauthseed': '4294967296' is not a seed": graph_of_start(
        socksauthseed="4294967296"
    ),
    "attribute 'packetmodelmode': 'pigeon' is not a mode": graph_of_start(packetmodelmode="pigeon"),
    "vertex 'stream': attribute 'peers' is needed": graph_of(start={}),
    "vertex 'stream': attribute 'sendsize' is required and must not be 0": graph_of(
        {"sendsize": "0", "recvsize": "1"}
    ),
    "attribute 'sendsize': '1.5 MiB' is not a size": graph_of({**STREAM, "sendsize": "1.5 MiB"}),
    "attribute 'timeout': '3 weeks' has an unknown unit": graph_of(
        {**STREAM, "timeout": "3 weeks"}
    ),
    "attribute 'peers': '80000' is not a port": graph_of_start(peers="a:80000"),
    "attribute 'loglevel': 'loud' is not a log level": graph_of_start(loglevel="loud"),
    "needs one start vertex, has 2": graphml({"start": {}, "start2": {}}, [("start", "start2")]),
    "vertex 'start' has an edge to itself": graphml({"start": START}, [("start", "start")]),
    "vertex 'pause' is not connected": graphml({"start": START, "pause": {}}),
    "the edge precedes one of its vertices": graph_of().replace(
        '<node id="stream">', "<node id='x'>"
    ),
    "vertex 'pause' is on a loop on which no time passes": graphml(
        {"start": START, "pause": {"time": "1 s,0 s"}}, [("start", "pause"), ("pause", "pause")]
    ),
    "edge start -> stream: duplicate edge": graph_of().replace(
        "</graph>", '<edge source="start" target="stream"/></graph>'
    ),
    "default value for 'peers'": graph_of_start().replace(
        ' attr.type="string" />', ' attr.type="string"><default>x:1</default></key>'
    ),
    "edge start -> stream: attribute 'colour' is not supported": graph_with_weight("1").replace(
        'attr.name="weight"', 'attr.name="colour"'
    ),
    "edge start -> stream: attribute 'weight' is '-1'": graph_with_weight("-1"),
    "edge start -> stream: attribute 'weight' is '1e999'": graph_with_weight("1e999"),
    "edge start -> stream: attribute 'weight' is '1_0'": graph_with_weight("1_0"),
    "vertex 'start': the sum of the weights of its edges is 0 or infinite": graph_with_weight("0"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_unsupported_graphs_are_rejected(tmp_path: Path, reason: str) -> None:
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        load(tmp_path, REFUSED[reason])
    assert str(tmp_path / "some.graphml") in caught.value.message


def test_a_perf_client_of_tornettools(tmp_path: Path) -> None:
    weights = {"stream_50k": "12.0", "stream_1m": "2.0", "stream_5m": "1.0"}
    ends = [("pause", target, weight) for target, weight in weights.items()]
    text = graphml(
        {"start": {**START, "packetmodelmode": "path"}, "pause": {"time": "1 minute"}}
        | dict.fromkeys(weights, STREAM),
        [("start", "pause"), ("pause", "pause"), *ends],
    )
    graph = load(tmp_path, text)
    assert graph.next["pause"] == ("pause",)
    assert [weight for _, weight in graph.choices["pause"]] == [12.0, 2.0, 1.0]
    # TGen uses the first edge at which the cumulative weight exceeds the random number.
    chosen = [graph.following("pause", draw / 15) for draw in (0, 11.999, 12, 13.9, 14, 14.999)]
    names = ["50k", "50k", "1m", "1m", "5m", "5m"]
    assert chosen == [("pause", f"stream_{name}") for name in names]
    assert graph.following("start", 0.5) == ("pause",)
    assert {stream.packet_model_path for stream in graph.streams} == {INTERNAL_PACKET_MODEL.name}


def test_a_markov_client_of_tornettools(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    for name in ("flow", "stream", "packet"):
        (conf / f"{name}.graphml").write_text(model_graphml(SIMPLE_STATES, SIMPLE_EDGES))
    host = tmp_path / "client1"
    host.mkdir()
    paths = {f"{name}modelpath": f"../conf/{name}.graphml" for name in ("flow", "stream", "packet")}
    text = graphml(
        {
            "start": {**START, "socksproxy": "localhost:9050", "timeout": "10 minutes"},
            "traffic": {
                **paths,
                "socksauthseed": "1",
                "packetmodelmode": "path",
                "markovmodelseed": "2",
            },
        },
        [("start", "traffic"), ("traffic", "traffic")],
    )
    graph = load(host, text)
    traffic = graph.actions["traffic"]
    assert isinstance(traffic, StreamOptions)
    assert traffic.kind == "traffic"
    assert traffic.flow_model.name == "flow.graphml"
    assert traffic.stream_model.name == "stream.graphml"
    assert (traffic.send_bytes, traffic.recv_bytes) == (0, 0)
    for source, seed in ((traffic.model_seeds, 2), (traffic.logins, 1)):
        assert source is not None
        assert source.integer() == GlibRandom(seed).integer()
    assert (traffic.timeout_us, traffic.stallout_us) == (600_000_000, 30_000_000)
    assert traffic.packet_model_path == "../conf/packet.graphml"
    assert traffic.packet_model.name == "packet.graphml"
    assert graph.next["traffic"] == ("traffic",)


def test_vertices_without_a_seed_share_the_generator_of_start(tmp_path: Path) -> None:
    graph = load(
        tmp_path,
        graphml(
            {
                "start": {**START, "markovmodelseed": "7"},
                "flow_a": {},
                "flow_b": {"markovmodelseed": "7"},
                "stream": STREAM,
            },
            [("start", name) for name in ("flow_a", "flow_b", "stream")],
        ),
    )
    flow_a, flow_b, stream = (options.model_seeds for options in graph.streams)
    assert flow_a is stream is not None
    assert flow_b not in (flow_a, None)
    assert graph.streams[0].packet_model is INTERNAL_PACKET_MODEL


def test_the_error_names_the_file_of_an_invalid_model(tmp_path: Path) -> None:
    (tmp_path / "bad.graphml").write_text("<graphml/>")
    for path, reason in (("bad.graphml", "needs one <graph>"), ("none.graphml", "cannot read")):
        text = graphml({"start": START, "flow": {"streammodelpath": path}}, [("start", "flow")])
        with pytest.raises(UserError, match=reason) as caught:
            load(tmp_path, text)
        assert str(tmp_path / path) in caught.value.message


SIZES = {
    "10240": 10240,
    "5 b": 5,
    "5 kb": 5000,
    "5 KiB": 5120,
    "3 Megabytes": 3_000_000,
    "2 mib": 2 << 20,
    "1 GB": 10**9,
    "1 tebibyte": 1 << 40,
    "0": 0,
}
TIMES_US = {
    "10": 10_000_000,
    "1500 nanoseconds": 1,
    "3 us": 3,
    "250 msec": 250_000,
    "1 Second": 1_000_000,
    "2 min": 120_000_000,
    "1 hr": 3_600_000_000,
}


def test_sizes_and_times() -> None:
    assert {text: parse_size(text) for text in SIZES} == SIZES
    assert {text: parse_time(text) for text in TIMES_US} == TIMES_US


@pytest.mark.parametrize("text", ["", " ", "-1", "1 ", "1  s", "1s", "x", "1.5", "1 s s", "\u0661"])
def test_invalid_sizes_and_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a|unknown unit"):
        parse_size(text)
    with pytest.raises(ValueError, match=r"is not a|unknown unit"):
        parse_time(text)
