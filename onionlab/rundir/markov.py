"""Generate the files of clients that play Markov models: the models and each client's graph.

The models of a class are in conf/ and are hashed with the rest of the run. A client's graph is in
its own folder, because each client has its own seeds. They are drawn from the run's seed and the
host's name, so a host that is part of two networks plays the same in both, on any engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES
from onionlab.engines.markov_models import mean_streams_per_s, never_ends, read_markov_model
from onionlab.errors import UserError
from onionlab.experiment.schema import Settings, TrafficClass
from onionlab.experiment.schema.traffic_settings import MODEL_KEYS
from onionlab.network import Network
from onionlab.network.draws import draw_integer
from onionlab.rundir import tgen
from onionlab.yamlfile.units import milliseconds

GRAPH = "tgen.graphml"
"""The name of a client's graph in its folder."""
MAX_SEED = 2**31 - 1


def markov_files(
    root: Path,
    name: str,
    entry: TrafficClass,
    settings: Settings,
    network: Network,
    *,
    servers: Sequence[str],
    seed: int,
) -> dict[str, bytes]:
    """Return the models of a class and the graphs of its clients.

    servers: the names of the servers they use. Raises UserError if a model is missing or invalid.
    """
    files = {}
    paths = {}
    for key, path in entry.models.items():
        kind = key.removesuffix("_model")
        place = model_path(name, kind)
        try:
            files[place] = read_markov_model(root / path, path)
        except UserError as error:
            raise UserError(f"traffic.{name}.{key}: {error.message}", error.hint) from error
        if kind == "packet" and not entry.timeout_s and never_ends(files[place]):
            raise UserError(
                f"traffic.{name}.{key}: {path} never ends: TGen would send on every stream until "
                "the simulation is over",
                f"set traffic.{name}.timeout, or give the model an observation `F`",
            )
        # A server gets the path, not the model, and reads the model relative to its own folder.
        paths[kind] = f"../../../{place}"
    for host in network.by_role("client"):
        if host.traffic_class != name:
            continue
        files[f"{HOST_TEMPLATES}/{host.name}/{GRAPH}"] = tgen.markov_graph(
            servers=servers,
            models=paths,
            model_seed=draw_integer(0, MAX_SEED, seed, "markov models", host.name),
            login_seed=draw_integer(0, MAX_SEED, seed, "markov logins", host.name),
            timeout_ms=milliseconds(entry.timeout_s or 0),
            stallout_ms=milliseconds(entry.stallout_s or 0),
            heartbeat_ms=milliseconds(settings.engine.tgen.heartbeat_s),
            log_level=settings.engine.tgen.loglevel,
        )
    return files


def endless_streams(settings: Settings, models: Mapping[str, bytes]) -> int:
    """Return the expected number of open streams at the end that only a timeout ends.

    models: content by path in the run directory; other files are ignored.
    """
    found = 0.0
    for name, entry in settings.traffic.items():
        flow, stream, packet = (
            models.get(model_path(name, key.removesuffix("_model"))) for key in MODEL_KEYS
        )
        if packet is None or not never_ends(packet):
            continue
        running_s = settings.time.stop_s - settings.time.bootstrap_s - entry.start.after_s
        open_s = max(0.0, min(running_s, entry.timeout_s or running_s))
        found += entry.count * mean_streams_per_s(flow, stream) * open_s
    return round(found)


def expected_endless_streams(root: Path, settings: Settings) -> int:
    """Return `endless_streams` before the run is composed; 0 if a model cannot be read."""
    try:
        models = {
            model_path(name, key.removesuffix("_model")): (root / path).read_bytes()
            for name, entry in settings.traffic.items()
            for key, path in entry.models.items()
        }
        return endless_streams(settings, models)
    except (OSError, ValueError):
        return 0


def model_path(name: str, kind: str) -> str:
    """Return the path of a class's model in a run directory."""
    return f"conf/tgen.{name}.{kind}-model.graphml"
