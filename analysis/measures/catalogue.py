"""One run's statistics. Arrays in, numbers out.

The definitions are those of docs/reference/metrics.md.

Every metric stands once in ``METRICS``. A new one is a new entry there, and one in the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analysis.celltrace.statistics import (
    LEAST_SPAN_S,
    Group,
    Relayed,
    Stage,
    chance_longer,
    delay_autocorrelation,
)
from analysis.formats.columns import FAILURES, Outcome
from analysis.measures import side_by_side as parallel
from analysis.measures.fairness import STARVED_S, amount_by_client, jain_index, longest_gaps
from analysis.measures.survival import (
    CENSORED,
    EVENT,
    FAILURE,
    Curve,
    cumulative_incidence,
    kaplan_meier,
)
from analysis.measures.time_series import Floats, count_by, cumulative_at, moving_average
from analysis.measures.transfer_trace import EARLY_S, LONG_STALL_RTTS, PeerTrace

ALL = "all"
"""The name of all classes together."""

WINDOW_S = 60.0
"""Width of the moving average of throughput."""


@dataclass(frozen=True)
class Streams:
    """Streams of one class in one run; all arrays have shape (n,). NaN: no such time.

    ``client`` is a code, the same for all classes and tables of a run.
    """

    client: NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    outcome: NDArray[np.str_]
    ttfb_s: Floats
    ttfb_from_command_s: Floats
    time_to_320kib_s: Floats
    time_to_last_byte_s: Floats

    def started_in(self, begin_s: float, end_s: float) -> Streams:
        """The streams whose start is in [begin, end)."""
        keep = (self.start_s >= begin_s) & (self.start_s < end_s)
        return Streams(*(getattr(self, name)[keep] for name in Streams.__dataclass_fields__))


@dataclass(frozen=True)
class Beats:
    """Heartbeat intervals of one class in one run; all arrays have shape (m,)."""

    client: NDArray[np.int64]
    begin_s: Floats
    end_s: Floats
    bytes_read: Floats


@dataclass(frozen=True)
class ClassData:
    """What one run's records say about one class, or about all together.

    Attributes:
        streams: all streams of the run.
        beats: all heartbeat intervals of the run.
        begin_s: start of the measured span.
        end_s: its end.
        horizon_s: limit of the restricted means; None where classes are mixed.
        side_by_side: of each client that made several downloads side by side in the measured span,
            those downloads, oldest first; known only from logs with stream-status lines.
    """

    streams: Streams
    beats: Beats
    begin_s: float
    end_s: float
    horizon_s: float | None
    side_by_side: tuple[parallel.Group, ...] = ()
    transfer: PeerTrace | None = None
    """What peers say of a transfer between them; such a class has no streams and no beats."""
    relayed: Relayed | None = None
    """The cells that traced relays of one role relayed; neither has such a class."""

    @property
    def measured(self) -> Streams:
        """The streams that count: those started in the measured span."""
        return self.streams.started_in(self.begin_s, self.end_s)

    @cached_property
    def longest_gaps_s(self) -> Floats:
        """Longest service gap of every stream of the run; NaN where it cannot be told."""
        # Of all streams, since those outside of the span may overlap with those inside.
        return longest_gaps(
            self.streams.client,
            self.streams.start_s,
            self.streams.end_s,
            self.streams.ttfb_s,
            self.beats.client,
            self.beats.begin_s,
            self.beats.end_s,
            self.beats.bytes_read,
        )


@dataclass(frozen=True)
class Statistic:
    """A number, or the reason why there is none."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True)
class Quantity:
    """What one number of a run is, wherever the number comes from.

    Attributes:
        name: as in summary.csv; ends with its unit where it has one.
        label: for readers.
        unit: of the value.
        better: which direction is the better one; "" where neither is.
        scope: "class": each class on its own; "both": also all classes together.
        headline: shown in the report's first table.
    """

    name: str
    label: str
    unit: str
    better: Literal["lower", "higher", ""]
    scope: Literal["class", "both"]
    headline: bool


def _of_streams(data: ClassData) -> bool:
    return data.transfer is None and data.relayed is None


@dataclass(frozen=True)
class Metric(Quantity):
    """One entry of the table of metrics.

    Attributes:
        compute: the statistic of one run.
        when: whether a run's data are of the kind that it is about; else it is left out. Without:
            whether they are of streams.
    """

    compute: Callable[[ClassData], Statistic]
    when: Callable[[ClassData], bool] = _of_streams


@dataclass(frozen=True)
class Duration:
    """A time from a stream's start to something that happens in it."""

    name: str
    label: str
    times: Callable[[Streams], Floats]


DURATIONS: tuple[Duration, ...] = (
    Duration("ttfb", "Time to first byte", lambda s: s.ttfb_s),
    Duration("time_to_320kib", "Time to 320 KiB", lambda s: s.time_to_320kib_s),
    Duration("time_to_last_byte", "Time to last byte", lambda s: s.time_to_last_byte_s),
)
_DURATION = {duration.name: duration for duration in DURATIONS}

QUANTILES = (0.5, 0.9, 0.99)


def observations(streams: Streams, times_s: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Times and kinds (``survival``) of a duration over streams.

    A stream that has the time is an EVENT there, whatever became of it later. Without it, a failed
    stream is a FAILURE at its end and an open one is CENSORED at the end of its observation. A
    stream whose line was lost tells nothing and is left out.
    """
    known = streams.outcome != Outcome.UNKNOWN
    happened = np.isfinite(times_s)
    is_open = streams.outcome == Outcome.OPEN
    watched = np.maximum(streams.end_s - streams.start_s, 0.0)
    times = np.where(happened, times_s, watched)
    kinds = np.where(happened, EVENT, np.where(is_open, CENSORED, FAILURE))
    return times[known], kinds[known].astype(np.int64)


def duration_observations(
    data: ClassData, name: str
) -> tuple[tuple[Floats, NDArray[np.int64]] | None, str]:
    """Times and kinds of a duration over the measured streams, or None and the reason."""
    streams = data.measured
    if streams.start_s.size == 0:
        return None, "no stream started in the measured span"
    times_s = _DURATION[name].times(streams)
    without = (streams.outcome == Outcome.SUCCESS) & ~np.isfinite(times_s)
    if np.any(without):
        return None, "the log does not tell this time for streams of this size"
    times, kinds = observations(streams, times_s)
    if times.size == 0:
        return None, "no stream with a known fate"
    return (times, kinds), ""


def duration_curve(
    data: ClassData, name: str, method: Literal["incidence", "km"]
) -> tuple[Curve | None, str]:
    """Distribution of a duration over the measured streams, or None and the reason."""
    observed, reason = duration_observations(data, name)
    if observed is None:
        return None, reason
    make = cumulative_incidence if method == "incidence" else kaplan_meier
    return make(*observed), ""


def _quantile(name: str, method: Literal["incidence", "km"], q: float) -> Callable[..., Statistic]:
    def compute(data: ClassData) -> Statistic:
        curve, reason = duration_curve(data, name, method)
        if curve is None:
            return Statistic(None, reason)
        value = curve.quantile(q)
        if value is None:
            top = 100 * float(curve.probability[-1]) if curve.probability.size else 0.0
            return Statistic(None, f"the curve ends at {top:.1f}%")
        return Statistic(value)

    return compute


def _restricted_mean(name: str, method: Literal["incidence", "km"]) -> Callable[..., Statistic]:
    def compute(data: ClassData) -> Statistic:
        curve, reason = duration_curve(data, name, method)
        if curve is None:
            return Statistic(None, reason)
        if data.horizon_s is None or data.horizon_s <= 0:
            return Statistic(None, "no time that every stream is watched for")
        value = curve.restricted_mean(data.horizon_s)
        if value is None:
            return Statistic(None, f"the curve ends before {data.horizon_s:g} s")
        return Statistic(value)

    return compute


def _goodput(data: ClassData) -> Statistic:
    if data.beats.end_s.size == 0:
        return Statistic(None, "no heartbeat in the logs")
    beat_s = float(np.median(data.beats.end_s - data.beats.begin_s))
    if float(data.beats.end_s.max()) < data.end_s - 2 * beat_s:
        return Statistic(None, "the logs end before the measured span does")
    got = cumulative_at(
        [data.begin_s, data.end_s], data.beats.begin_s, data.beats.end_s, data.beats.bytes_read
    )
    return Statistic(float(got[1] - got[0]) / (data.end_s - data.begin_s))


def _count(outcomes: tuple[Outcome, ...] | None) -> Callable[[ClassData], Statistic]:
    def compute(data: ClassData) -> Statistic:
        outcome = data.measured.outcome
        if outcomes is None:
            return Statistic(float(outcome.size))
        return Statistic(float(np.isin(outcome, [o.value for o in outcomes]).sum()))

    return compute


def _share(of: tuple[Outcome, ...]) -> Callable[[ClassData], Statistic]:
    def compute(data: ClassData) -> Statistic:
        outcome = data.measured.outcome
        bad = int(np.isin(outcome, [o.value for o in of]).sum())
        good = int((outcome == Outcome.SUCCESS).sum())
        if bad + good == 0:
            return Statistic(None, "no stream with a known fate")
        return Statistic(bad / (bad + good))

    return compute


def _timeout_incidence(data: ClassData) -> Statistic:
    streams = data.measured
    known = streams.outcome != Outcome.UNKNOWN
    outcome = streams.outcome[known]
    if outcome.size == 0:
        return Statistic(None, "no stream with a known fate")
    watched = np.maximum(streams.end_s - streams.start_s, 0.0)[known]
    # Here the awaited thing is the timeout, and any other end rules it out.
    ended = np.where(outcome == Outcome.TIMEOUT, EVENT, FAILURE)
    curve = cumulative_incidence(watched, np.where(outcome == Outcome.OPEN, CENSORED, ended))
    return Statistic(float(curve.probability[-1]) if curve.probability.size else 0.0)


def _fairness(data: ClassData) -> Statistic:
    beats = data.beats
    if beats.end_s.size == 0:
        return Statistic(None, "no heartbeat in the logs")
    got = amount_by_client(
        beats.client, beats.begin_s, beats.end_s, beats.bytes_read, data.begin_s, data.end_s
    )
    index = jain_index(got)
    return Statistic(index, "" if index is not None else "no client read a byte in the span")


def _gaps(data: ClassData) -> tuple[Floats, str]:
    """Longest gap of each measured stream with a known fate, and why there is none."""
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


def _command_median(data: ClassData) -> Statistic:
    times = data.measured.ttfb_from_command_s
    times = times[np.isfinite(times)]
    if times.size == 0:
        return Statistic(None, "no stream got a first byte")
    return Statistic(float(np.median(times)))


def _is_parallel(data: ClassData) -> bool:
    return bool(data.side_by_side)


def _of_groups(
    compute: Callable[[parallel.Group], float | None], reason: str
) -> Callable[[ClassData], Statistic]:
    """The mean over clients with parallel downloads, if each has a value."""

    def of_data(data: ClassData) -> Statistic:
        values = [compute(group) for group in data.side_by_side]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return Statistic(None, reason)
        return Statistic(float(np.mean(known)))

    return of_data


def _at_first_end(
    compute: Callable[[Floats], float | None],
) -> Callable[[parallel.Group], float | None]:
    """Something of the shares that the streams have when the first one is complete."""

    def of_group(group: parallel.Group) -> float | None:
        first = parallel.first_done_s(group)
        return None if first is None else compute(parallel.shares_at(group, first))

    return of_group


def _mean_jain(group: parallel.Group) -> float | None:
    _, index = parallel.jain_over_time(group)
    return float(index.mean()) if index.size else None


_ParallelRow = tuple[
    str,
    str,
    str,
    Literal["lower", "higher"],
    Callable[[parallel.Group], float | None],
    str,
]


def _parallel_metrics() -> Iterator[Metric]:
    none_done = "no stream was complete"
    rows: tuple[_ParallelRow, ...] = (
        (
            "starvation",
            "Starvation of the slowest stream",
            "1",
            "lower",
            _at_first_end(parallel.starvation),
            none_done,
        ),
        (
            "last_three_lead",
            "Lead of the last three streams",
            "1",
            "lower",
            _at_first_end(parallel.lead_of_last),
            "no stream was complete, or there are no others than the last three",
        ),
        (
            "served_streams",
            "Streams served at a time",
            "streams",
            "higher",
            _at_first_end(parallel.served),
            none_done,
        ),
        (
            "jain_index_streams",
            "Jain's index over streams",
            "1",
            "higher",
            _mean_jain,
            "no time with two streams in progress",
        ),
        (
            "completion_spread_s",
            "First to last completion",
            "s",
            "lower",
            parallel.completion_spread_s,
            "a stream was not complete at the end",
        ),
        (
            "stream_gap_max_s",
            "Longest service gap of any stream",
            "s",
            "lower",
            lambda group: max(one.longest_gap_s for one in group),
            "",
        ),
    )
    for name, label, unit, better, compute, reason in rows:
        yield Metric(
            name, label, unit, better, "class", False, _of_groups(compute, reason), _is_parallel
        )


_OUTCOME_LABELS = {
    Outcome.SUCCESS: "Successful streams",
    Outcome.TIMEOUT: "Timeouts",
    Outcome.STALL: "Stalls",
    Outcome.PROXY_ERROR: "Proxy errors",
    Outcome.CLOSED: "Streams closed early",
    Outcome.CONNECTION_ERROR: "Connection errors",
    Outcome.PROTOCOL_ERROR: "Protocol errors",
    Outcome.OTHER_ERROR: "Other errors",
    Outcome.OPEN: "Streams open at the end",
    Outcome.UNKNOWN: "Streams whose line is missing",
}


def _metrics() -> tuple[Metric, ...]:
    timeouts = (Outcome.TIMEOUT,)
    metrics = [
        Metric("goodput_bytes_per_s", "Throughput", "B/s", "higher", "both", True, _goodput),
        Metric("timeout_rate", "Timeout rate", "1", "lower", "both", True, _share(timeouts)),
        Metric(
            "timeout_incidence",
            "Timeout probability (open streams censored)",
            "1",
            "lower",
            "both",
            False,
            _timeout_incidence,
        ),
        Metric("failure_rate", "Failure rate", "1", "lower", "both", False, _share(FAILURES)),
        Metric("streams_started", "Streams started", "streams", "", "both", False, _count(None)),
    ]
    for outcome, label in _OUTCOME_LABELS.items():
        name = outcome.value.replace("-", "_")
        # The paper's figure counts timeouts, so their number goes to the front with their rate.
        metrics.append(
            Metric(
                f"{name}_count",
                label,
                "streams",
                "higher" if outcome is Outcome.SUCCESS else "lower" if outcome in FAILURES else "",
                "both",
                outcome is Outcome.TIMEOUT,
                _count((outcome,)),
            )
        )
    for duration in DURATIONS:
        for method, prefix, suffix in (("incidence", "", ""), ("km", "km_", " (Kaplan-Meier)")):
            for q in QUANTILES:
                rank = "median" if q == 0.5 else f"p{round(100 * q)}"
                metrics.append(
                    Metric(
                        f"{duration.name}_{prefix}p{round(100 * q)}_s",
                        f"{duration.label}, {rank}{suffix}",
                        "s",
                        "lower",
                        "class",
                        method == "incidence",
                        _quantile(duration.name, "km" if prefix else "incidence", q),
                    )
                )
            metrics.append(
                Metric(
                    f"{duration.name}_{prefix}restricted_mean_s",
                    f"{duration.label}, restricted mean{suffix}",
                    "s",
                    "lower",
                    "class",
                    False,
                    _restricted_mean(duration.name, "km" if prefix else "incidence"),
                )
            )
    metrics.append(
        Metric(
            "ttfb_from_command_p50_s",
            "Time to first byte from the command, median",
            "s",
            "lower",
            "class",
            False,
            _command_median,
        )
    )
    metrics += [
        Metric(
            "jain_index_clients",
            "Jain's index over clients",
            "1",
            "higher",
            "class",
            False,
            _fairness,
        ),
        Metric("starved_share", "Starved streams", "1", "lower", "class", False, _starved),
        *(
            Metric(
                f"longest_gap_p{round(100 * q)}_s",
                f"Longest service gap of a stream, {'median' if q == 0.5 else f'p{100 * q:.0f}'}",
                "s",
                "lower",
                "class",
                False,
                _gap_quantile(q),
            )
            for q in QUANTILES
        ),
        *_parallel_metrics(),
    ]
    return tuple(metrics)


def _is_transfer(data: ClassData) -> bool:
    return data.transfer is not None


def _of_transfer(compute: Callable[[PeerTrace], Statistic]) -> Callable[[ClassData], Statistic]:
    def of_class(data: ClassData) -> Statistic:
        if data.transfer is None:
            return Statistic(None, "no transfer between peers")
        return compute(data.transfer)

    return of_class


def _left_slow_start(trace: PeerTrace) -> Statistic:
    if trace.utp_s.size == 0:
        return Statistic(None, "the transport does not tell of its slow start")
    left_s = trace.left_slow_start_s
    return Statistic(left_s, "" if left_s is not None else "slow start lasts until the run's end")


def _left_request_slow_start(trace: PeerTrace) -> Statistic:
    left_s = trace.left_request_slow_start_s
    if left_s is not None:
        return Statistic(left_s)
    if trace.request_slow_start.any():
        return Statistic(None, "the slow start of requests lasts until the run's end")
    return Statistic(None, "its requests have no slow start")


def _stalls(
    of: Callable[[Floats, float], float], none: float | None
) -> Callable[[PeerTrace], Statistic]:
    def compute(trace: PeerTrace) -> Statistic:
        if trace.utp_s.size == 0:
            return Statistic(None, "the transport does not tell of its window")
        if trace.stalls_s.size == 0:
            return Statistic(none, "" if none is not None else "the window never stood still")
        return Statistic(of(trace.stalls_s, trace.rtt_s))

    return compute


def _early_rate(trace: PeerTrace) -> Statistic:
    if trace.received_s.size == 0:
        return Statistic(None, "nothing was received")
    if trace.end_s < EARLY_S:
        return Statistic(None, f"the run ends before {EARLY_S:g} s of the transfer have passed")
    return Statistic(trace.received_by(EARLY_S) / EARLY_S)


def _transfer_metric(
    name: str,
    label: str,
    unit: str,
    better: Literal["lower", "higher", ""],
    headline: bool,
    compute: Callable[[PeerTrace], Statistic],
) -> Metric:
    return Metric(name, label, unit, better, "class", headline, _of_transfer(compute), _is_transfer)


TRANSFER_METRICS: tuple[Metric, ...] = (
    _transfer_metric(
        "slow_start_s", "Time to leave slow start", "s", "lower", True, _left_slow_start
    ),
    _transfer_metric(
        "request_slow_start_s",
        "Time to leave the requests' slow start",
        "s",
        "",
        False,
        _left_request_slow_start,
    ),
    _transfer_metric(
        "window_stall_max_s",
        "Longest stall of the congestion window",
        "s",
        "lower",
        True,
        _stalls(lambda stalls_s, rtt_s: float(stalls_s.max()), 0.0),
    ),
    _transfer_metric(
        "window_stall_p50_s",
        "Stall of the congestion window, median",
        "s",
        "lower",
        False,
        _stalls(lambda stalls_s, rtt_s: float(np.median(stalls_s)), None),
    ),
    _transfer_metric(
        "window_long_stalls_s",
        "All stalls longer than 1.5 round trips",
        "s",
        "lower",
        False,
        _stalls(
            lambda stalls_s, rtt_s: float(stalls_s[stalls_s > LONG_STALL_RTTS * rtt_s].sum()), 0.0
        ),
    ),
    _transfer_metric(
        "early_rate_bytes_per_s",
        "Received in the first 5 s",
        "B/s",
        "higher",
        True,
        _early_rate,
    ),
)
"""Metrics of a transfer between peers (docs/explanation/slowstart.md)."""


def _is_relayed(data: ClassData) -> bool:
    return data.relayed is not None


def _of_relayed(compute: Callable[[Relayed], Statistic]) -> Callable[[ClassData], Statistic]:
    def of_class(data: ClassData) -> Statistic:
        if data.relayed is None or not data.relayed.time_s.size:
            return Statistic(None, "no cell was relayed in the measured span")
        return compute(data.relayed)

    return of_class


def _cell_time(q: float) -> Callable[[Relayed], Statistic]:
    return lambda cells: Statistic(float(np.quantile(cells.total_ms, q)) / 1000)


def _quiet_longer(cells: Relayed) -> Statistic:
    quiet, busy = (cells.circuits.members(group) for group in (Group.QUIET, Group.BUSY))
    if not busy.any():
        return Statistic(None, "no circuit has more cells than the quiet ones")
    return Statistic(chance_longer(cells.total_ms[quiet], cells.total_ms[busy]))


def _flush_share(cells: Relayed) -> Statistic:
    total_ms = float(cells.total_ms.sum())
    if total_ms == 0:
        return Statistic(None, "no cell was inside for any time")
    return Statistic(float(cells.stages_ms[Stage.OUTBUF_FLUSH].sum()) / total_ms)


SPIKE_S = (40.0, 50.0)
"""`Roughly every 45 seconds`, as the text of 2019 has it."""


def _spike(cells: Relayed) -> Statistic:
    found = delay_autocorrelation(cells.time_s, cells.total_ms)
    if found is None:
        return Statistic(None, f"cells came in for less than {LEAST_SPAN_S} s, or all took as long")
    lags, strength = found
    inside = (lags >= SPIKE_S[0]) & (lags <= SPIKE_S[1])
    # A period of half or a third as long shows up there too, but more at its own lag.
    rival = max(cells.noise, float(strength[~inside].max()))
    return Statistic(max(0.0, float(strength[inside].max())) / rival)


def _relayed_metric(
    name: str,
    label: str,
    unit: str,
    better: Literal["lower", ""],
    compute: Callable[[Relayed], Statistic],
) -> Metric:
    return Metric(name, label, unit, better, "class", False, _of_relayed(compute), _is_relayed)


CELL_METRICS: tuple[Metric, ...] = (
    _relayed_metric(
        "cell_time_p50_s", "Time of cells inside a relay, median", "s", "lower", _cell_time(0.5)
    ),
    _relayed_metric(
        "cell_time_p99_s", "Time of cells inside a relay, p99", "s", "lower", _cell_time(0.99)
    ),
    _relayed_metric(
        "cell_quiet_longer",
        "Chance that a quiet circuit's cell is inside longer than a busy one's",
        "1",
        "",
        _quiet_longer,
    ),
    _relayed_metric(
        "cell_flush_share", "Share of that time from outbuf to kernel", "1", "", _flush_share
    ),
    _relayed_metric(
        "cell_spike_45s",
        "Autocorrelation of delays over 40 s to 50 s, against other lags and noise",
        "1",
        "",
        _spike,
    ),
)
"""Metrics of cells inside traced relays; their classes are roles of relays.

Definitions: docs/explanation/celltrace.md.
"""

METRICS: tuple[Metric, ...] = _metrics() + TRANSFER_METRICS + CELL_METRICS


FAIRNESS = (
    "jain_index_clients",
    "starved_share",
    *(f"longest_gap_p{round(100 * q)}_s" for q in QUANTILES),
)
"""The metrics of fairness, which the report shows together."""


def run_statistics(classes: Mapping[str, ClassData]) -> dict[tuple[str, str], Statistic]:
    """All metrics of one run: (class, metric) -> statistic. ``classes`` may hold ``ALL``."""
    return {
        (name, metric.name): metric.compute(data)
        for name, data in classes.items()
        for metric in METRICS
        if (name != ALL or metric.scope == "both") and metric.when(data)
    }


def throughput_over_time(data: ClassData, grid_s: Floats) -> Floats:
    """Moving average of throughput at each grid time, bytes per second, shape of the grid."""
    if data.beats.end_s.size == 0:
        return np.full(grid_s.shape, np.nan)
    low, high = float(data.beats.begin_s.min()), float(data.beats.end_s.max())
    beats = data.beats
    return moving_average(grid_s, beats.begin_s, beats.end_s, beats.bytes_read, WINDOW_S, low, high)


def timeouts_over_time(data: ClassData, grid_s: Floats) -> Floats:
    """How many of the measured streams had timed out by each grid time, shape of the grid."""
    streams = data.measured
    return count_by(grid_s, streams.end_s[streams.outcome == Outcome.TIMEOUT])


def duration_quantiles(data: ClassData, name: str, shares: Floats) -> Floats:
    """When each share of streams was there, by the cumulative incidence; NaN where it never was."""
    curve, _ = duration_curve(data, name, "incidence")
    if curve is None:
        return np.full(shares.shape, np.nan)
    times = [curve.quantile(float(share)) for share in shares]
    return np.array([np.nan if time is None else time for time in times])


def duration_over_grid(data: ClassData, name: str, grid_s: Floats) -> Floats:
    """Cumulative incidence of a duration at each grid time; NaN where there is none."""
    curve, _ = duration_curve(data, name, "incidence")
    return np.full(grid_s.shape, np.nan) if curve is None else curve.at(grid_s)
