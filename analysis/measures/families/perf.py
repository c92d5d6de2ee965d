"""Metrics of perf clients, circuits and relays in a tornettools network.

There are two kinds: those with this project's selection (streams that start in the measured span,
including failures), and those with tornettools' definitions, for comparison with other work.
docs/reference/metrics.md has the definitions and their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.measures.data import ClassData
from analysis.measures.durations import TO_LAST_BYTE, duration_quantile
from analysis.measures.metric import (
    QUANTILES,
    RATE,
    WHOLE,
    Metric,
    Statistic,
    rank,
    rank_label,
    time_at,
)
from analysis.measures.perf import GOODPUTS, SIZES_BYTES, Mark, PerfStreams

SIZE_LABELS = {"50kib": "50 KiB", "500kib": "500 KiB", "1mib": "1 MiB", "4mib": "4 MiB"}
SIZE_LABELS["5mib"] = "5 MiB"

NO_DOWNLOAD = "no such download completed"


def _has_perf(data: ClassData) -> bool:
    return data.perf is not None


def _has_circuits(data: ClassData) -> bool:
    return data.circuits is not None


def _has_relays(data: ClassData) -> bool:
    return data.relay_bytes is not None


_Metric = partial(Metric, when=_has_perf)


def _ended(data: ClassData) -> PerfStreams:
    assert data.perf is not None
    return data.perf.ended_in(data.begin_s, data.end_s)


def _quantile(values: Floats, q: float, reason: str) -> Statistic:
    # Use numpy's default, as in imported results of tornettools.
    return Statistic(float(np.quantile(values, q))) if values.size else Statistic(None, reason)


def _quantile_of_times(
    times_s: Callable[[PerfStreams], Floats], q: float
) -> Callable[[ClassData], Statistic]:
    return lambda data: _quantile(times_s(_ended(data)), q, NO_DOWNLOAD)


def _goodput(low: Mark, high: Mark) -> Callable[[ClassData], Statistic]:
    def compute(data: ClassData) -> Statistic:
        ended = _ended(data)
        speeds = ended.goodputs_bytes_per_s(low, high)
        median = _quantile(speeds, 0.5, NO_DOWNLOAD)
        reached = ended.reached(high)
        if median.value is None or speeds.size == reached:
            return median
        missing = reached - speeds.size
        note = f"without {missing} of {reached} downloads, which reached both in one log line"
        return Statistic(median.value, note)

    return compute


def _last_byte_of_size(size_bytes: int, q: float) -> Callable[[ClassData], Statistic]:
    """Measure from the stream's start, over all streams of the size that start in the span."""

    def compute(data: ClassData) -> Statistic:
        sized = replace(data, streams=data.streams.select_size(size_bytes))
        return duration_quantile(sized, TO_LAST_BYTE, "incidence", q)

    return compute


def _started(size_bytes: int) -> Callable[[ClassData], Statistic]:
    return lambda data: Statistic(float(data.measured.select_size(size_bytes).outcome.size))


def _error_rate(data: ClassData) -> Statistic:
    failed, total = _ended(data).counts()
    return Statistic(failed / total) if total else Statistic(None, "no download ended")


def _build_time(q: float) -> Callable[[ClassData], Statistic]:
    def compute(data: ClassData) -> Statistic:
        assert data.circuits is not None
        times_s = data.circuits.build_times_s(data.begin_s, data.end_s)
        return _quantile(times_s, q, "no circuit was built")

    return compute


def _circuit_failures(data: ClassData) -> Statistic:
    assert data.circuits is not None
    failed, total = data.circuits.counts(data.begin_s, data.end_s)
    return Statistic(failed / total) if total else Statistic(None, "no circuit was built or failed")


def _relay_goodput(data: ClassData) -> Statistic:
    assert data.relay_bytes is not None
    per_second = data.relay_bytes.per_second(data.begin_s, data.end_s)
    if not per_second:
        return Statistic(None, "OnionTrace saw no relay in the measured span")
    if not data.relay_bytes.watched_until(data.end_s):
        return Statistic(None, "OnionTrace's log of a relay ends before the measured span does")
    return Statistic(float(np.mean(list(per_second.values()))))


def _times(
    name: str,
    label: str,
    times_s: Callable[[PerfStreams], Floats],
    qualifier: str,
    counted_by: str = "streams_started",
) -> Iterator[Metric]:
    for q in QUANTILES:
        yield _Metric(
            name=f"{name}_{rank(q)}_s",
            label=f"{label}, {qualifier}, {rank_label(q)}",
            unit="s",
            better="lower",
            judged=time_at(q),
            quantile=q,
            counted_by=counted_by,
            compute=_quantile_of_times(times_s, q),
        )


def _perf_metrics() -> Iterator[Metric]:
    for size, amount in SIZES_BYTES.items():
        for q in QUANTILES:
            yield _Metric(
                name=f"{TO_LAST_BYTE}_{size}_{rank(q)}_s",
                label=f"Time to last byte of {SIZE_LABELS[size]}, {rank_label(q)}",
                unit="s",
                better="lower",
                # Users wait for these times, and the public Tor is measured with the same three
                # sizes. The tails of a run's few downloads would need many seeds.
                headline=q == 0.5,
                judged=time_at(q),
                quantile=q,
                counted_by=f"streams_started_{size}",
                compute=_last_byte_of_size(amount, q),
            )
        yield _Metric(
            name=f"streams_started_{size}",
            label=f"Streams started, of {SIZE_LABELS[size]}",
            unit="streams",
            better="",
            judged=WHOLE,
            compute=_started(amount),
        )
    completed = "completed downloads"
    yield from _times(
        "download_ttfb", "Time to first byte from the command", PerfStreams.first_bytes_s, completed
    )
    for size, amount in SIZES_BYTES.items():
        yield from _times(
            f"download_ttlb_{size}",
            f"Time to last byte of {SIZE_LABELS[size]} from the command",
            partial(PerfStreams.last_bytes_s, size_bytes=amount),
            completed,
            f"streams_started_{size}",
        )
    yield from _times(
        "round_trip_time", "Time from command to response", PerfStreams.round_trips_s, completed
    )
    for low, high in GOODPUTS:
        yield _Metric(
            name=f"download_goodput_{low}_{high}_p50_bytes_per_s",
            label=(
                f"Goodput of a download between {SIZE_LABELS[low]} and {SIZE_LABELS[high]}, median"
            ),
            unit="B/s",
            better="higher",
            judged=WHOLE,
            compute=_goodput(low, high),
        )
    yield _Metric(
        name="download_error_rate",
        label="Download error rate",
        unit="1",
        better="lower",
        judged=RATE,
        compute=_error_rate,
    )


METRICS: tuple[Metric, ...] = (
    *_perf_metrics(),
    *(
        Metric(
            name=f"circuit_build_time_{rank(q)}_s",
            label=f"Circuit build time, {rank_label(q)}",
            unit="s",
            better="lower",
            judged=time_at(q),
            compute=_build_time(q),
            when=_has_circuits,
        )
        for q in QUANTILES
    ),
    Metric(
        name="circuit_failure_share",
        label="Circuits that failed before they were built",
        unit="1",
        better="lower",
        # The number of circuits that a client built is not a metric, so the step is unknown.
        judged=replace(RATE, step="unit", resolution=0.0),
        counted_by="",
        compute=_circuit_failures,
        when=_has_circuits,
    ),
    Metric(
        name="relay_goodput_bytes_per_s",
        label="Goodput of all relays, mean",
        unit="B/s",
        better="higher",
        scope="both",
        # The traffic that the network carries, including that of markov clients.
        headline=True,
        judged=WHOLE,
        compute=_relay_goodput,
        when=_has_relays,
    ),
)
