"""TGen's GraphML, as far as an import has to know it: vertices with their attributes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass

_GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"
MODEL_PATHS = ("flowmodelpath", "streammodelpath", "packetmodelpath")
"""Attributes that name a file with a Markov model, from the host's folder."""


class GraphError(Exception):
    """What is wrong with a graph, as a sentence."""


@dataclass(frozen=True)
class TgenGraph:
    """An action graph or a Markov model: id of each vertex -> its attributes."""

    vertices: Mapping[str, Mapping[str, str]]

    def values(self, attribute: str) -> list[str]:
        """What the vertices say of one attribute; an empty value is as good as none."""
        found = (vertex.get(attribute, "").strip() for vertex in self.vertices.values())
        return [value for value in found if value]

    @property
    def is_server(self) -> bool:
        """Whether TGen listens."""
        return bool(self.values("serverport"))

    @property
    def has_models(self) -> bool:
        """Whether traffic is drawn from Markov models."""
        return any(self.values(name) for name in MODEL_PATHS[:2])

    @property
    def fetches(self) -> bool:
        """Whether there are streams of a given size."""
        return bool(self.values("recvsize"))

    @property
    def is_model(self) -> bool:
        """Whether it is a Markov model itself: states, and a first one."""
        return any(
            vertex.get("type") == "state" and vertex.get("name") == "start"
            for vertex in self.vertices.values()
        )

    def peers(self) -> set[str]:
        """Hosts that streams go to, without their ports."""
        listed = [peer for value in self.values("peers") for peer in value.split(",")]
        return {peer.strip().rpartition(":")[0] for peer in listed if peer.strip()}


def read_tgen_graph(content: bytes) -> TgenGraph:
    """Read GraphML.

    Raises:
        GraphError: it is none.
    """
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GraphError(f"not GraphML: {error}") from None
    if root.tag != f"{_GRAPHML}graphml":
        raise GraphError("not GraphML")
    names = {
        key.get("id"): key.get("attr.name", "")
        for key in root.iter(f"{_GRAPHML}key")
        if key.get("for") == "node"
    }
    vertices = {
        node.get("id", ""): {
            names.get(data.get("key"), ""): data.text or "" for data in node.iter(f"{_GRAPHML}data")
        }
        for node in root.iter(f"{_GRAPHML}node")
    }
    if not vertices:
        raise GraphError("a graph without vertices")
    return TgenGraph(vertices)
