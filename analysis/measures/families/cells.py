"""Metrics of cells inside traced relays.

Each role of relays, such as guard, takes the place of a class of clients.
docs/explanation/celltrace.md has the definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from analysis.celltrace.queueing import ServiceInstants, Waits
from analysis.celltrace.statistics import (
    MIN_SPAN_S,
    Group,
    Relayed,
    Stage,
    chance_longer,
    delay_autocorrelation,
)
from analysis.measures.data import ClassData
from analysis.measures.metric import NUMBER, SHARE, TIME, Metric, Statistic, time_at

SPIKE_S = (40.0, 50.0)
"""Span of lags, in seconds, at which the autocorrelation of delays is expected to have a peak.

The measurement from 2019 that docs/explanation/celltrace.md replicates reports a spike of the
delays "roughly every 45 seconds".
"""


_Metric = partial(Metric, when=lambda data: data.relayed is not None, drawn=True)


def _relayed_statistic(compute: Callable[[Relayed], Statistic]) -> Callable[[ClassData], Statistic]:
    def compute_class(data: ClassData) -> Statistic:
        if data.relayed is None or not data.relayed.time_s.size:
            return Statistic(None, "no cell was relayed in the measured span")
        return compute(data.relayed)

    return compute_class


def _cell_time(q: float) -> Callable[[ClassData], Statistic]:
    return _relayed_statistic(lambda cells: Statistic(float(np.quantile(cells.total_ms, q)) / 1000))


@_relayed_statistic
def _quiet_longer(cells: Relayed) -> Statistic:
    quiet, busy = (cells.members(group) for group in (Group.QUIET, Group.BUSY))
    if not busy.any():
        return Statistic(None, "no circuit has more cells than the quiet ones")
    return Statistic(chance_longer(cells.total_ms[quiet], cells.total_ms[busy]))


@_relayed_statistic
def _flush_share(cells: Relayed) -> Statistic:
    total_ms = float(cells.total_ms.sum())
    if total_ms == 0:
        return Statistic(None, "no cell spent any time inside a relay")
    return Statistic(float(cells.stages_ms[Stage.OUTBUF_FLUSH].sum()) / total_ms)


@_relayed_statistic
def _spike(cells: Relayed) -> Statistic:
    found = delay_autocorrelation(cells.time_s, cells.total_ms)
    if found is None:
        return Statistic(
            None, f"cells arrived for less than {MIN_SPAN_S} s, or all took equally long"
        )
    lags, strength = found
    inside = (lags >= SPIKE_S[0]) & (lags <= SPIKE_S[1])
    # Delays with a period of 45 s / 2 or 45 s / 3 also have a peak within SPIKE_S, but the peak at
    # the lag of the period is higher. So divide the peak within SPIKE_S by the peak outside.
    rival = max(cells.noise, float(strength[~inside].max()))
    return Statistic(max(0.0, float(strength[inside].max())) / rival)


NOT_SENT = Statistic(None, "no cell went towards a client in the measured span")


def _served_statistic(
    compute: Callable[[ServiceInstants], float],
) -> Callable[[ClassData], Statistic]:
    def compute_class(data: ClassData) -> Statistic:
        if data.served is None or not data.served.cells.size:
            return NOT_SENT
        return Statistic(compute(data.served))

    return compute_class


@_served_statistic
def _cells_at_once(instants: ServiceInstants) -> float:
    return float(np.average(instants.cells, weights=instants.cells))


@_served_statistic
def _circuits_waiting(instants: ServiceInstants) -> float:
    return float(np.average(instants.waiting, weights=instants.cells))


NO_ARRIVALS = Statistic(None, "the records lack arrival times of cells: extract them again")
"""Used for records of an older version, which did not extract the arrivals of cells."""


def _waits_statistic(compute: Callable[[Waits], Statistic]) -> Callable[[ClassData], Statistic]:
    def compute_class(data: ClassData) -> Statistic:
        if data.waits is None or not data.waits.queue_s.size:
            return NOT_SENT
        return compute(data.waits)

    return compute_class


@_waits_statistic
def _kernel_wait(waits: Waits) -> Statistic:
    if waits.kernel_s is None:
        return NO_ARRIVALS
    if waits.kernel_mean_s is None:
        share = waits.known_kernel_s.size / waits.queue_s.size
        return Statistic(None, f"traced relays read {share:.1%} of its cells towards clients")
    return Statistic(waits.kernel_mean_s)


METRICS: tuple[Metric, ...] = (
    _Metric(
        "cell_time_p50_s", "Time of cells inside a relay, median", "s", "lower", time_at(0.5),
        _cell_time(0.5),
    ),
    _Metric(
        "cell_time_p99_s", "Time of cells inside a relay, p99", "s", "lower", time_at(0.99),
        _cell_time(0.99),
    ),
    _Metric(
        "cell_quiet_longer",
        "Chance that a quiet circuit's cell is inside longer than a busy one's", "1", "", SHARE,
        _quiet_longer,
    ),
    _Metric(
        "cell_flush_share", "Share of that time from outbuf to kernel", "1", "", SHARE,
        _flush_share,
    ),
    _Metric(
        "cell_spike_45s",
        "Autocorrelation of delays over 40 s to 50 s, against other lags and noise", "1", "",
        NUMBER, _spike,
    ),
    _Metric(
        "cells_at_once", "Cells that a channel is given in one instant, with this one", "1", "",
        NUMBER, _cells_at_once,
    ),
    _Metric(
        "circuits_waiting", "Circuits that wait at a channel when a cell is served, with its own",
        "1", "", NUMBER, _circuits_waiting,
    ),
    _Metric(
        "cell_queue_wait_mean_s", "Wait of cells towards clients in their circuit's queue, mean",
        "s", "lower", TIME, _waits_statistic(lambda waits: Statistic(float(waits.queue_s.mean()))),
    ),
    _Metric(
        "cell_outbuf_wait_mean_s", "Wait of cells towards clients in the outbuf, mean", "s",
        "lower", TIME, _waits_statistic(lambda waits: Statistic(float(waits.outbuf_s.mean()))),
    ),
    _Metric(
        "cell_kernel_wait_mean_s",
        "Wait of cells towards clients from the kernel to the next relay, mean", "s", "lower", TIME,
        _kernel_wait,
    ),
)  # fmt: skip
