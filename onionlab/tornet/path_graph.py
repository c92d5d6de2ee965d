"""Read Shadow's graph of paths (GML) and reduce it to the nodes to which hosts are attached.

This graph is tornettools' atlas of the Internet. It has thousands of nodes, and an edge for each
pair of nodes. The removed parts have no effect: tornettools sets ``use_shortest_path: false``, so
Shadow uses only the edge between two nodes as their path. GML is parsed here because networkx would
need gigabytes of memory for the atlas. networkx can read the reduced graph.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from onionlab.errors import UserError
from onionlab.tornet.shadow_units import rate_bit_per_s, time_ns
from onionlab.yamlfile.units import show

T = TypeVar("T")

MAX_LINE_BYTES = 2**16
MAX_MISSING_SHOWN = 3
HINT = (
    "Correct the line: use GML with one attribute per line, as Shadow reads it. Or copy "
    "the atlas again from where the network was generated."
)


@dataclass(frozen=True)
class PathNode:
    """A node of the network graph, to which hosts are attached.

    up_bit_per_s, down_bit_per_s: the bandwidths of hosts whose entries specify none.
    """

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
    """Nodes by id, and paths by the ids of their two ends, the lower id first.

    nodes_read, edges_read: the numbers of nodes and edges in the file, including those left out.
    """

    nodes: dict[int, PathNode]
    paths: dict[tuple[int, int], Path]
    nodes_read: int
    edges_read: int


@dataclass(slots=True)
class _Record:
    """A node, an edge or the graph, with unparsed values. place: file and line, for messages."""

    kind: str
    place: str
    values: dict[bytes, bytes] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """Return a value without quotes; None if it is missing. Raises UserError if not UTF-8."""
        value = self.values.get(name.encode())
        try:
            return None if value is None else value.decode().strip('"')
        except UnicodeDecodeError:
            raise UserError(f"{self.place}: {name}: not text in UTF-8", HINT) from None

    def get(self, name: str, parse: Callable[[str], T], default: T | None = None) -> T:
        """Return the parsed value, or `default` if the value is missing.

        Raises UserError if the value is invalid, or if it is missing and `default` is None.
        """
        text = self.text(name)
        if text is not None:
            try:
                return parse(text)
            except ValueError as error:
                raise UserError(f"{self.place}: {name}: {error}", HINT) from None
        if default is None:
            raise UserError(f"{self.place}: {name} is missing", HINT)
        return default


def read_path_graph(pieces: Iterable[bytes], file: str, keep: Collection[int]) -> PathGraph:
    """Read GML and return the nodes `keep` with the paths between them.

    pieces: the content of the file, which need not fit into memory; file: its name in messages.

    Raises:
        UserError: the file is not GML that Shadow accepts, or a node of `keep` or a path between
            two such nodes is missing or duplicated.
    """
    nodes: dict[int, PathNode] = {}
    paths: dict[tuple[int, int], Path] = {}
    read = {"graph": 0, "node": 0, "edge": 0}
    for record in _records(_lines(pieces), file):
        read[record.kind] += 1
        if record.kind == "graph":
            if record.text("directed") == "1":
                raise UserError(
                    f"{record.place} is directed: paths that differ by direction are not supported",
                    "Generate the network with an undirected atlas, such as that of tornettools.",
                )
        elif record.kind == "node":
            number = record.get("id", _whole)
            if number in nodes:
                raise UserError(f"{record.place}: duplicate id {number}", HINT)
            if number in keep:
                nodes[number] = PathNode(
                    label=record.text("label"),
                    country_code=record.text("country_code"),
                    up_bit_per_s=record.get("host_bandwidth_up", rate_bit_per_s, 0) or None,
                    down_bit_per_s=record.get("host_bandwidth_down", rate_bit_per_s, 0) or None,
                )
        else:
            source, target = record.get("source", _whole), record.get("target", _whole)
            if source not in keep or target not in keep:
                continue
            pair = (min(source, target), max(source, target))
            if pair in paths:
                message = f"duplicate edge between {pair[0]} and {pair[1]}"
                raise UserError(f"{record.place}: {message}", HINT)
            paths[pair] = Path(
                latency_ns=record.get("latency", _latency_ns),
                jitter_ns=record.get("jitter", _unit_time_ns, 0),
                packet_loss=record.get("packet_loss", _loss, 0.0),
            )
    _require_complete(file, keep, nodes, paths)
    return PathGraph(nodes, paths, read["node"], read["edge"])


def _require_complete(
    file: str, keep: Collection[int], nodes: Collection[int], paths: Collection[tuple[int, int]]
) -> None:
    """Raise UserError if the file lacks a node of ``keep``, or the edge of a pair of nodes.

    A node also forms a pair with itself.
    """
    absent = sorted(set(keep) - set(nodes))
    if absent:
        shown = ", ".join(map(str, absent[:MAX_MISSING_SHOWN]))
        raise UserError(
            f"{file}: {len(absent)} nodes that hosts attach to are missing, such as {shown}",
            "Use the atlas that the network was generated with; this is a different one.",
        )
    pairs = itertools.combinations_with_replacement(sorted(nodes), 2)
    missing = [pair for pair in pairs if pair not in paths]
    if missing:
        shown = ", ".join(f"{a} to {b}" for a, b in missing[:MAX_MISSING_SHOWN])
        raise UserError(
            f"{file}: {len(missing)} pairs of nodes in use have no edge, such as {shown}",
            "Add these edges, or use the atlas that the network was generated with: it needs an "
            "edge between every two nodes and from each node to itself.",
        )


def graph_bytes(graph: PathGraph) -> bytes:
    """Return the graph as GML in a canonical form: sorted, with one attribute per line."""
    lines = ["graph [", "  directed 0"]
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
            f'    latency "{_format_time(path.latency_ns)}"',
            *([f'    jitter "{_format_time(path.jitter_ns)}"'] if path.jitter_ns else []),
            f"    packet_loss {path.packet_loss!r}",
            "  ]",
        ]
    return ("\n".join([*lines, "]"]) + "\n").encode()


def _format_time(amount_ns: int) -> str:
    return f"{amount_ns} ns" if amount_ns % 1000 else f"{amount_ns // 1000} us"


_LINE = re.compile(rb"""([A-Za-z]\w*)(?:\s*(\[)|\s+("[^"]*"|[-+]?[0-9][0-9.eE+-]*))|\]""")
"""A line of GML: an opening bracket with its name, an attribute with its value, or a closing
bracket."""
# Kind of a record (None for the file itself) -> the kinds of records that it may contain.
_PARTS = {None: (b"graph",), "graph": (b"node", b"edge"), "node": (), "edge": ()}


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines. Of a line that is too long for `_records`, yield only the beginning."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > MAX_LINE_BYTES:
            break
    if rest:
        yield rest


def _records(lines: Iterable[bytes], file: str) -> Iterator[_Record]:
    """Yield the records of a file: the graph, and each of its nodes and edges.

    The graph is yielded before its first node or edge. A node or an edge is yielded at its end.

    Raises:
        UserError: the file is not GML that Shadow accepts; the message includes the line.
    """
    open_records: list[_Record] = []
    has_graph = graph_yielded = False
    number = 0
    for number, raw in enumerate(lines, start=1):
        if len(raw) > MAX_LINE_BYTES:
            raise UserError(
                f"{file}:{number}: the line is longer than {MAX_LINE_BYTES} bytes", HINT
            )
        line = raw.strip()
        if not line or line.startswith(b"#"):
            continue
        found = _LINE.fullmatch(line)
        name, opening, value = found.groups() if found is not None else (b"", None, None)
        record = open_records[-1] if open_records else None
        if value is not None:
            if record is None:
                continue  # The attribute is outside of the graph, such as the file's creator.
            # Attributes of the graph have to precede its nodes, because of `directed`.
            if name not in record.values and not (record.kind == "graph" and graph_yielded):
                record.values[name] = value
                continue
        elif opening is not None:
            is_second = record is None and has_graph
            if name in _PARTS[record.kind if record is not None else None] and not is_second:
                if record is not None and not graph_yielded:
                    yield record
                    graph_yielded = True
                has_graph = True
                open_records.append(_Record(name.decode(), f"{file}:{number}: {name.decode()}"))
                continue
        elif found is not None and record is not None:
            open_records.pop()
            if record.kind != "graph":
                yield record
            continue
        try:
            shown = show(line.decode())
        except UnicodeDecodeError:
            raise UserError(f"{file}:{number}: not text in UTF-8", HINT) from None
        raise UserError(f"{file}:{number}: unsupported GML: {shown}", HINT)
    if open_records or not has_graph:
        raise UserError(f"{file}: ends after line {number}, inside the graph", HINT)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError(f"expected a whole number, got {show(text)}")
    return int(text)


def _unit_time_ns(text: str) -> int:
    if not re.search(r"[^\W\d_]", text):
        raise ValueError(f'expected a time with its unit such as "10 ms", got {show(text)}')
    return time_ns(text)


def _latency_ns(text: str) -> int:
    latency_ns = _unit_time_ns(text)
    if latency_ns == 0:
        raise ValueError("expected more than 0")
    return latency_ns


def _loss(text: str) -> float:
    try:
        loss = float(text)
    except ValueError:
        loss = -1.0
    if not 0 <= loss <= 1:
        raise ValueError(f"expected a share from 0 to 1, got {show(text)}")
    return abs(loss)  # Normalise -0.0.
