"""All metrics of this project, by family. The definitions are those of docs/reference/metrics.md.

A new metric is an entry in the ``METRICS`` of its family, and one in the document; a new family is
a module of ``families`` and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping

from analysis.measures.data import ALL, ClassData
from analysis.measures.families import cells, fairness, load, perf, side_by_side, streams, transfers
from analysis.measures.metric import Catalogue, Metric, Statistic

METRICS: tuple[Metric, ...] = (
    *streams.METRICS,
    *load.METRICS,
    *fairness.METRICS,
    *side_by_side.METRICS,
    *transfers.METRICS,
    *perf.METRICS,
    *cells.METRICS,
)
"""In the order in which tables show them."""

OWN = Catalogue(METRICS)
"""The metrics of this project; imported results have others."""


def run_statistics(classes: Mapping[str, ClassData]) -> dict[tuple[str, str], Statistic]:
    """All metrics of one run: (class, metric) -> statistic. ``classes`` may hold ``ALL``."""
    return {
        (name, metric.name): metric.compute(data)
        for name, data in classes.items()
        for metric in METRICS
        if (name != ALL or metric.scope == "both") and metric.when(data)
    }
