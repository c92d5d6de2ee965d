"""Parse the part of TGen's action graphs that this driver supports.

A graph has one ``start`` vertex. It may have ``stream``, ``flow``, ``traffic`` and ``pause``
vertices, edges with and without weights, and loops. Any other content is rejected with a message,
because playing it incorrectly would give wrong results. As in TGen:

- A vertex's id contains its kind ("stream_1" is a stream).
- Options of streams, flows and traffics may be set at ``start`` as defaults.
- An empty value counts as missing.
- A walk follows all unweighted edges of a vertex, and one of its weighted edges.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from onionlab.errors import UserError

from .draws import GlibRandom
from .graphml import Edge, Graphml, parse_graphml, reachable
from .markov_model import (
    INTERNAL_FLOW_MODEL,
    INTERNAL_PACKET_MODEL,
    INTERNAL_STREAM_MODEL,
    MarkovModel,
    load_model,
)
from .options import LogLevel, Peer, parse_options, vertex_kind

DEFAULT_HEARTBEAT_US = 1_000_000
DEFAULT_STALLOUT_US = 30_000_000

_WEIGHT = re.compile(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Start:
    """Options of the start vertex. Times are in microseconds.

    server_port: None if the host has no server. delay_us: the time until the walk starts.
    heartbeat_us: 0 disables heartbeats and thereby timeouts, which TGen checks at heartbeats.
    timeout_us, stallout_us: limits of the streams that this host serves; 0 means no limit.
    """

    id: str
    server_port: int | None
    delay_us: int
    heartbeat_us: int
    log_level: LogLevel
    timeout_us: int
    stallout_us: int


@dataclass(frozen=True)
class StreamOptions:
    """Options of a vertex that starts streams: a stream, flow or traffic vertex.

    kind: a stream vertex starts one stream. A flow vertex starts streams at times that
    `stream_model` determines. A traffic vertex starts such flows at times that `flow_model`
    determines. Models that the vertex does not use have their defaults.
    send_bytes, recv_bytes: payload sizes; both are 0 if the packet model determines when a stream
    ends. timeout_us, stallout_us: 0 means no limit. packet_model_path: the path by which a client
    requests the model from its server, or the name of TGen's default model; None if the client
    sends the model's text. model_seeds: the source of the seeds for all walks through this vertex's
    models; None to derive them from the run's seed. logins: the source of user names and passwords
    for the proxy; None to use `username` and `password`. All vertices that have the seed of the
    start vertex share one source.
    """

    id: str
    kind: Literal["stream", "flow", "traffic"]
    peers: tuple[Peer, ...]
    proxies: tuple[Peer, ...]
    username: str | None
    password: str | None
    send_bytes: int
    recv_bytes: int
    timeout_us: int
    stallout_us: int
    packet_model: MarkovModel = INTERNAL_PACKET_MODEL
    packet_model_path: str | None = None
    model_seeds: GlibRandom | None = None
    logins: GlibRandom | None = None
    stream_model: MarkovModel = INTERNAL_STREAM_MODEL
    flow_model: MarkovModel = INTERNAL_FLOW_MODEL


@dataclass(frozen=True)
class Pause:
    """Options of a pause vertex.

    times_us: one of these times is chosen randomly as the pause's duration. If there are none, the
    pause lasts until the walk has arrived at the vertex `incoming` times. incoming: the number of
    the vertex's incoming edges.
    """

    id: str
    times_us: tuple[int, ...]
    incoming: int


@dataclass(frozen=True)
class ActionGraph:
    """A graph of actions.

    actions: the options of all vertices except the start vertex, by the vertex's id. next: for each
    vertex, the targets of its unweighted edges. choices: for each vertex, the targets of its
    weighted edges with the weights. Both are in TGen's order. edges: the number of all edges.
    """

    path: str
    start: Start
    actions: Mapping[str, StreamOptions | Pause]
    next: Mapping[str, tuple[str, ...]]
    edges: int
    choices: Mapping[str, tuple[tuple[str, float], ...]]

    @property
    def streams(self) -> list[StreamOptions]:
        """The options of all vertices that start streams."""
        return [one for one in self.actions.values() if isinstance(one, StreamOptions)]

    def following(self, vertex: str, draw: float) -> tuple[str, ...]:
        """Return the next vertices of a walk, chosen as in tgen-graph.c.

        draw: a random number in [0, 1), which selects one of the weighted edges.
        """
        choices = self.choices.get(vertex, ())
        if not choices:
            return self.next[vertex]
        cumulative = list(itertools.accumulate(weight for _, weight in choices))
        chosen = choices[bisect_right(cumulative, draw * cumulative[-1])][0]
        return (*self.next[vertex], chosen)


def load_graph(
    path: Path, directory: Path, read: Callable[[Path], bytes] = Path.read_bytes
) -> ActionGraph:
    """Read a GraphML file and the models that it refers to.

    directory: the base of the models' paths. read: a function that returns a file's bytes or raises
    OSError. Raises UserError if a file cannot be read or its content is not supported.
    """
    try:
        graph = parse_graphml(read(path))
        return _checked(path, graph, lambda one: load_model(directory / one, read))
    except OSError as error:
        raise UserError(f"{path}: cannot read this TGen graph: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def _checked(path: Path, graph: Graphml, load: Callable[[str], MarkovModel]) -> ActionGraph:
    kinds = {vertex: vertex_kind(vertex) for vertex in graph.vertices}
    parsed = {
        vertex: parse_options(vertex, kinds[vertex], data)
        for vertex, data in graph.vertices.items()
    }
    starts = [vertex for vertex, kind in kinds.items() if kind == "start"]
    if len(starts) != 1:
        raise ValueError(f"needs one start vertex, has {len(starts)}")
    (start,) = starts
    defaults = parsed[start]
    weights = _weights(graph.edges)
    targets = {vertex: [edge.target for edge in edges] for vertex, edges in graph.out_edges.items()}
    incoming = Counter(edge.target for edge in graph.edges)
    if start in targets[start]:
        raise ValueError(f"vertex {start!r} has an edge to itself, which TGen rejects")
    _check_connected(graph)
    actions: dict[str, StreamOptions | Pause] = {}
    for vertex, kind in kinds.items():
        if kind == "pause":
            actions[vertex] = Pause(vertex, parsed[vertex].get("time", ()), incoming[vertex])
        elif kind != "start":
            actions[vertex] = _stream_options(vertex, kind, {**defaults, **parsed[vertex]}, load)
    _check_no_timeless_cycle(actions, targets)
    following: dict[str, tuple[str, ...]] = {}
    choices: dict[str, tuple[tuple[str, float], ...]] = {}
    for vertex, reached in targets.items():
        weighted = tuple((t, w) for t in reached if (w := weights[vertex, t]) is not None)
        following[vertex] = tuple(t for t in reached if weights[vertex, t] is None)
        if weighted:
            if not 0 < sum(weight for _, weight in weighted) < math.inf:
                raise ValueError(
                    f"vertex {vertex!r}: the sum of the weights of its edges is 0 or infinite"
                )
            choices[vertex] = weighted
    return ActionGraph(
        path=str(path),
        start=Start(
            id=start,
            server_port=defaults.get("serverport"),
            delay_us=defaults.get("time", 0),
            heartbeat_us=defaults.get("heartbeat", DEFAULT_HEARTBEAT_US),
            log_level=defaults.get("loglevel", LogLevel.MESSAGE),
            timeout_us=defaults.get("timeout", 0),
            stallout_us=defaults.get("stallout", DEFAULT_STALLOUT_US),
        ),
        actions=actions,
        next=following,
        edges=len(graph.edges),
        choices=choices,
    )


def _weights(edges: Iterable[Edge]) -> dict[tuple[str, str], float | None]:
    """Return the weight of each edge (None if it has none) by source and target, in file order."""
    weights: dict[tuple[str, str], float | None] = {}
    for edge in edges:
        if (edge.source, edge.target) in weights:
            # TGen looks up an edge's weight by the edge's two vertices. It would therefore use the
            # same weight for both edges.
            raise ValueError(f"{edge}: duplicate edge")
        weight = None
        for name, text in edge.data.items():
            if name.lower() != "weight":
                raise ValueError(f"{edge}: attribute {name!r} is not supported; 'weight' is")
            if not _WEIGHT.fullmatch(text.strip()) or not math.isfinite(weight := float(text)):
                raise ValueError(f"{edge}: attribute 'weight' is {text!r}, not a finite number")
        weights[edge.source, edge.target] = weight
    return weights


def _stream_options(
    vertex: str, kind: Any, options: Mapping[str, Any], load: Callable[[str], MarkovModel]
) -> StreamOptions:
    def model(option: str, internal: MarkovModel, *used_by: str) -> MarkovModel:
        return load(options[option]) if option in options and kind in used_by else internal

    packet_model = model("packetmodelpath", INTERNAL_PACKET_MODEL, "stream", "flow", "traffic")
    if "peers" not in options:
        raise ValueError(f"vertex {vertex!r}: attribute 'peers' is needed")
    sizes = ("sendsize", "recvsize")
    for name in sizes if options.keys() & sizes else ():
        if not options.get(name):
            # In TGen, a stream with only one size waits for a closing line until it stalls. If both
            # sizes are 0, each side waits for the other side's checksum before it sends its own
            # checksum, so the stream stalls as well. If both sizes are given and one is 0, the
            # stream succeeds in TGen, but this driver does not support it.
            raise ValueError(
                f"vertex {vertex!r}: attribute {name!r} is required and must not be 0 if the other "
                "size is given; without both, the packet model determines the end of a stream"
            )
    by_path = options.get("packetmodelmode") == "path"
    path = options.get("packetmodelpath", INTERNAL_PACKET_MODEL.name)
    return StreamOptions(
        id=vertex,
        kind=kind,
        peers=options["peers"],
        proxies=options.get("socksproxy", ()),
        username=options.get("socksusername"),
        password=options.get("sockspassword"),
        send_bytes=options.get("sendsize", 0),
        recv_bytes=options.get("recvsize", 0),
        timeout_us=options.get("timeout", 0),
        stallout_us=options.get("stallout", DEFAULT_STALLOUT_US),
        packet_model=packet_model,
        packet_model_path=path if by_path else None,
        model_seeds=options.get("markovmodelseed"),
        logins=options.get("socksauthseed"),
        stream_model=model("streammodelpath", INTERNAL_STREAM_MODEL, "flow", "traffic"),
        flow_model=model("flowmodelpath", INTERNAL_FLOW_MODEL, "traffic"),
    )


def _check_connected(graph: Graphml) -> None:
    neighbours: dict[str, set[str]] = {vertex: set() for vertex in graph.vertices}
    for edge in graph.edges:
        neighbours[edge.source].add(edge.target)
        neighbours[edge.target].add(edge.source)
    reached = reachable(next(iter(neighbours)), lambda vertex: neighbours[vertex])
    if apart := set(neighbours) - reached:
        raise ValueError(f"vertex {min(apart)!r} is not connected to the others")


def _check_no_timeless_cycle(
    actions: Mapping[str, StreamOptions | Pause], following: Mapping[str, list[str]]
) -> None:
    """Raise ValueError for a loop on which no time passes, because TGen would never leave it."""

    def timeless(vertex: str) -> bool:
        action = actions.get(vertex)
        return action is None or (isinstance(action, Pause) and 0 in (action.times_us or (0,)))

    instant = {
        vertex: [target for target in targets if timeless(target)]
        for vertex, targets in following.items()
        if timeless(vertex)
    }
    try:
        TopologicalSorter(instant).prepare()
    except CycleError as error:
        first = next(vertex for vertex in actions if vertex in error.args[1])
        raise ValueError(f"vertex {first!r} is on a loop on which no time passes") from None
