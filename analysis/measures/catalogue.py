"""All metrics of this project, by family. docs/reference/metrics.md defines them.

To add a metric, add an entry to ``METRICS`` of its family, and one to docs/reference/metrics.md. To
add a family, add a module to ``families`` and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping

from analysis.measures.data import ALL, ClassData
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
from analysis.measures.metric import Catalogue, Metric, Statistic

METRICS: tuple[Metric, ...] = (
    *streams.METRICS,
    *durations.METRICS,
    *load.METRICS,
    *fairness.METRICS,
    *side_by_side.METRICS,
    *transfers.METRICS,
    *perf.METRICS,
    *cells.METRICS,
)
"""All metrics, in the order in which tables list them."""

OWN = Catalogue(METRICS)
"""The metrics of this project; imported results have other metrics."""


def run_statistics(classes: Mapping[str, ClassData]) -> dict[tuple[str, str], Statistic]:
    """Return the metrics that apply to each class of one run: (class, metric) -> statistic.

    ``classes`` may contain ``ALL``, for which only metrics with the scope "both" are computed.
    """
    return {
        (name, metric.name): metric.compute(data)
        for name, data in classes.items()
        for metric in METRICS
        if (name != ALL or metric.scope == "both") and metric.when(data)
    }
