"""Read and write the GraphML that TGen and igraph use: attributes, vertices and edges."""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from xml.sax.saxutils import escape

NUMERIC_TYPES = ("double", "float", "int", "integer", "long")
"""GraphML's attribute types that igraph treats as numbers."""

Vertex = TypeVar("Vertex")


class Key(NamedTuple):
    """A declared attribute: its owner ("node", "edge" or other), its name and its GraphML type."""

    owner: str
    name: str
    type: str


class Edge(NamedTuple):
    """An edge between two vertices of the file. data: name of an attribute -> its text."""

    source: str
    target: str
    data: Mapping[str, str]

    def __str__(self) -> str:
        return f"edge {self.source} -> {self.target}"


@dataclass(frozen=True)
class Graphml:
    """A directed graph. Everything is in the file's order.

    keys: the declared attributes. vertices: the attributes of each vertex by the vertex's id, as a
    mapping from the attribute's name to its text. Attributes without text are omitted.
    """

    keys: tuple[Key, ...]
    vertices: Mapping[str, Mapping[str, str]]
    edges: tuple[Edge, ...]

    @functools.cached_property
    def out_edges(self) -> Mapping[str, Sequence[Edge]]:
        """The edges from each vertex in igraph's order: sorted by their targets' order in the file.

        If several edges connect the same two vertices, the last one in the file comes first.
        """
        place = {name: index for index, name in enumerate(self.vertices)}
        leaving: dict[str, list[Edge]] = {vertex: [] for vertex in self.vertices}
        for edge in reversed(self.edges):
            leaving[edge.source].append(edge)
        for edges in leaving.values():
            edges.sort(key=lambda edge: place[edge.target])
        return leaving


def reachable(start: Vertex, following: Callable[[Vertex], Iterable[Vertex]]) -> set[Vertex]:
    """Return a vertex and all vertices that can be reached from it.

    following: a function that returns the vertices to which the edges from a vertex lead.
    """
    reached: set[Vertex] = set()
    border = {start}
    while border:
        reached |= border
        border = {other for vertex in border for other in following(vertex)} - reached
    return reached


@functools.lru_cache(maxsize=64)
def parse_graphml(data: bytes) -> Graphml:
    """Parse a file's bytes. Raises ValueError if they are not GraphML or are not supported."""
    try:
        root = ElementTree.fromstring(data)
    # The parser raises LookupError or ValueError for an unknown or unsupported encoding.
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise ValueError(f"not GraphML: {error}") from error
    if _tag(root) != "graphml":
        raise ValueError(f"not GraphML: its root element is <{_tag(root)}>")
    # If an attribute of nodes and an attribute of edges have the same name, igraph gives them the
    # same id. A key is therefore identified by its owner and its id.
    keys: dict[tuple[str, str], Key] = {}
    graphs = []
    for child in root:
        if _tag(child) == "key":
            if any(_tag(part) == "default" for part in child):
                raise ValueError(f"a default value for {child.get('attr.name')!r} is not supported")
            key = Key(child.get("for", ""), child.get("attr.name", ""), child.get("attr.type", ""))
            keys[key.owner, child.get("id", "")] = key
        elif _tag(child) == "graph":
            graphs.append(child)
    if len(graphs) != 1:
        raise ValueError(f"needs one <graph>, has {len(graphs)}")
    if graphs[0].get("edgedefault") != "directed":
        raise ValueError("the graph must have directed edges (edgedefault='directed')")
    return _graph(graphs[0], keys)


def igraph_text(graph: Graphml) -> bytes:
    """Return the graph in igraph's format, in which a TGen client sends a model to a server.

    A number has 15 significant digits, as in igraph 0.10, so the values that the server reads may
    differ in the last bits from values in the client's file. Attributes must be strings or numbers.
    """
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"',
        '         xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"',
        '         xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns',
        '         http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">',
        "<!-- Created by igraph -->",
    ]
    # igraph stores the vertices' ids as a node attribute with the name "id". TGen removes this
    # attribute before it sends the model.
    keys = {
        owner: [key for key in graph.keys if key.owner == owner and key[:2] != ("node", "id")]
        for owner in ("node", "edge")
    }
    for owner, owner_keys in keys.items():
        for key in owner_keys:
            kind = "double" if key.type in NUMERIC_TYPES else key.type
            lines.append(
                f'  <key id="{_quoted(key)}" for="{owner}" attr.name="{_quoted(key)}"'
                f' attr.type="{kind}"/>'
            )
    lines.append('  <graph id="G" edgedefault="directed">')
    number = {vertex: f"n{index}" for index, vertex in enumerate(graph.vertices)}
    for vertex, data in graph.vertices.items():
        lines.append(f'    <node id="{number[vertex]}">')
        lines += _igraph_data(keys["node"], data)
        lines.append("    </node>")
    for edge in graph.edges:
        ends = f'source="{number[edge.source]}" target="{number[edge.target]}"'
        lines.append(f"    <edge {ends}>")
        lines += _igraph_data(keys["edge"], edge.data)
        lines.append("    </edge>")
    lines += ["  </graph>", "</graphml>", ""]
    return "\n".join(lines).encode()


def _igraph_data(keys: list[Key], data: Mapping[str, str]) -> Iterator[str]:
    for key in keys:
        text = data.get(key.name, "")
        if key.type in NUMERIC_TYPES:
            if not text:
                continue
            text = f"{float(text):.15g}"
        yield f'      <data key="{_quoted(key)}">{escape(text)}</data>'


def _quoted(key: Key) -> str:
    return escape(key.name, {'"': "&quot;"})


def _graph(graph: ElementTree.Element, keys: dict[tuple[str, str], Key]) -> Graphml:
    vertices: dict[str, dict[str, str]] = {}
    edges: list[Edge] = []
    for element in graph:
        data = _data(element, keys)
        if _tag(element) == "node":
            vertex = element.get("id")
            if not vertex or vertex in vertices:
                raise ValueError(f"vertex id {vertex!r} is missing or used twice")
            vertices[vertex] = data
        elif _tag(element) == "edge":
            edge = Edge(element.get("source", ""), element.get("target", ""), data)
            if edge.source not in vertices or edge.target not in vertices:
                # igraph would number a new vertex when it reads this edge. The numbers of vertices
                # determine igraph's order of the edges. This module does not reproduce the order
                # in this case.
                raise ValueError(
                    f"{edge}: the edge precedes one of its vertices or the vertex is missing"
                )
            edges.append(edge)
        elif data or _tag(element) not in ("data", "desc"):
            raise ValueError(f"<{_tag(element)}> is not supported")
    return Graphml(tuple(keys.values()), vertices, tuple(edges))


def _data(element: ElementTree.Element, keys: dict[tuple[str, str], Key]) -> dict[str, str]:
    data = {}
    for child in element:
        if _tag(child) == "data":
            key = keys.get((_tag(element), child.get("key", "")))
            if key is None:
                raise ValueError(
                    f"<data> of {element.get('id')!r} has an unknown key {child.get('key', '')!r}"
                )
            if child.text:
                data[key.name] = child.text
        elif _tag(child) not in ("node", "edge", "desc"):
            raise ValueError(f"<{_tag(child)}> in <{_tag(element)}> is not supported")
    return data


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
