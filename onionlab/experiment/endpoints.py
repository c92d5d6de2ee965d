"""Check that the endpoints and margins of an experiment name metrics that can have a verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from analysis.measures.catalogue import OWN
from analysis.measures.data import ALL
from analysis.measures.families import (
    cells,
    durations,
    fairness,
    load,
    perf,
    side_by_side,
    streams,
    transfers,
)
from analysis.measures.metric import Metric
from onionlab.experiment.header import Header
from onionlab.experiment.load import AnySettings
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.settings import Settings
from onionlab.experiment.tornettools import TornetSettings
from onionlab.network.layout import RELAY_ROLES
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show


def judging_problems(
    tree: Node, header: Header[Any, Any], settings: Collection[AnySettings]
) -> Iterator[Problem]:
    """Yield problems with the margins and the endpoints of an experiment.

    settings: the settings of each level. It is a problem if no level has an endpoint's metric,
    unless classes are not known because imported networks are missing.
    """
    for metric in sorted(header.margins.keys() - OWN.judged.keys()):
        message = f"the metric is not judged, so it has no margin{nearest(metric, OWN.judged)}"
        yield tree.locate(("margins", metric), message)
    known = [classes_with_metrics(one) for one in settings]
    if None in known:
        return
    classes = sorted({ALL, *(name for names in known for name in names or ())})
    for place, endpoint in enumerate(header.endpoints):
        where = ("endpoints", place)
        class_name, metric = endpoint.class_name, endpoint.metric
        if class_name not in classes:
            message = f"expected one of {', '.join(classes)}, got {show(class_name)}"
            yield tree.locate((*where, "class"), message + nearest(class_name, classes))
            continue
        having = {name: {n for one in settings for n in _metrics(one, name)} for name in classes}
        if metric not in having[class_name]:
            message = f"the class {class_name} has no metric {show(metric)} that can be judged"
            others = ", ".join(name for name in classes if metric in having[name])
            hint = f"; these classes have it: {others}" if others else ""
            hint = hint or nearest(metric, having[class_name])
            yield tree.locate((*where, "metric"), message + hint)
        elif endpoint in header.endpoints[:place]:
            yield tree.locate(where, f"{class_name} {metric} is named twice")


def classes_with_metrics(settings: AnySettings) -> list[str] | None:
    """Return all classes that have metrics: client classes, and the roles of traced relays.

    Return None if they depend on an imported network that is missing.
    """
    if isinstance(settings, TornetSettings) and settings.network.facts is None:
        return None
    traced = isinstance(settings, Settings) and settings.tor.trace.where != "none"
    return [*settings.classes, *(RELAY_ROLES if traced else ())]


def _metrics(settings: AnySettings, class_name: str) -> list[str]:
    """Return the names of a class's metrics that can have a verdict."""
    return [
        metric.name
        for family in _families(settings, class_name)
        for metric in family
        if metric.name in OWN.judged
        and (class_name != ALL or metric.scope == "both")
        and (
            metric.duration not in durations.MARKED
            or not isinstance(settings, Settings)
            or settings.logs_mark(class_name, durations.MARKED[metric.duration])
        )
    ]


def _families(settings: AnySettings, class_name: str) -> list[tuple[Metric, ...]]:
    if isinstance(settings, PeersSettings):
        return [transfers.METRICS]
    if class_name not in (ALL, *settings.classes):
        return [cells.METRICS]
    if settings.classes.get(class_name, {}).get("load"):
        return [load.METRICS, tuple(metric for metric in streams.METRICS if metric.carried)]
    found = [streams.METRICS, durations.METRICS, fairness.METRICS]
    if isinstance(settings, TornetSettings):
        found.append(perf.METRICS)
    elif class_name != ALL and settings.traffic[class_name].kind == "pieces":
        found.append(side_by_side.METRICS)
    return found
