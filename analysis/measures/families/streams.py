"""Metrics of streams: throughput, outcomes and failures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.formats.columns import FAILURES, Outcome
from analysis.measures.data import ClassData
from analysis.measures.metric import NO_HEARTBEAT, RATE, WHOLE, Metric, Statistic, is_client_data
from analysis.measures.survival import CENSORED, EVENT, FAILURE, cumulative_incidence


def _goodput(data: ClassData) -> Statistic:
    read = data.bytes_read
    if read is None:
        return Statistic(None, data.unknown_bytes_reason or NO_HEARTBEAT)
    if read.end_s < data.end_s - 2 * read.beat_s:
        return Statistic(None, "the logs end before the measured span does")
    got = read.by(np.array([data.begin_s, data.end_s]))
    # Sums of interpolated counts are not exact, so without traffic they may descend slightly.
    return Statistic(max(0.0, float(got[1] - got[0])) / (data.end_s - data.begin_s))


def _started(data: ClassData) -> Statistic:
    return Statistic(float(data.measured.outcome.size))


def _share(outcomes: tuple[Outcome, ...]) -> Callable[[ClassData], Statistic]:
    def compute(data: ClassData) -> Statistic:
        outcome = data.measured.outcome
        bad = int(np.isin(outcome, [o.value for o in outcomes]).sum())
        good = int((outcome == Outcome.SUCCESS).sum())
        if bad + good == 0:
            return Statistic(None, "no stream with a known outcome")
        return Statistic(bad / (bad + good))

    return compute


def _timeout_incidence(data: ClassData) -> Statistic:
    streams = data.measured
    known = streams.outcome != Outcome.UNKNOWN
    outcome = streams.outcome[known]
    if outcome.size == 0:
        return Statistic(None, "no stream with a known outcome")
    observed_s = np.maximum(streams.end_s - streams.start_s, 0.0)[known]
    # The awaited event is the timeout here, and any other end competes with it.
    ended = np.where(outcome == Outcome.TIMEOUT, EVENT, FAILURE)
    curve = cumulative_incidence(observed_s, np.where(outcome == Outcome.OPEN, CENSORED, ended))
    return Statistic(float(curve.probability[-1]) if curve.probability.size else 0.0)


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


def _count_metric(outcome: Outcome, label: str) -> Metric:
    return Metric(
        f"{outcome.value.replace('-', '_')}_count", label, "streams",
        "higher" if outcome is Outcome.SUCCESS else "lower" if outcome in FAILURES else "",
        # Counts are not judged, because they depend on how many streams were started.
        None,
        lambda data: Statistic(float((data.measured.outcome == outcome).sum())), scope="both",
        # A figure of the SWRR paper counts timeouts, so the report shows their count and rate.
        headline=outcome is Outcome.TIMEOUT,
    )  # fmt: skip


METRICS: tuple[Metric, ...] = (
    Metric(
        "goodput_bytes_per_s", "Throughput", "B/s", "higher", WHOLE, _goodput, scope="both",
        headline=True, carried=True, when=is_client_data,
    ),
    Metric(
        "timeout_rate", "Timeout rate", "1", "lower", RATE, _share((Outcome.TIMEOUT,)),
        scope="both", headline=True, share_of=(Outcome.TIMEOUT,),
    ),
    Metric(
        "timeout_incidence", "Timeout probability (open streams censored)", "1", "lower", RATE,
        _timeout_incidence, scope="both", share_of=(Outcome.TIMEOUT,),
    ),
    Metric(
        "failure_rate", "Failure rate", "1", "lower", RATE, _share(FAILURES), scope="both",
        share_of=FAILURES,
    ),
    Metric(
        "streams_started", "Streams started", "streams", "", WHOLE, _started, scope="both",
    ),
    *(_count_metric(outcome, label) for outcome, label in _OUTCOME_LABELS.items()),
)  # fmt: skip
