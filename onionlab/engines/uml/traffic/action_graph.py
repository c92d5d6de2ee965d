"""TGen's action graph, as far as this driver plays it.

Supported: one ``start`` vertex, ``stream`` and ``pause`` vertices, edges without weights, loops.
As in TGen, a vertex is what its id contains ("stream_1" is a stream), options of a stream may stand
at ``start`` as defaults, an empty value is as good as none, and a walk follows all edges that leave
a vertex. Whatever else a graph says is refused by name: played wrongly it would give wrong results.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from onionlab.errors import UserError

from .options import Peer, parse_peers, parse_port, parse_size, parse_time, parse_times

DEFAULT_HEARTBEAT_US = 1_000_000
DEFAULT_STALLOUT_US = 30_000_000

# TGen looks for these words in a vertex's id, in this order.
_KINDS = ("start", "end", "pause", "stream", "flow", "traffic")
_SUPPORTED_KINDS = ("start", "pause", "stream")


class LogLevel(Enum):
    """How much of its log TGen writes; each level includes those before it."""

    ERROR = 1
    CRITICAL = 2
    WARNING = 3
    MESSAGE = 4
    INFO = 5
    DEBUG = 6


@dataclass(frozen=True)
class Start:
    """Options of the start vertex. Times in microseconds.

    heartbeat_us: 0 for none. No stream times out then: TGen looks for that at heartbeats.
    """

    id: str
    server_port: int | None
    delay_us: int
    heartbeat_us: int
    log_level: LogLevel


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream vertex. Times in microseconds; 0 switches a limit off."""

    id: str
    peers: tuple[Peer, ...]
    proxies: tuple[Peer, ...]
    username: str | None
    password: str | None
    send_bytes: int
    recv_bytes: int
    timeout_us: int
    stallout_us: int


@dataclass(frozen=True)
class Pause:
    """Options of a pause vertex; without times it waits until each of its edges was walked once."""

    id: str
    times_us: tuple[int, ...]
    incoming: int


@dataclass(frozen=True)
class ActionGraph:
    """A graph: its vertices by id, and where the edges from each lead, in TGen's order."""

    path: str
    start: Start
    actions: Mapping[str, StreamOptions | Pause]
    next: Mapping[str, tuple[str, ...]]
    edges: int

    @property
    def streams(self) -> list[StreamOptions]:
        """All stream vertices."""
        return [action for action in self.actions.values() if isinstance(action, StreamOptions)]


def _level(text: str) -> LogLevel:
    try:
        return LogLevel[text.upper()]
    except KeyError:
        levels = ", ".join(level.name.lower() for level in LogLevel)
        raise ValueError(f"{text!r} is not a log level: {levels}") from None


_STREAM_OPTIONS: dict[str, Callable[[str], Any]] = {
    "peers": parse_peers,
    "socksproxy": parse_peers,
    "socksusername": str,
    "sockspassword": str,
    "sendsize": parse_size,
    "recvsize": parse_size,
    "timeout": parse_time,
    "stallout": parse_time,
}
_OPTIONS: dict[str, dict[str, Callable[[str], Any]]] = {
    "start": {
        "serverport": parse_port,
        "time": parse_time,
        "heartbeat": parse_time,
        "loglevel": _level,
        **_STREAM_OPTIONS,
    },
    "stream": _STREAM_OPTIONS,
    "pause": {"time": parse_times},
}


def load_graph(path: Path) -> ActionGraph:
    """Read a GraphML file. Raises UserError that names the file and what in it is not supported."""
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot read this TGen graph: {error.strerror}") from error
    except ElementTree.ParseError as error:
        raise UserError(f"{path}: not GraphML: {error}") from error
    try:
        return _action_graph(str(path), root)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def _action_graph(path: str, root: ElementTree.Element) -> ActionGraph:
    if _tag(root) != "graphml":
        raise ValueError(f"not GraphML: its root element is <{_tag(root)}>")
    names: dict[str, str] = {}
    graphs = []
    for child in root:
        if _tag(child) == "key":
            if len(child) and any(_tag(part) == "default" for part in child):
                raise ValueError(f"a default value for {child.get('attr.name')!r} is not supported")
            names[child.get("id", "")] = child.get("attr.name", "")
        elif _tag(child) == "graph":
            graphs.append(child)
    if len(graphs) != 1:
        raise ValueError(f"needs one <graph>, has {len(graphs)}")
    if graphs[0].get("edgedefault") != "directed":
        raise ValueError("the graph must have directed edges (edgedefault='directed')")

    vertices: dict[str, dict[str, str]] = {}
    edges: list[tuple[str, str]] = []
    for element in graphs[0]:
        data = _data(element, names)
        if _tag(element) == "node":
            vertex = element.get("id")
            if not vertex or vertex in vertices:
                raise ValueError(f"vertex id {vertex!r} is missing or used twice")
            vertices[vertex] = data
        elif _tag(element) == "edge":
            ends = element.get("source", ""), element.get("target", "")
            if data:
                raise ValueError(
                    f"edge {ends[0]} -> {ends[1]}: attribute {next(iter(data))!r} is not supported;"
                    " edges have none"
                )
            edges.append(ends)
        elif data or _tag(element) not in ("data", "desc"):
            raise ValueError(f"<{_tag(element)}> is not supported")
    for source, target in edges:
        if source not in vertices or target not in vertices:
            raise ValueError(f"edge {source} -> {target}: there is no such vertex")
    return _checked(path, vertices, edges)


def _checked(
    path: str, vertices: dict[str, dict[str, str]], edges: list[tuple[str, str]]
) -> ActionGraph:
    kinds = {vertex: _kind(vertex) for vertex in vertices}
    parsed = {vertex: _parsed(vertex, kinds[vertex], data) for vertex, data in vertices.items()}
    starts = [vertex for vertex, kind in kinds.items() if kind == "start"]
    if len(starts) != 1:
        raise ValueError(f"needs one start vertex, has {len(starts)}")
    (start,) = starts
    defaults = parsed[start]
    # TGen takes the neighbours in the order of the vertices, whatever the order of the edges.
    order = {vertex: position for position, vertex in enumerate(vertices)}
    following = {
        vertex: tuple(sorted((t for s, t in edges if s == vertex), key=order.__getitem__))
        for vertex in vertices
    }
    if start in following[start]:
        raise ValueError(f"vertex {start!r} has an edge to itself, which TGen refuses")
    _check_connected(vertices, edges)
    actions: dict[str, StreamOptions | Pause] = {}
    for vertex, kind in kinds.items():
        if kind == "stream":
            actions[vertex] = _stream(vertex, {**defaults, **parsed[vertex]})
        elif kind == "pause":
            incoming = sum(target == vertex for _, target in edges)
            actions[vertex] = Pause(vertex, parsed[vertex].get("time", ()), incoming)
    _check_no_timeless_cycle(actions, following, start)
    return ActionGraph(
        path=path,
        start=Start(
            id=start,
            server_port=defaults.get("serverport"),
            delay_us=defaults.get("time", 0),
            heartbeat_us=defaults.get("heartbeat", DEFAULT_HEARTBEAT_US),
            log_level=defaults.get("loglevel", LogLevel.MESSAGE),
        ),
        actions=actions,
        next=following,
        edges=len(edges),
    )


def _stream(vertex: str, options: dict[str, Any]) -> StreamOptions:
    for name in ("peers", "sendsize", "recvsize"):
        if not options.get(name):
            # Without a size, or with 0, TGen follows a Markov model or sends nothing at all.
            raise ValueError(f"vertex {vertex!r}: attribute {name!r} is needed, and not 0")
    return StreamOptions(
        id=vertex,
        peers=options["peers"],
        proxies=options.get("socksproxy", ()),
        username=options.get("socksusername"),
        password=options.get("sockspassword"),
        send_bytes=options["sendsize"],
        recv_bytes=options["recvsize"],
        timeout_us=options.get("timeout", 0),
        stallout_us=options.get("stallout", DEFAULT_STALLOUT_US),
    )


def _kind(vertex: str) -> str:
    for kind in _KINDS:
        if kind in vertex:
            if kind in _SUPPORTED_KINDS:
                return kind
            break
    raise ValueError(
        f"vertex {vertex!r} is not supported; supported are {', '.join(_SUPPORTED_KINDS)}"
    )


def _parsed(vertex: str, kind: str, data: dict[str, str]) -> dict[str, Any]:
    options = {}
    for name, text in data.items():
        parse = _OPTIONS[kind].get(name.lower())
        if parse is None:
            raise ValueError(
                f"vertex {vertex!r}: attribute {name!r} is not supported; supported here are "
                f"{', '.join(_OPTIONS[kind])}"
            )
        try:
            options[name.lower()] = parse(text)
        except ValueError as error:
            raise ValueError(f"vertex {vertex!r}: attribute {name!r}: {error}") from None
    return options


def _check_connected(vertices: Iterable[str], edges: list[tuple[str, str]]) -> None:
    neighbours: dict[str, set[str]] = {vertex: set() for vertex in vertices}
    for source, target in edges:
        neighbours[source].add(target)
        neighbours[target].add(source)
    reached: set[str] = set()
    border = set(list(neighbours)[:1])
    while border:
        reached |= border
        border = {n for vertex in border for n in neighbours[vertex]} - reached
    if apart := set(neighbours) - reached:
        raise ValueError(f"vertex {min(apart)!r} is not connected to the others")


def _check_no_timeless_cycle(
    actions: Mapping[str, StreamOptions | Pause],
    following: Mapping[str, tuple[str, ...]],
    start: str,
) -> None:
    """Refuse a loop on which no time can pass: TGen itself would never come out of it."""

    def timeless(vertex: str) -> bool:
        action = actions.get(vertex)
        return action is None or (isinstance(action, Pause) and 0 in (action.times_us or (0,)))

    # A vertex from which only a path of timeless vertices leads back to it.
    for first in actions:
        reached: set[str] = set()
        border = {first} if timeless(first) else set()
        while border:
            border = {n for vertex in border for n in following[vertex] if timeless(n)} - reached
            reached |= border
        if first in reached:
            raise ValueError(f"vertex {first!r} is on a loop on which no time passes")


def _data(element: ElementTree.Element, names: dict[str, str]) -> dict[str, str]:
    data = {}
    for child in element:
        if _tag(child) != "data":
            if _tag(child) in ("node", "edge", "desc"):
                continue
            raise ValueError(f"<{_tag(child)}> in <{_tag(element)}> is not supported")
        key = child.get("key", "")
        if key not in names:
            raise ValueError(f"<data> of {element.get('id')!r} has an unknown key {key!r}")
        if child.text:
            data[names[key]] = child.text
    return data


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
