"""The part of TGen's GraphML that an import needs: vertices with their attributes.

A graph that TGen 1.x would reject, or a client whose streams cannot be measured, is rejected with a
message before any run. The rules are those of tgen-graph.c of TGen 1.1.2.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass

from onionlab.tornet.host_files import FileError

_GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"
MODEL_PATHS = ("flowmodelpath", "streammodelpath", "packetmodelpath")
"""Attributes whose value is the path of a Markov model, relative to the host's folder."""

MAX_BYTES = 2**24
"""The maximum size of a graph or a model. tornettools writes files of 25 KB."""

# As in TGen, a vertex's action is the first of these words that the vertex's id contains.
_ACTIONS = ("start", "end", "pause", "stream", "flow", "traffic")
_ATTRIBUTES = frozenset(
    (
        *("id", "serverport", "time", "heartbeat", "loglevel", "packetmodelmode", "count"),
        *("markovmodelseed", "peers", "socksproxy", "socksusername", "sockspassword"),
        *("socksauthseed", "sendsize", "recvsize", "timeout", "stallout", *MODEL_PATHS),
    )
)
_QUIET = ("error", "critical", "warning")
"""Log levels at which TGen does not log streams, because it logs a stream at level `message`."""


@dataclass(frozen=True)
class TgenGraph:
    """An action graph or a Markov model.

    vertices: id of a vertex -> name of an attribute, in lower case -> its value. attributes: the
    names of the attributes that the file declares, in the file's spelling.
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
        """True if Markov models, possibly TGen's internal ones, determine when streams start."""
        return any(self.values(name) for name in MODEL_PATHS[:2]) or any(
            kind in ("flow", "traffic") for kind in map(_action, self.vertices)
        )

    @property
    def is_model(self) -> bool:
        """True if this is a Markov model. A Markov model has a state with the name `start`."""
        return any(
            vertex.get("type") == "state" and vertex.get("name") == "start"
            for vertex in self.vertices.values()
        )

    @property
    def ends(self) -> bool:
        """True if a model has an observation whose name begins with F, which ends a walk."""
        return any(
            vertex.get("type", "").startswith("observation")
            and vertex.get("name", "").upper().startswith("F")
            for vertex in self.vertices.values()
        )

    @property
    def has_timeouts(self) -> bool:
        """True if each vertex of the kind stream, flow or traffic has a timeout for its streams."""
        streams = self._streams("stream", "flow", "traffic").values()
        return all(_is_positive(options.get("timeout", "")) for options in streams)

    def peers(self) -> set[str]:
        """Return the hosts to which streams connect, without ports."""
        listed = [peer for value in self.values("peers") for peer in value.split(",")]
        return {peer.strip().rpartition(":")[0] for peer in listed if peer.strip()}

    def check(self, *, runs_to_end: bool) -> None:
        """Raise FileError if TGen would reject the graph, or its streams could not be measured.

        runs_to_end: whether TGen has to run until the simulation ends.
        """
        for attribute in self.attributes:
            if attribute.lower() not in _ATTRIBUTES:
                raise FileError(
                    f"attribute {attribute!r} of vertices is unknown to TGen 1.x; a graph for "
                    "TGen before 1.0 has to be rewritten"
                )
        for vertex, data in self.vertices.items():
            action, level = _action(vertex), data.get("loglevel", "").strip()
            if action is None:
                raise FileError(
                    f"vertex {vertex!r} is not an action of TGen: rename it, so that its id has "
                    f"one of the words {', '.join(_ACTIONS)}"
                )
            if action == "end" and runs_to_end:
                raise FileError(
                    f"vertex {vertex!r}: TGen ends there, but expected_final_state is `running`: "
                    "remove the vertex, or change that state"
                )
            if level.lower() in _QUIET and not self.is_server:
                raise FileError(
                    f"vertex {vertex!r}: attribute 'loglevel' is {level!r}: TGen then logs no "
                    "streams; set message or info"
                )
        if not self.is_server and not self.has_models:
            self._check_streams()

    def _check_streams(self) -> None:
        """Raise FileError for a client without Markov flows whose streams cannot be measured.

        A stream needs both sizes. If a size is missing, TGen sends until the packet model ends, so
        the stream is not a download of a known size.
        """
        streams = self._streams("stream")
        if not streams:
            raise FileError("it has no vertex that is a stream, a flow or traffic: add one")
        for vertex, options in streams.items():
            for size in ("sendsize", "recvsize"):
                text = options.get(size, "").strip()
                if not text or (size == "recvsize" and not _is_positive(text)):
                    raise FileError(
                        f"vertex {vertex!r}: attribute {size!r} is "
                        f"{repr(text) if text else 'missing'}: only downloads of a given size are "
                        "measured, so set it; load comes from flow and stream models"
                    )

    def _streams(self, *actions: str) -> dict[str, dict[str, str]]:
        """Return the vertices with these actions. They inherit attributes of the vertex `start`."""
        start = next((data for v, data in self.vertices.items() if _action(v) == "start"), {})
        return {v: {**start, **data} for v, data in self.vertices.items() if _action(v) in actions}


def _is_positive(quantity: str) -> bool:
    return bool(quantity.strip()) and re.fullmatch(r"0+( .*)?", quantity.strip()) is None


def _action(vertex: str) -> str | None:
    return next((word for word in _ACTIONS if word in vertex), None)


def read_tgen_graph(content: bytes) -> TgenGraph:
    """Read GraphML.

    Raises:
        FileError: the content is not GraphML, is too large, or has no vertices.
    """
    if len(content) > MAX_BYTES:
        raise FileError(f"larger than {MAX_BYTES // 2**20} MiB: it is not a graph of TGen")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise FileError(f"not GraphML: {error}") from None
    if root.tag != f"{_GRAPHML}graphml":
        raise FileError("not GraphML: specify a graph of TGen")
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
        raise FileError("a graph without vertices: specify a graph of TGen")
    return TgenGraph(vertices, tuple(names.values()))
