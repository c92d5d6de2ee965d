"""Metrics of durations: times from the start of a stream to an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from analysis.arrays import Floats, Ints
from analysis.formats.byte_marks import BYTE_MARKS, format_size
from analysis.formats.columns import Outcome
from analysis.measures.data import ClassData, Streams
from analysis.measures.metric import (
    NOT_PUBLISHED,
    QUANTILES,
    TIME,
    Metric,
    Statistic,
    rank,
    rank_label,
    time_at,
)
from analysis.measures.survival import (
    CENSORED,
    EVENT,
    FAILURE,
    Curve,
    cumulative_incidence,
    kaplan_meier,
)

Method = Literal["incidence", "km"]
"""How failed streams count. With "incidence" (cumulative incidence), they never reach the event.
With "km" (Kaplan-Meier), they are censored when they fail."""

METHODS: tuple[Method, ...] = ("incidence", "km")


@dataclass(frozen=True)
class Duration:
    """A time from the start of a stream to an event.

    Attributes:
        name: the start of its metrics' names, such as "time_to_320kib".
        label: the name on pages and in figures.
        times: a function that returns the time of each stream, in seconds, shape (n,); NaN if the
            event did not occur or its time is unknown.
        mark_bytes: the byte mark whose arrival is the event; None for the first and the last byte.
    """

    name: str
    label: str
    times: Callable[[Streams], Floats]
    mark_bytes: int | None = None


def _to_mark(column: str, mark_bytes: int) -> Duration:
    """Return the duration that is stored in this column of streams.parquet."""
    return Duration(
        name=column.removesuffix("_s"),
        label=f"Time to {format_size(mark_bytes)}",
        times=lambda streams: streams.marks_s[column],
        mark_bytes=mark_bytes,
    )


FIRST_BYTE = Duration("ttfb", "Time to first byte", lambda streams: streams.ttfb_s)
TIME_TO_MARK = {size: _to_mark(column, size) for column, size in BYTE_MARKS.items()}
"""Byte mark, in bytes -> the duration until that much payload was received."""
LAST_BYTE = Duration(
    "time_to_last_byte", "Time to last byte", lambda streams: streams.time_to_last_byte_s
)
DURATIONS = (FIRST_BYTE, *TIME_TO_MARK.values(), LAST_BYTE)

MARKED = {duration.name: size for size, duration in TIME_TO_MARK.items()}
"""Name of a duration, such as "time_to_320kib" -> the byte mark that ends it, in bytes."""


def observations(streams: Streams, times_s: Floats) -> tuple[Floats, Ints]:
    """Return the times and kinds of streams as observations for ``survival``.

    ``times_s`` has each stream's time from its start to the event, NaN if the event did not occur.
    A stream with a time is an EVENT, even if it fails later. A failed stream without a time is a
    FAILURE at its end, and an open stream is CENSORED at the end of its observation. A stream whose
    log line is missing is excluded.
    """
    known = streams.outcome != Outcome.UNKNOWN
    happened = np.isfinite(times_s)
    is_open = streams.outcome == Outcome.OPEN
    watched = np.maximum(streams.end_s - streams.start_s, 0.0)
    times = np.where(happened, times_s, watched)
    kinds = np.where(happened, EVENT, np.where(is_open, CENSORED, FAILURE))
    return times[known], kinds[known].astype(np.int64)


def duration_observations(
    data: ClassData, duration: Duration
) -> tuple[tuple[Floats, Ints] | None, str]:
    """Return the ``observations`` of a duration in the measured streams, or None and the reason."""
    streams = data.measured
    if streams.start_s.size == 0:
        return None, "no stream started in the measured span"
    times_s = duration.times(streams)
    lacking = (streams.outcome == Outcome.SUCCESS) & ~np.isfinite(times_s)
    if np.any(lacking) or not _is_logged(data, duration):
        return None, "the log does not contain this time for streams of this size"
    times, kinds = observations(streams, times_s)
    if times.size == 0:
        return None, "no stream with a known outcome"
    return (times, kinds), ""


def _is_logged(data: ClassData, duration: Duration) -> bool:
    """Return whether a missing time of a stream means that the event did not occur.

    For the first and the last byte, it always does. For a byte mark, the time of a stream that
    requested more bytes and did not complete is known only if the log has stream-status lines.
    Return False if a measured stream of this kind lacks the time, and no stream of the run that
    requested more bytes has a time, because such a log has no stream-status lines. Return True in
    all other cases, and if the sizes of streams are unknown.
    """
    streams, measured, mark_bytes = data.streams, data.measured, duration.mark_bytes
    if mark_bytes is None:
        return True
    on_its_way = np.isfinite(measured.ttfb_s) & ~np.isfinite(duration.times(measured))
    on_its_way &= measured.outcome != Outcome.UNKNOWN
    if not np.any(on_its_way & (measured.bytes_requested > mark_bytes)):
        return True
    logged = np.isfinite(duration.times(streams))
    return bool(np.any(logged & (streams.bytes_requested > mark_bytes)))


def duration_curve(data: ClassData, duration: Duration, method: Method) -> tuple[Curve | None, str]:
    """Return the distribution of a duration over the measured streams, or None and the reason."""
    observed, reason = duration_observations(data, duration)
    if observed is None:
        return None, reason
    make = cumulative_incidence if method == "incidence" else kaplan_meier
    return make(*observed), ""


def duration_quantile(data: ClassData, duration: Duration, method: Method, q: float) -> Statistic:
    """Return a quantile of a duration over the measured streams, or why there is none."""
    curve, reason = duration_curve(data, duration, method)
    if curve is None:
        return Statistic(None, reason)
    value = curve.quantile(q)
    if value is None:
        top = 100 * float(curve.probability[-1]) if curve.probability.size else 0.0
        return Statistic(None, f"the curve ends at {top:.1f}%")
    return Statistic(value)


def duration_quantiles(data: ClassData, duration: Duration, shares: Floats) -> Floats:
    """Return the quantiles of a duration's cumulative incidence at the shares.

    A quantile is NaN if the curve does not reach its share, or if there is no curve.
    """
    curve, _ = duration_curve(data, duration, "incidence")
    if curve is None:
        return np.full(shares.shape, np.nan)
    times = [curve.quantile(float(share)) for share in shares]
    return np.array([np.nan if time is None else time for time in times])


def duration_over_grid(data: ClassData, duration: Duration, grid_s: Floats) -> Floats:
    """Return the cumulative incidence of a duration at each grid time; NaN if it is unknown."""
    curve, _ = duration_curve(data, duration, "incidence")
    return np.full(grid_s.shape, np.nan) if curve is None else curve.at(grid_s)


def _restricted_mean(data: ClassData, duration: Duration, method: Method) -> Statistic:
    curve, reason = duration_curve(data, duration, method)
    if curve is None:
        return Statistic(None, reason)
    if data.horizon_s is None or data.horizon_s <= 0:
        return Statistic(None, "no horizon for which every stream is observed")
    value = curve.restricted_mean(data.horizon_s)
    if value is None:
        return Statistic(None, f"the curve ends before {data.horizon_s:g} s")
    return Statistic(value)


def _command_median(data: ClassData) -> Statistic:
    times = data.measured.ttfb_from_command_s
    if times is None:
        return NOT_PUBLISHED
    times = times[np.isfinite(times)]
    if times.size == 0:
        return Statistic(None, "no stream got a first byte")
    return Statistic(float(np.median(times)))


def _duration_metrics(duration: Duration, method: Method) -> Iterator[Metric]:
    prefix, suffix = ("", "") if method == "incidence" else ("km_", " (Kaplan-Meier)")

    def without_failures(what: str) -> str:
        return f"{duration.name}_{what}_s" if method == "km" else ""

    for q in QUANTILES:
        yield Metric(
            name=f"{duration.name}_{prefix}{rank(q)}_s",
            label=f"{duration.label}, {rank_label(q)}{suffix}",
            unit="s",
            better="lower",
            judged=time_at(q),
            compute=partial(duration_quantile, duration=duration, method=method, q=q),
            headline=method == "incidence",
            duration=duration.name,
            quantile=q,
            without_failures=without_failures(rank(q)),
        )
    yield Metric(
        name=f"{duration.name}_{prefix}restricted_mean_s",
        label=f"{duration.label}, restricted mean{suffix}",
        unit="s",
        better="lower",
        judged=TIME,
        compute=partial(_restricted_mean, duration=duration, method=method),
        duration=duration.name,
        without_failures=without_failures("restricted_mean"),
    )


METRICS: tuple[Metric, ...] = (
    *(
        metric
        for duration in DURATIONS
        for method in METHODS
        for metric in _duration_metrics(duration, method)
    ),
    Metric(
        name="ttfb_from_command_p50_s",
        label="Time to first byte from the command, median",
        unit="s",
        better="lower",
        judged=TIME,
        compute=_command_median,
        quantile=0.5,
    ),
)
