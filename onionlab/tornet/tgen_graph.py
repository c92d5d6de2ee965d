"""The part of TGen's GraphML that an import needs: vertices with their attributes.

A graph that TGen 1.x would reject, or a client whose streams cannot be measured, is rejected with a
message before any run (tgen-graph.c of TGen 1.1.2).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass

_GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"
MODEL_PATHS = ("flowmodelpath", "streammodelpath", "packetmodelpath")
"""Attributes whose value is the path of a Markov model, relative to the host's folder."""

MAX_BYTES = 2**24
"""The size limit of a graph or a model. tornettools writes files of 25 KB."""

# TGen searches for these words in a vertex's id, in this order.
_ACTIONS = ("start", "end", "pause", "stream", "flow", "traffic")
_ATTRIBUTES = frozenset(
    (
        *("id", "serverport", "time", "heartbeat", "loglevel", "packetmodelmode", "count"),
        *("markovmodelseed", "peers", "socksproxy", "socksusername", "sockspassword"),
        *("socksauthseed", "sendsize", "recvsize", "timeout", "stallout", *MODEL_PATHS),
    )
)
_QUIET = ("error", "critical", "warning")
"""Log levels without the lines of streams, which TGen writes at `message`."""


class GraphError(Exception):
    """An error in a graph; the message is a sentence."""


@dataclass(frozen=True)
class TgenGraph:
    """An action graph or a Markov model: id of each vertex -> its attributes, in lower case.

    attributes: the vertices' attributes that the file declares, in its spelling.
    """

    vertices: Mapping[str, Mapping[str, str]]
    attributes: tuple[str, ...] = ()

    def values(self, attribute: str) -> list[str]:
        """Return the values of one attribute in all vertices; empty values are ignored."""
        found = (vertex.get(attribute, "").strip() for vertex in self.vertices.values())
        return [value for value in found if value]

    @property
    def is_server(self) -> bool:
        """True if TGen listens."""
        return bool(self.values("serverport"))

    @property
    def has_models(self) -> bool:
        """True if Markov models determine when streams start, including TGen's internal models."""
        return any(self.values(name) for name in MODEL_PATHS[:2]) or any(
            kind in ("flow", "traffic") for kind in map(_action, self.vertices)
        )

    @property
    def is_model(self) -> bool:
        """True if this is a Markov model: it has states, and a first one."""
        return any(
            vertex.get("type") == "state" and vertex.get("name") == "start"
            for vertex in self.vertices.values()
        )

    @property
    def ends(self) -> bool:
        """True if a model has an observation that ends a walk."""
        return any(
            vertex.get("type", "").startswith("observation")
            and vertex.get("name", "").upper().startswith("F")
            for vertex in self.vertices.values()
        )

    @property
    def has_timeouts(self) -> bool:
        """True if each stream, flow or traffic ends its streams after some time."""
        start = next((d for v, d in self.vertices.items() if _action(v) == "start"), {})
        return all(
            _is_positive({**start, **data}.get("timeout", ""))
            for vertex, data in self.vertices.items()
            if _action(vertex) in ("stream", "flow", "traffic")
        )

    def peers(self) -> set[str]:
        """Return the hosts that streams connect to, without ports."""
        listed = [peer for value in self.values("peers") for peer in value.split(",")]
        return {peer.strip().rpartition(":")[0] for peer in listed if peer.strip()}

    def require_actions(self) -> None:
        """Raise GraphError if TGen would reject the graph when it starts."""
        for attribute in self.attributes:
            if attribute.lower() not in _ATTRIBUTES:
                raise GraphError(
                    f"attribute {attribute!r} of vertices is unknown to TGen 1.x; a graph for "
                    "TGen before 1.0 has to be rewritten"
                )
        for vertex in self.vertices:
            if _action(vertex) is None:
                raise GraphError(
                    f"vertex {vertex!r} is not an action of TGen: rename it, so that its id has "
                    f"one of the words {', '.join(_ACTIONS)}"
                )

    def require_measurable(self) -> None:
        """Raise GraphError for a client without Markov flows whose streams cannot be measured.

        A stream needs both sizes. If one is missing, TGen sends until the packet model ends, and a
        packet model alone determines neither the number of streams nor their sizes.
        """
        start = next((d for v, d in self.vertices.items() if _action(v) == "start"), {})
        streams = [vertex for vertex in self.vertices if _action(vertex) == "stream"]
        if not streams:
            raise GraphError("it has no vertex that is a stream, a flow or traffic: add one")
        for vertex in streams:
            options = {**start, **self.vertices[vertex]}
            for size, least in (("sendsize", 0), ("recvsize", 1)):
                text = options.get(size, "").strip()
                if not text or (least and not _is_positive(text)):
                    raise GraphError(
                        f"vertex {vertex!r}: attribute {size!r} is "
                        f"{repr(text) if text else 'missing'}: only downloads of a given size are "
                        "measured, so set it; load comes from flow and stream models"
                    )

    def require_no_end(self) -> None:
        """Raise GraphError if TGen would end by itself."""
        for vertex in self.vertices:
            if _action(vertex) == "end":
                raise GraphError(
                    f"vertex {vertex!r}: TGen ends there, but expected_final_state is `running`: "
                    "remove the vertex, or change that state"
                )

    def require_log(self) -> None:
        """Raise GraphError if TGen would log no stream."""
        for vertex, data in self.vertices.items():
            level = data.get("loglevel", "").strip()
            if level.lower() in _QUIET:
                raise GraphError(
                    f"vertex {vertex!r}: attribute 'loglevel' is {level!r}: TGen then logs no "
                    "streams; set message or info"
                )


def _is_positive(quantity: str) -> bool:
    return bool(quantity.strip()) and re.fullmatch(r"0+( .*)?", quantity.strip()) is None


def _action(vertex: str) -> str | None:
    return next((word for word in _ACTIONS if word in vertex), None)


def read_tgen_graph(content: bytes) -> TgenGraph:
    """Read GraphML.

    Raises:
        GraphError: it is not GraphML.
    """
    if len(content) > MAX_BYTES:
        raise GraphError(f"larger than {MAX_BYTES // 2**20} MiB: it is not a graph of TGen")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GraphError(f"not GraphML: {error}") from None
    if root.tag != f"{_GRAPHML}graphml":
        raise GraphError("not GraphML: specify a graph of TGen")
    names = {
        key.get("id"): key.get("attr.name", "")
        for key in root.iter(f"{_GRAPHML}key")
        if key.get("for") == "node"
    }
    vertices = {
        node.get("id", ""): {
            names.get(data.get("key"), "").lower(): data.text or ""
            for data in node.iter(f"{_GRAPHML}data")
        }
        for node in root.iter(f"{_GRAPHML}node")
    }
    if not vertices:
        raise GraphError("a graph without vertices: specify a graph of TGen")
    return TgenGraph(vertices, tuple(names.values()))
