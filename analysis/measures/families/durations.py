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
    """A time from the start of a stream to an event."""

    name: str
    label: str
    times: Callable[[Streams], Floats]


TO_FIRST_BYTE, TO_LAST_BYTE = "ttfb", "time_to_last_byte"

MARKED = {column.removesuffix("_s"): size_bytes for column, size_bytes in BYTE_MARKS.items()}
"""Name of a duration, such as "time_to_320kib" -> the number of bytes whose arrival ends it."""


def _time_to_mark(column: str, streams: Streams) -> Floats:
    return streams.marks_s[column]


DURATIONS: tuple[Duration, ...] = (
    Duration(TO_FIRST_BYTE, "Time to first byte", lambda s: s.ttfb_s),
    *(
        Duration(name, f"Time to {format_size(size)}", partial(_time_to_mark, f"{name}_s"))
        for name, size in MARKED.items()
    ),
    Duration(TO_LAST_BYTE, "Time to last byte", lambda s: s.time_to_last_byte_s),
)
_DURATION = {duration.name: duration for duration in DURATIONS}
FIRST_BYTE = _DURATION[TO_FIRST_BYTE]
TIME_TO_MARK = {size: _DURATION[name] for name, size in MARKED.items()}
"""Number of bytes -> the duration until they were received."""


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


def duration_observations(data: ClassData, name: str) -> tuple[tuple[Floats, Ints] | None, str]:
    """Return the ``observations`` of a duration in the measured streams, or None and the reason."""
    streams = data.measured
    if streams.start_s.size == 0:
        return None, "no stream started in the measured span"
    times_s = _DURATION[name].times(streams)
    lacking = (streams.outcome == Outcome.SUCCESS) & ~np.isfinite(times_s)
    if np.any(lacking) or (name in MARKED and not _logs_mark(data, name)):
        return None, "the log does not contain this time for streams of this size"
    times, kinds = observations(streams, times_s)
    if times.size == 0:
        return None, "no stream with a known outcome"
    return (times, kinds), ""


def _logs_mark(data: ClassData, name: str) -> bool:
    """Return whether a missing time to ``MARKED[name]`` bytes means that they were not received.

    If a stream requested more bytes and did not complete, the time is only known if the log has
    stream-status lines. Return False if a measured stream of this kind lacks the time, and no
    stream of the run that requested more bytes has a time, because such a log has no stream-status
    lines. Return True in all other cases, and if the sizes of streams are unknown.
    """
    streams, measured, mark_bytes = data.streams, data.measured, MARKED[name]
    if streams.bytes_requested is None or measured.bytes_requested is None:
        return True
    on_its_way = np.isfinite(measured.ttfb_s) & ~np.isfinite(measured.marks_s[f"{name}_s"])
    on_its_way &= measured.outcome != Outcome.UNKNOWN
    if not np.any(on_its_way & (measured.bytes_requested > mark_bytes)):
        return True
    logged = np.isfinite(streams.marks_s[f"{name}_s"])
    return bool(np.any(logged & (streams.bytes_requested > mark_bytes)))


def duration_curve(data: ClassData, name: str, method: Method) -> tuple[Curve | None, str]:
    """Return the distribution of a duration over the measured streams, or None and the reason."""
    observed, reason = duration_observations(data, name)
    if observed is None:
        return None, reason
    make = cumulative_incidence if method == "incidence" else kaplan_meier
    return make(*observed), ""


def duration_quantile(data: ClassData, name: str, method: Method, q: float) -> Statistic:
    """Return a quantile of a duration over the measured streams, or why there is none."""
    curve, reason = duration_curve(data, name, method)
    if curve is None:
        return Statistic(None, reason)
    value = curve.quantile(q)
    if value is None:
        top = 100 * float(curve.probability[-1]) if curve.probability.size else 0.0
        return Statistic(None, f"the curve ends at {top:.1f}%")
    return Statistic(value)


def duration_quantiles(data: ClassData, name: str, shares: Floats) -> Floats:
    """Return the quantiles of a duration's cumulative incidence at the shares.

    A quantile is NaN if the curve does not reach its share, or if there is no curve.
    """
    curve, _ = duration_curve(data, name, "incidence")
    if curve is None:
        return np.full(shares.shape, np.nan)
    times = [curve.quantile(float(share)) for share in shares]
    return np.array([np.nan if time is None else time for time in times])


def duration_over_grid(data: ClassData, name: str, grid_s: Floats) -> Floats:
    """Return the cumulative incidence of a duration at each grid time; NaN if it is unknown."""
    curve, _ = duration_curve(data, name, "incidence")
    return np.full(grid_s.shape, np.nan) if curve is None else curve.at(grid_s)


def _restricted_mean(data: ClassData, name: str, method: Method) -> Statistic:
    curve, reason = duration_curve(data, name, method)
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
            compute=partial(duration_quantile, name=duration.name, method=method, q=q),
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
        compute=partial(_restricted_mean, name=duration.name, method=method),
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
