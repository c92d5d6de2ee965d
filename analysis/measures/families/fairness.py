"""Metrics of fairness over clients, and of how long their streams wait for service."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.arrays import Floats
from analysis.formats.columns import Outcome
from analysis.measures.data import ClassData
from analysis.measures.metric import (
    HEARTBEAT_S,
    INDEX,
    NOT_PUBLISHED,
    QUANTILES,
    RATE,
    Judged,
    Metric,
    Statistic,
    rank,
    rank_words,
    time_at,
)
from analysis.measures.service import STARVED_S, amount_by_client, jain_index


def _jain_over_clients(data: ClassData) -> Statistic:
    beats = data.beats
    if beats is None:
        return NOT_PUBLISHED
    if beats.end_s.size == 0:
        return Statistic(None, "no heartbeat in the logs")
    got = amount_by_client(
        beats.client, beats.begin_s, beats.end_s, beats.bytes_read, data.begin_s, data.end_s
    )
    index = jain_index(got)
    return Statistic(index, "" if index is not None else "no client read a byte in the span")


def _gaps(data: ClassData) -> tuple[Floats, str]:
    """Longest gap of each measured stream with a known fate, and why there is none."""
    if data.longest_gaps_s is None:
        return np.empty(0), NOT_PUBLISHED.reason
    streams = data.streams
    inside = (streams.start_s >= data.begin_s) & (streams.start_s < data.end_s)
    inside &= streams.outcome != Outcome.UNKNOWN
    if not inside.any():
        return np.empty(0), "no stream with a known fate"
    gaps = data.longest_gaps_s[inside]
    gaps = gaps[np.isfinite(gaps)]
    if gaps.size == 0:
        return gaps, "no heartbeat in the logs, or all clients have parallel streams"
    return gaps, ""


def _gap_quantile(q: float) -> Callable[[ClassData], Statistic]:
    def compute(data: ClassData) -> Statistic:
        gaps, reason = _gaps(data)
        if gaps.size == 0:
            return Statistic(None, reason)
        return Statistic(float(np.quantile(gaps, q, method="inverted_cdf")))

    return compute


def _starved(data: ClassData) -> Statistic:
    gaps, reason = _gaps(data)
    if gaps.size == 0:
        return Statistic(None, reason)
    return Statistic(float(np.mean(gaps >= STARVED_S)))


METRICS: tuple[Metric, ...] = (
    Metric(
        name="jain_index_clients",
        label="Jain's index over clients",
        unit="1",
        better="higher",
        judged=INDEX,
        compute=_jain_over_clients,
    ),
    Metric(
        name="starved_share",
        label="Starved streams",
        unit="1",
        better="lower",
        judged=RATE,
        compute=_starved,
    ),
    *(
        Metric(
            name=f"longest_gap_{rank(q)}_s",
            label=f"Longest service gap of a stream, {rank_words(q)}",
            unit="s",
            better="lower",
            judged=Judged(time_at(q).margin, HEARTBEAT_S, "heartbeat"),
            compute=_gap_quantile(q),
        )
        for q in QUANTILES
    ),
)
"""The report shows them together."""
