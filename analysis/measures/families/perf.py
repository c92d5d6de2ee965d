"""Metrics of perf clients, circuits and relays in a tornettools network.

Some of the metrics have this project's selection (streams that start in the measured span,
including failures). Others have tornettools' definitions, for comparison with other work.
docs/reference/metrics.md has the definitions and their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.formats.byte_marks import format_size
from analysis.measures.data import ClassData
from analysis.measures.families.durations import LAST_BYTE, duration_quantile
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
from analysis.measures.perf import GOODPUTS, MARK_BYTES, SIZES_BYTES, PerfStreams

SIZE_LABELS = {name: format_size(size) for name, size in {**SIZES_BYTES, **MARK_BYTES}.items()}

NO_DOWNLOAD = "no such download completed"


_Metric = partial(Metric, when=lambda data: data.perf is not None)


def _ended(data: ClassData) -> PerfStreams:
    assert data.perf is not None
    return data.perf.ended_in(data.begin_s, data.end_s)


def _quantile(values: Floats, q: float, reason: str) -> Statistic:
    # Use numpy's default method, which is also used for imported results of tornettools.
    return Statistic(float(np.quantile(values, q))) if values.size else Statistic(None, reason)


def _quantile_of_times(
    times_s: Callable[[PerfStreams], Floats], q: float
) -> Callable[[ClassData], Statistic]:
    return lambda data: _quantile(times_s(_ended(data)), q, NO_DOWNLOAD)


def _goodput(low: str, high: str) -> Callable[[ClassData], Statistic]:
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
    """Return a function that computes a quantile of streams' times to last byte, for one size.

    The times begin with the stream's start. All streams that start in the measured span count.
    """

    def compute(data: ClassData) -> Statistic:
        sized = replace(data, streams=data.streams.select_size(size_bytes))
        return duration_quantile(sized, LAST_BYTE, "incidence", q)

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
            f"{name}_{rank(q)}_s", f"{label}, {qualifier}, {rank_label(q)}", "s", "lower",
            time_at(q), _quantile_of_times(times_s, q), quantile=q, counted_by=counted_by,
        )  # fmt: skip


def _perf_metrics() -> Iterator[Metric]:
    for size, amount in SIZES_BYTES.items():
        for q in QUANTILES:
            yield _Metric(
                f"{LAST_BYTE.name}_{size}_{rank(q)}_s",
                f"Time to last byte of {SIZE_LABELS[size]}, {rank_label(q)}", "s", "lower",
                # The medians are headlines: users wait for these times, and the public Tor network
                # is measured with the same three sizes. A run has few downloads, so the other
                # quantiles would need many networks.
                time_at(q), _last_byte_of_size(amount, q), headline=q == 0.5, quantile=q,
                counted_by=f"streams_started_{size}",
            )  # fmt: skip
        yield _Metric(
            f"streams_started_{size}", f"Streams started, of {SIZE_LABELS[size]}", "streams", "",
            WHOLE, _started(amount),
        )  # fmt: skip
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
            f"download_goodput_{low}_{high}_p50_bytes_per_s",
            f"Goodput of a download between {SIZE_LABELS[low]} and {SIZE_LABELS[high]}, median",
            "B/s", "higher", WHOLE, _goodput(low, high),
        )  # fmt: skip
    yield _Metric(
        "download_error_rate", "Download error rate", "1", "lower", RATE, _error_rate,
    )  # fmt: skip


METRICS: tuple[Metric, ...] = (
    *_perf_metrics(),
    *(
        Metric(
            f"circuit_build_time_{rank(q)}_s", f"Circuit build time, {rank_label(q)}", "s", "lower",
            time_at(q), _build_time(q), when=lambda data: data.circuits is not None,
        )
        for q in QUANTILES
    ),
    Metric(
        "circuit_failure_share", "Circuits that failed before they were built", "1", "lower",
        # The rounding step is 1 / (number of circuits). No metric counts circuits: it is unknown.
        replace(RATE, step="unit", resolution=0.0), _circuit_failures, counted_by="",
        when=lambda data: data.circuits is not None,
    ),
    Metric(
        "relay_goodput_bytes_per_s", "Goodput of all relays, mean", "B/s", "higher", WHOLE,
        # This is a headline, because it is all traffic that the network carries, including the
        # traffic of markov clients.
        _relay_goodput, scope="both", headline=True, when=lambda data: data.relay_bytes is not None,
    ),
)  # fmt: skip
