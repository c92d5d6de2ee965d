"""Play all hosts of a traffic file in one process."""

from __future__ import annotations

import contextlib
import gc
import resource
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

from onionlab.errors import UserError

from .action_graph import ActionGraph, load_graph
from .host import Host
from .loop import LEVEL_IN, Loop
from .markov_model import INTERNAL_PACKET_MODEL, MarkovModel
from .netns import Namespaces
from .traffic_file import TrafficFile

FLUSH_INTERVAL_US = 10_000_000
"""The maximum simulated time until a log line is written to its file."""

SPARE_FILES = 64
STREAMS_PER_HOST = 16


class Driver:
    """The driver process. `run` returns at the end of the simulation."""

    def __init__(self, traffic: TrafficFile) -> None:
        """Read all graphs and open all logs.

        Raises UserError if a graph is not supported, or if two graphs have different packet models
        at the same path.
        """
        self.loop = Loop()
        self._traffic = traffic
        raise_file_limit(SPARE_FILES + len(traffic.hosts) * (3 + STREAMS_PER_HOST))
        graphs = [load_graph(Path(host.graph), Path(host.directory)) for host in traffic.hosts]
        namespaces = Namespaces(host.netns for host in traffic.hosts)
        packet_models = _packet_models(graphs)
        self._hosts = [
            Host(host, graph, traffic, self.loop, namespaces, packet_models)
            for host, graph in zip(traffic.hosts, graphs, strict=True)
        ]

    def stop_at_signals(self) -> None:
        """From now on, let SIGTERM and SIGINT end `run`."""
        # A signal that arrives just before the event loop waits must end this wait.
        self._wakeup = reading, writing = socket.socketpair()
        writing.setblocking(False)
        signal.set_wakeup_fd(writing.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self.loop.watch(reading.fileno(), LEVEL_IN, lambda events: self.loop.stop())

    def run(self) -> None:
        """Play all hosts until the end. Raises UserError if a host or the event loop fails.

        Even after an error, all lines that were logged before the error are in the log files.
        """
        loop, traffic = self.loop, self._traffic
        loop.wait_for_start()
        start_us = loop.monotonic_from_unix(traffic.epoch_unix_s * 1_000_000)
        for host, entry in zip(self._hosts, traffic.hosts, strict=True):
            loop.at(start_us + entry.start_ms * 1000, host.start)
        loop.at(start_us + traffic.stop_ms * 1000, loop.stop)
        loop.at(loop.now_us + FLUSH_INTERVAL_US, self._flush)
        # All objects that exist now live until the end, so exclude them from garbage collection.
        gc.freeze()
        with contextlib.ExitStack() as at_end:
            at_end.callback(loop.close)
            for host in self._hosts:
                at_end.callback(host.close)
            loop.run()

    def _flush(self) -> None:
        for host in self._hosts:
            host.log.flush()
        self.loop.at(self.loop.now_us + FLUSH_INTERVAL_US, self._flush)


def _packet_models(graphs: Iterable[ActionGraph]) -> dict[str, MarkovModel]:
    """Return the models that clients may request from servers, by path.

    TGen's default model is under its name instead of a path.

    Raises UserError if two graphs have different models at the same path.
    """
    models = {INTERNAL_PACKET_MODEL.name: INTERNAL_PACKET_MODEL}
    for graph in graphs:
        for options in graph.streams:
            path, model = options.packet_model_path, options.packet_model
            if path is not None and models.setdefault(path, model) != model:
                raise UserError(
                    f"{graph.path}: {path!r} is a different packet model here than in an earlier "
                    "graph",
                    "Servers identify a model only by this path: use different paths for "
                    "different models.",
                )
    return models


def raise_file_limit(needed: int) -> None:
    """Raise this process's limit of open files to `needed` if it is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), max(hard, needed)))
