"""Metrics of a transfer between two peers (docs/explanation/slowstart.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.measures.data import ClassData
from analysis.measures.metric import TIME, WHOLE, Metric, Statistic
from analysis.measures.peer_transfer import EARLY_S, LONG_STALL_RTTS, PeerTransfer

_Metric = partial(Metric, when=lambda data: data.transfer is not None)


def _transfer_statistic(
    compute: Callable[[PeerTransfer], Statistic],
) -> Callable[[ClassData], Statistic]:
    def compute_class(data: ClassData) -> Statistic:
        if data.transfer is None:
            return Statistic(None, "no transfer between peers")
        return compute(data.transfer)

    return compute_class


@_transfer_statistic
def _left_slow_start(transfer: PeerTransfer) -> Statistic:
    if transfer.utp_s.size == 0:
        return Statistic(None, "the transport does not log its slow start")
    left_s = transfer.left_slow_start_s
    return Statistic(left_s, "" if left_s is not None else "slow start lasts until the run's end")


@_transfer_statistic
def _left_request_slow_start(transfer: PeerTransfer) -> Statistic:
    left_s = transfer.left_request_slow_start_s
    if left_s is not None:
        return Statistic(left_s)
    if transfer.request_slow_start.any():
        return Statistic(None, "the slow start of requests lasts until the run's end")
    return Statistic(None, "its requests have no slow start")


def _stall_statistic(
    compute_stall: Callable[[Floats, float], float], without: float | None
) -> Callable[[ClassData], Statistic]:
    """Return a function that applies ``compute_stall`` to a transfer's stalls and round-trip time.

    Both are in seconds. ``without`` is the statistic's value if the window never stalled.
    """

    @_transfer_statistic
    def compute(transfer: PeerTransfer) -> Statistic:
        if transfer.utp_s.size == 0:
            return Statistic(None, "the transport does not log its window")
        if transfer.stalls_s.size == 0:
            return Statistic(without, "" if without is not None else "the window never stalled")
        return Statistic(compute_stall(transfer.stalls_s, transfer.rtt_s))

    return compute


@_transfer_statistic
def _early_rate(transfer: PeerTransfer) -> Statistic:
    if transfer.received_s.size == 0:
        return Statistic(None, "nothing was received")
    if transfer.end_s < EARLY_S:
        return Statistic(None, f"the run ends before {EARLY_S:g} s of the transfer have passed")
    return Statistic(transfer.received_by(EARLY_S) / EARLY_S)


def _long_stalls(stalls_s: Floats, rtt_s: float) -> float:
    return float(stalls_s[stalls_s > LONG_STALL_RTTS * rtt_s].sum())


METRICS: tuple[Metric, ...] = (
    _Metric(
        "slow_start_s", "Time to leave slow start", "s", "lower", TIME, _left_slow_start,
        headline=True,
    ),
    _Metric(
        "request_slow_start_s", "Time to leave the requests' slow start", "s", "", TIME,
        _left_request_slow_start,
    ),
    _Metric(
        "window_stall_max_s", "Longest stall of the congestion window", "s", "lower", TIME,
        _stall_statistic(lambda stalls_s, rtt_s: float(stalls_s.max()), 0.0), headline=True,
    ),
    _Metric(
        "window_stall_p50_s", "Stall of the congestion window, median", "s", "lower", TIME,
        _stall_statistic(lambda stalls_s, rtt_s: float(np.median(stalls_s)), None),
    ),
    _Metric(
        "window_long_stalls_s", "All stalls longer than 1.5 round trips", "s", "lower", TIME,
        _stall_statistic(_long_stalls, 0.0),
    ),
    _Metric(
        "early_rate_bytes_per_s", "Received in the first 5 s", "B/s", "higher", WHOLE, _early_rate,
        headline=True,
    ),
)  # fmt: skip
