"""Generate TGen's action graphs (GraphML) for the servers and clients of an experiment.

Only a part of TGen's language is used: one start vertex, streams or a traffic vertex, pauses, and
the edges between them. For TGen's options see doc/TGen-Options.md in its repository.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import networkx as nx

from onionlab.experiment.tor_options import SOCKS_PORT

SERVER_PORT = 80

# TGen requires a request body. This is the size that tornettools' perf clients send.
REQUEST_PAYLOAD_BYTES = 1000


def server_graph() -> bytes:
    """Return the graph of a server, which answers every request."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    # 0 disables the server's limits, so only the client ends a stream that fails. If the server
    # ended the stream first, the client would log another kind of failure.
    graph.add_node(
        "start",
        serverport=str(SERVER_PORT),
        loglevel="message",
        heartbeat="0 seconds",
        stallout="0 seconds",
        timeout="0 seconds",
    )
    return _graphml(graph)


def client_graph(
    *,
    servers: Sequence[str],
    request_bytes: int,
    pause_choices_ms: Sequence[int],
    timeout_ms: int,
    stallout_ms: int,
    heartbeat_ms: int,
    log_level: str,
    streams: int = 1,
    stagger_ms: int = 0,
    repeat: bool = True,
) -> bytes:
    """Return the graph of a client that alternates fetches and pauses until the simulation ends.

    servers: host names, one of which TGen draws for each stream. pause_choices_ms: the lengths from
    which TGen draws each pause uniformly; empty for no pauses. timeout_ms, stallout_ms: 0 disables
    the limit (TGen's default is a stallout of 30 s). streams: the number of concurrent loops. Each
    loop starts stagger_ms after the previous loop. repeat: if False, each loop ends after one
    stream.
    """
    graph = _started(servers, heartbeat_ms, log_level)
    # The vertices of a single stream have no number, as in the graphs of existing runs. If graphs
    # changed, these runs would not be found, because a run is named after a hash of its files.
    for number in range(1, streams + 1):
        suffix = "" if streams == 1 else str(number)
        stream, pause, wait = f"stream{suffix}", f"pause{suffix}", f"pause-before{suffix}"
        graph.add_node(
            stream,
            sendsize=f"{REQUEST_PAYLOAD_BYTES} bytes",
            recvsize=f"{request_bytes} bytes",
            timeout=_milliseconds(timeout_ms),
            stallout=_milliseconds(stallout_ms),
        )
        if stagger_ms and number > 1:
            graph.add_node(wait, time=_milliseconds((number - 1) * stagger_ms))
            graph.add_edge("start", wait)
            graph.add_edge(wait, stream)
        else:
            graph.add_edge("start", stream)
        if not repeat:
            continue
        if pause_choices_ms:
            graph.add_node(pause, time=",".join(_milliseconds(ms) for ms in pause_choices_ms))
            graph.add_edge(stream, pause)
            graph.add_edge(pause, stream)
        else:
            graph.add_edge(stream, stream)
    return _graphml(graph)


def markov_graph(
    *,
    servers: Sequence[str],
    models: Mapping[str, str],
    model_seed: int,
    login_seed: int,
    timeout_ms: int,
    stallout_ms: int,
    heartbeat_ms: int,
    log_level: str,
) -> bytes:
    """Return the graph of a client that plays Markov models until the simulation ends.

    The graph has the form of tornettools' graphs. servers, timeout_ms, stallout_ms: see
    `client_graph`. models: "flow", "stream" and "packet" -> path relative to the host's folder.
    model_seed: the seed of the random walks through the models. login_seed: the seed of the SOCKS
    logins. Each flow has its own login, and thus its own circuit.
    """
    limits = {"timeout": _milliseconds(timeout_ms), "stallout": _milliseconds(stallout_ms)}
    graph = _started(servers, heartbeat_ms, log_level, **limits)
    graph.add_node(
        "traffic",
        **{f"{kind}modelpath": path for kind, path in models.items()},
        packetmodelmode="path",
        markovmodelseed=str(model_seed),
        socksauthseed=str(login_seed),
    )
    graph.add_edge("start", "traffic")
    # When the flow model ends, start it again.
    graph.add_edge("traffic", "traffic")
    return _graphml(graph)


def _started(
    servers: Sequence[str], heartbeat_ms: int, log_level: str, **limits: str
) -> nx.DiGraph[str]:
    """Return a graph with a client's start vertex, whose attributes apply to all its streams."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node(
        "start",
        peers=",".join(f"{server}:{SERVER_PORT}" for server in servers),
        socksproxy=f"localhost:{SOCKS_PORT}",
        loglevel=log_level,
        heartbeat=_milliseconds(heartbeat_ms),
        **limits,
    )
    return graph


def _milliseconds(duration_ms: int) -> str:
    return f"{duration_ms} milliseconds" if duration_ms % 1000 else f"{duration_ms // 1000} seconds"


def _graphml(graph: nx.DiGraph[str]) -> bytes:
    out = io.BytesIO()
    nx.write_graphml_xml(graph, out, encoding="utf-8", prettyprint=True)
    return out.getvalue()
