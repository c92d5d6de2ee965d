"""Whether an experiment's traffic has the metrics that its endpoints name."""

from __future__ import annotations

from analysis.measures.catalogue import OWN
from analysis.measures.data import ALL
from analysis.measures.durations import TO_320_KIB
from analysis.measures.families import cells, fairness, load, perf, side_by_side, streams, transfers
from analysis.measures.metric import Metric
from analysis.records.tgenlog import TARGET_BYTES
from onionlab.errors import UserError
from onionlab.experiment.experiment import Experiment
from onionlab.experiment.file_kinds import AnySettings
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.schema import RELAY_ROLES, Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.yamlfile.kinds import nearest
from onionlab.yamlfile.units import show

HINT = "docs/reference/statistics.md says what endpoints are"


def require_endpoints(experiment: Experiment) -> None:
    """Raise UserError for an endpoint that no level has, or that is named twice."""
    classes = sorted(
        {name for one in experiment.levels.values() for name in _classes(one.settings)}
    )
    for place, endpoint in enumerate(experiment.endpoints):
        where = f"{experiment.name}: endpoints.{place}"
        class_name, metric = endpoint.class_name, endpoint.metric
        if class_name not in classes:
            raise UserError(
                f"{where}.class: expected one of {', '.join(classes)}, got {show(class_name)}"
                f"{nearest(class_name, classes)}",
                HINT,
            )
        known = {
            name
            for level in experiment.levels.values()
            for name in _metrics(level.settings, class_name)
        }
        if metric not in known:
            raise UserError(
                f"{where}.metric: the class {class_name} has no metric {show(metric)} that can be "
                f"judged{nearest(metric, known)}",
                HINT,
            )
        if endpoint in experiment.endpoints[:place]:
            raise UserError(f"{where}: {class_name} {metric} is named twice", HINT)


def _classes(settings: AnySettings) -> list[str]:
    traced = isinstance(settings, Settings) and settings.tor.trace.where != "none"
    return [*settings.classes, *(RELAY_ROLES if traced else ()), ALL]


def _metrics(settings: AnySettings, class_name: str) -> list[str]:
    """Return the metrics that a class of an experiment's traffic can have a verdict on."""
    return [
        metric.name
        for family in _families(settings, class_name)
        for metric in family
        if metric.name in OWN.judged
        and (class_name != ALL or metric.scope == "both")
        and (metric.duration != TO_320_KIB or _logs_320_kib(settings, class_name))
    ]


def _families(settings: AnySettings, class_name: str) -> list[tuple[Metric, ...]]:
    if isinstance(settings, PeersSettings):
        return [transfers.METRICS]
    if class_name not in (ALL, *settings.classes):
        return [cells.METRICS]
    if settings.classes.get(class_name, {}).get("load"):
        return [load.METRICS, tuple(metric for metric in streams.METRICS if metric.carried)]
    found = [streams.METRICS, fairness.METRICS]
    if isinstance(settings, TornetSettings):
        found.append(perf.METRICS)
    elif class_name != ALL and settings.traffic[class_name].kind == "pieces":
        found.append(side_by_side.METRICS)
    return found


def _logs_320_kib(settings: AnySettings, class_name: str) -> bool:
    """Whether the logs have the time to 320 KiB: of larger streams only TGen's info level has."""
    if not isinstance(settings, Settings):
        return True
    size = settings.traffic[class_name].request_bytes or 0
    return size == TARGET_BYTES or (size > TARGET_BYTES and settings.engine.tgen.loglevel == "info")
