"""What Markov clients ask for: of a class of an experiment, and of an imported network."""

from __future__ import annotations

import functools
import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES
from onionlab.engines.markov_load import MEASURED, MarkovLoad, markov_load
from onionlab.experiment.schema import Settings, TrafficClass
from onionlab.experiment.schema.traffic_settings import MODEL_KEYS
from onionlab.paths import shipped
from onionlab.rundir.markov import endless_streams, model_path
from onionlab.tornet import KeptTornet, load_tornet, seeds_of
from onionlab.tornet.model import RELAY_ROLES
from onionlab.tornet.tgen_graph import MODEL_PATHS, read_tgen_graph

CARRYING_ROLES = tuple(role for role in RELAY_ROLES if role != "authority")


def load_of_class(root: Path, entry: TrafficClass) -> MarkovLoad:
    """What a client of a class of kind `markov` asks for; MEASURED where a model cannot be read."""
    models = {}
    for key in MODEL_KEYS:
        path = entry.models.get(key)
        try:
            models[key] = None if path is None else shipped(root, path).read_bytes()
        except (OSError, ValueError):
            return MEASURED
    return _load_of(*(models[key] for key in MODEL_KEYS))


def endless_streams_of(root: Path, settings: Settings) -> int:
    """Return the expected number of endless streams; 0 if a model cannot be read."""
    try:
        models = {
            model_path(name, key.removesuffix("_model")): shipped(root, path).read_bytes()
            for name, entry in settings.traffic.items()
            for key, path in entry.models.items()
        }
        return endless_streams(settings, models)
    except (OSError, ValueError):
        return 0


def _load_of(flow: bytes | None, stream: bytes | None, packet: bytes | None) -> MarkovLoad:
    try:
        return markov_load(flow, stream, packet)
    except ValueError:
        return MEASURED


@dataclass(frozen=True)
class TornetLoad:
    """What all Markov clients of an imported network ask for together, and what its relays carry.

    relays_bytes_per_s: the lower of link and BandwidthRate, summed over the relays.
    """

    bytes_per_s: float
    streams_per_s: float
    relays_bytes_per_s: float


def tornet_load(root: Path, name: str) -> TornetLoad:
    """The load of the first network of a set. Raises UserError where there is none."""
    (first, *_) = seeds_of(root, name) or [1]
    kept = load_tornet(root, name, first)
    return _tornet_load(kept.directory, kept.tornet.content_sha256)


@functools.lru_cache(maxsize=16)
def _tornet_load(directory: Path, content_sha256: str) -> TornetLoad:
    kept = load_tornet(directory.parents[2], directory.parent.name, int(directory.name))
    loads = [
        _load_of_vertex(kept, name, vertex)
        for name, host in kept.tornet.by_role("markov-client").items()
        for process in host.processes
        if process.program == "tgen"
        for vertex in read_tgen_graph(
            kept.content(_place(name, process.arguments[-1]))
        ).vertices.values()
        if any(vertex.get(model) for model in MODEL_PATHS)
    ]
    relays = kept.tornet.by_role(*CARRYING_ROLES).values()
    return TornetLoad(
        bytes_per_s=sum(load.bytes_per_s for load in loads),
        streams_per_s=sum(load.streams_per_s for load in loads),
        relays_bytes_per_s=sum(
            min(host.up_bit_per_s / 8, host.rate_bytes_per_s or math.inf) for host in relays
        ),
    )


def _load_of_vertex(kept: KeptTornet, host: str, vertex: Mapping[str, str]) -> MarkovLoad:
    places = [_place(host, path) if (path := vertex.get(name, "")) else "" for name in MODEL_PATHS]
    return _load_of(*(kept.content(one) if one in kept.tornet.files else None for one in places))


def _place(host: str, path: str) -> str:
    """Where a file is that a program of a host names."""
    return posixpath.normpath(f"{HOST_TEMPLATES}/{host}/{path.strip()}")
