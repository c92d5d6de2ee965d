"""Read Shadow's graph of paths (GML) and cut it to the nodes that hosts attach to.

tornettools' atlas of the Internet contains thousands of nodes and an edge for each pair. Its
configuration sets ``use_shortest_path: false``, so Shadow uses only the edge between two nodes and
the removed parts have no effect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from onionlab.errors import UserError
from onionlab.tornet.shadow_units import rate_bit_per_s, time_ns
from onionlab.yamlfile.units import show

T = TypeVar("T")

MAX_LINE_BYTES = 2**16
MAX_LINES = 2**26
"""Eight lines for each edge of a complete graph of 4,000 nodes. The largest id in tmodel's atlas is
about 2,500.
"""
MAX_MISSING_SHOWN = 3
HINT = (
    "Correct the line: use GML with one attribute per line, as Shadow reads it. Or copy "
    "the atlas again from where the network was generated."
)


@dataclass(frozen=True)
class PathNode:
    """A point of the network that hosts attach to, with bandwidths for hosts without their own."""

    label: str | None
    country_code: str | None
    up_bit_per_s: int | None
    down_bit_per_s: int | None


@dataclass(frozen=True)
class Path:
    """A path between two nodes: one-way latency, jitter and share of lost packets."""

    latency_ns: int
    jitter_ns: int
    packet_loss: float


@dataclass(frozen=True)
class PathGraph:
    """Nodes by id and paths by their two ends. Undirected ones are listed once, the lower id first.

    nodes_read, edges_read: the numbers in the file, whether or not they were kept.
    """

    directed: bool
    nodes: dict[int, PathNode]
    paths: dict[tuple[int, int], Path]
    nodes_read: int
    edges_read: int

    def missing_paths(self) -> list[tuple[int, int]]:
        """Return pairs of nodes without a path, including a node and itself: Shadow needs all."""
        ids = sorted(self.nodes)
        return [
            (a, b)
            for a in ids
            for b in ids
            if (self.directed or a <= b) and (a, b) not in self.paths
        ]


@dataclass(slots=True)
class _Record:
    """A node, an edge or the graph while it is read, with unparsed values."""

    kind: str
    file: str
    line: int
    values: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The position of its first line, for messages."""
        return f"{self.file}:{self.line}: {self.kind}"

    def text(self, name: str) -> str | None:
        """Return a value without its quotes, or None if it is missing. Raises UserError."""
        value = self.values.get(name.encode())
        try:
            return None if value is None else value.decode().strip('"')
        except UnicodeDecodeError:
            raise UserError(f"{self.place}: {name}: not text in UTF-8", HINT) from None


def read_path_graph(lines: Iterable[bytes], file: str, keep: Collection[int]) -> PathGraph:
    """Read GML and return the nodes `keep` with the paths between them.

    lines: the lines of the file, which need not fit into memory; file: its name in messages.

    Raises:
        UserError: the file is not GML as Shadow reads it, or a node of `keep` or a path between two
            of them is missing or duplicated.
    """
    nodes: dict[int, PathNode] = {}
    paths: dict[tuple[int, int], Path] = {}
    directed = False
    read = {"node": 0, "edge": 0}
    for record in _records(lines, file):
        if record.kind == "graph":
            directed = record.text("directed") == "1"
            continue
        read[record.kind] += 1
        if record.kind == "node":
            number = _value(record, "id", _whole)
            if number in nodes:
                raise UserError(f"{record.place}: duplicate id {number}", HINT)
            if number in keep:
                nodes[number] = _node(record)
            continue
        ends = (_value(record, "source", _whole), _value(record, "target", _whole))
        if ends[0] not in keep or ends[1] not in keep:
            continue
        pair = ends if directed or ends[0] <= ends[1] else (ends[1], ends[0])
        if pair in paths:
            message = f"duplicate edge between {pair[0]} and {pair[1]}"
            raise UserError(f"{record.place}: {message}", HINT)
        paths[pair] = _path(record)
    graph = PathGraph(directed, nodes, paths, read["node"], read["edge"])
    absent = sorted(set(keep) - set(nodes))
    if absent:
        shown = ", ".join(map(str, absent[:MAX_MISSING_SHOWN]))
        raise UserError(
            f"{file}: {len(absent)} nodes that hosts attach to are missing, such as {shown}",
            "Use the atlas that the network was generated with; this is a different one.",
        )
    missing = graph.missing_paths()
    if missing:
        shown = ", ".join(f"{a} to {b}" for a, b in missing[:MAX_MISSING_SHOWN])
        raise UserError(
            f"{file}: {len(missing)} pairs of nodes in use have no edge, such as {shown}",
            "Add these edges, or use the atlas that the network was generated with: it needs an "
            "edge between every two nodes and from each node to itself.",
        )
    return graph


def graph_bytes(graph: PathGraph) -> bytes:
    """Return the graph in its canonical form: sorted, with one attribute per line."""
    lines = ["graph [", f"  directed {int(graph.directed)}"]
    for number, node in sorted(graph.nodes.items()):
        lines += ["  node [", f"    id {number}"]
        for name, value in (("label", node.label), ("country_code", node.country_code)):
            if value is not None:
                lines.append(f'    {name} "{value}"')
        for name, rate in (("up", node.up_bit_per_s), ("down", node.down_bit_per_s)):
            if rate is not None:
                lines.append(f'    host_bandwidth_{name} "{rate} bit"')
        lines.append("  ]")
    for (source, target), path in sorted(graph.paths.items()):
        lines += [
            "  edge [",
            f"    source {source}",
            f"    target {target}",
            f'    latency "{_time(path.latency_ns)}"',
            *([f'    jitter "{_time(path.jitter_ns)}"'] if path.jitter_ns else []),
            f"    packet_loss {path.packet_loss!r}",
            "  ]",
        ]
    return ("\n".join([*lines, "]"]) + "\n").encode()


def _time(amount_ns: int) -> str:
    return f"{amount_ns} ns" if amount_ns % 1000 else f"{amount_ns // 1000} us"


_LINE = re.compile(rb"""([A-Za-z]\w*)(?:\s*(\[)|\s+("[^"]*"|[-+]?[0-9][0-9.eE+-]*))|\]""")
"""An opening bracket with its name, an attribute with its value, or a closing bracket."""


def _records(lines: Iterable[bytes], file: str) -> Iterator[_Record]:
    """Yield each node and edge once it is complete, and the graph before the first of them.

    Raises:
        UserError: the file is not GML as Shadow reads it; the message includes the line.
    """
    graph: _Record | None = None
    inner: _Record | None = None
    graph_yielded = closed = False
    number = 0
    line = b""
    match = _LINE.fullmatch
    for number, raw in enumerate(lines, start=1):
        if len(raw) > MAX_LINE_BYTES:
            raise UserError(
                f"{file}:{number}: the line is longer than {MAX_LINE_BYTES} bytes", HINT
            )
        if number > MAX_LINES:
            raise UserError(f"{file}: more than {MAX_LINES} lines: it is not an atlas", HINT)
        line = raw.strip()
        found = match(line)
        if found is None:
            if not line or line.startswith(b"#"):
                continue
            break
        name, opening, value = found.groups()
        if value is not None:
            record = inner or graph
            if record is None:
                continue  # The file's creator.
            if name in record.values or (graph_yielded and inner is None):
                break  # The graph's attribute `directed` has to precede its nodes.
            record.values[name] = value
        elif opening is None:  # A closing bracket.
            if inner is not None:
                yield inner
                inner = None
            elif graph is None or closed:
                break
            else:
                closed = True
        elif graph is None and name == b"graph":
            graph = _Record("graph", file, number)
        elif graph is None or closed or inner is not None or name not in (b"node", b"edge"):
            break
        else:
            if not graph_yielded:
                yield graph
                graph_yielded = True
            inner = _Record(name.decode(), file, number)
    else:
        if not closed:
            raise UserError(f"{file}: ends after line {number}, inside the graph", HINT)
        return
    try:
        shown = show(line.decode())
    except UnicodeDecodeError:
        raise UserError(f"{file}:{number}: not text in UTF-8", HINT) from None
    raise UserError(f"{file}:{number}: unsupported GML: {shown}", HINT)


def _node(record: _Record) -> PathNode:
    def rate(name: str) -> int | None:
        return _value(record, name, rate_bit_per_s) if record.text(name) is not None else None

    return PathNode(
        label=record.text("label"),
        country_code=record.text("country_code"),
        up_bit_per_s=rate("host_bandwidth_up"),
        down_bit_per_s=rate("host_bandwidth_down"),
    )


def _path(record: _Record) -> Path:
    latency_ns = _value(record, "latency", _unit_time)
    if latency_ns == 0:
        raise UserError(f"{record.place}: latency: expected more than 0", HINT)
    return Path(
        latency_ns=latency_ns,
        jitter_ns=_value(record, "jitter", _unit_time) if record.text("jitter") else 0,
        packet_loss=_value(record, "packet_loss", _loss, "0.0"),
    )


def _value(record: _Record, name: str, parse: Callable[[str], T], default: str | None = None) -> T:
    text = record.text(name) or default
    if text is None:
        raise UserError(f"{record.place}: {name} is missing", HINT)
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(f"{record.place}: {name}: {error}", HINT) from None


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError(f"expected a whole number, got {show(text)}")
    return int(text)


def _unit_time(text: str) -> int:
    if not re.search(r"[^\W\d_]", text):
        raise ValueError(f'expected a time with its unit such as "10 ms", got {show(text)}')
    return time_ns(text)


def _loss(text: str) -> float:
    try:
        loss = float(text)
    except ValueError:
        loss = math.nan
    if not 0 <= loss <= 1:
        raise ValueError(f"expected a share from 0 to 1, got {show(text)}")
    return abs(loss)  # Normalise -0.0.
