"""Metrics of classes of background load. docs/reference/metrics.md has the definitions."""

from __future__ import annotations

from analysis.measures.data import ClassData
from analysis.measures.metric import NOT_PUBLISHED, Metric, Statistic


def _open(which: int, at: str) -> Metric:
    def compute(data: ClassData) -> Statistic:
        if data.open_streams is None:
            return NOT_PUBLISHED
        return Statistic(float(data.open_streams[which]))

    return Metric(
        f"open_streams_at_{at}", f"Streams under way at the {at} of the measured span", "streams",
        "", None, compute, when=lambda data: data.load,
    )  # fmt: skip


METRICS: tuple[Metric, ...] = (_open(0, "begin"), _open(1, "end"))
