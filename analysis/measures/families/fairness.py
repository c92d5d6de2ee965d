"""Metrics of fairness over clients, and of service gaps of their streams."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.arrays import Floats
from analysis.formats.columns import Outcome
from analysis.measures.data import ClassData
from analysis.measures.metric import (
    HEARTBEAT_S,
    INDEX,
    NO_HEARTBEAT,
    NOT_PUBLISHED,
    QUANTILES,
    RATE,
    Metric,
    MetricPolicy,
    Statistic,
    rank,
    rank_label,
    time_at,
)
from analysis.measures.service import STARVED_S, amount_by_client, jain_index


def _jain_over_clients(data: ClassData) -> Statistic:
    beats = data.beats
    if beats is None:
        return NOT_PUBLISHED
    if data.unknown_bytes_reason or beats.end_s.size == 0:
        return Statistic(None, data.unknown_bytes_reason or NO_HEARTBEAT)
    got = amount_by_client(
        beats.client, beats.begin_s, beats.end_s, beats.bytes_read, data.begin_s, data.end_s
    )
    index = jain_index(got)
    return Statistic(index, "" if index is not None else "no client read a byte in the span")


def _gap_statistic(compute: Callable[[Floats], float]) -> Callable[[ClassData], Statistic]:
    """Return a function that applies ``compute`` to the longest service gaps of a class's streams.

    Only measured streams with a known outcome and a known gap are included.
    """

    def compute_class(data: ClassData) -> Statistic:
        if data.longest_gaps_s is None:
            return NOT_PUBLISHED
        if data.unknown_bytes_reason:
            return Statistic(None, data.unknown_bytes_reason)
        streams = data.streams
        inside = (streams.start_s >= data.begin_s) & (streams.start_s < data.end_s)
        inside &= streams.outcome != Outcome.UNKNOWN
        if not inside.any():
            return Statistic(None, "no stream with a known outcome")
        gaps = data.longest_gaps_s[inside]
        known = gaps[np.isfinite(gaps)]
        if known.size == 0:
            return Statistic(None, "no heartbeat in the logs, or all clients have parallel streams")
        left_out = gaps.size - known.size
        note = f"without {left_out} of {gaps.size} streams, which overlapped with others"
        return Statistic(compute(known), note if left_out else "")

    return compute_class


def _quantile(q: float) -> Callable[[Floats], float]:
    return lambda gaps: float(np.quantile(gaps, q, method="inverted_cdf"))


def _starved(gaps: Floats) -> float:
    return float(np.mean(gaps >= STARVED_S))


METRICS: tuple[Metric, ...] = (
    Metric(
        "jain_index_clients", "Jain's index over clients", "1", "higher", INDEX, _jain_over_clients,
    ),
    Metric(
        "starved_share", "Starved streams", "1", "lower", RATE, _gap_statistic(_starved),
    ),
    *(
        Metric(
            f"longest_gap_{rank(q)}_s", f"Longest service gap of a stream, {rank_label(q)}", "s",
            "lower", MetricPolicy(time_at(q).margin, HEARTBEAT_S, "heartbeat"),
            _gap_statistic(_quantile(q)),
        )
        for q in QUANTILES
    ),
)  # fmt: skip
"""The metrics of fairness, for which the report has a separate table."""
