"""One transfer between two BitTorrent peers as arrays, and the quantities measured on it.

Times count from the moment at which the seed is connected. docs/explanation/slowstart.md has the
definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Floats
from analysis.records.peerlog import ENDS

BLOCK_BYTES = 16_384
"""Payload that one request asks for."""

STALL_RTTS = 0.5
"""Minimum length of a stall, in round-trip times.

In a shorter pause, the sender only waits for the next acknowledgement.
"""

LONG_STALL_RTTS = 1.5
"""A stall that exceeds this number of round-trip times is long.

Waiting for an acknowledgement takes about one round trip. In a longer stall the sender presumably
had nothing to send, because the downloader had requested too little.
"""

EARLY_S = 5.0
"""Length of the first part of a transfer, over which the early rate is measured."""


@dataclass(frozen=True)
class PeerTransfer:
    """The logs of a seed and its downloader for one transfer.

    Attributes:
        rtt_s: round-trip time of the idle path.
        end_s: end of the logs.
        utp_s: times of the seed's log lines on uTP, shape (n,); empty over TCP.
        window_bytes: congestion window, shape (n,).
        in_flight_bytes: maximum payload in flight since the previous line, shape (n,).
        event: the reason for the line (``peerlog.UtpEvent``), shape (n,).
        requests_s: times of the downloader's lines about requests, shape (m,).
        target_requests: target number of outstanding requests, in blocks, shape (m,).
        outstanding_requests: actual number of outstanding requests, shape (m,).
        request_slow_start: whether the target grows with each block, shape (m,).
        received_s: times of the downloader's byte counts, shape (k,).
        received_bytes: cumulative payload, shape (k,).
    """

    rtt_s: float
    end_s: float
    utp_s: Floats
    window_bytes: Floats
    in_flight_bytes: Floats
    event: NDArray[np.str_]
    requests_s: Floats
    target_requests: Floats
    outstanding_requests: Floats
    request_slow_start: NDArray[np.bool_]
    received_s: Floats
    received_bytes: Floats

    @cached_property
    def left_slow_start_s(self) -> float | None:
        """When the transport first left slow start; None if never.

        It leaves slow start by delay, by loss or at the threshold.
        """
        ends = np.flatnonzero(np.isin(self.event, [end.value for end in ENDS]))
        return float(self.utp_s[ends[0]]) if ends.size else None

    @cached_property
    def left_request_slow_start_s(self) -> float | None:
        """When the target number of requests first stopped growing with each block.

        None if the target never grew with each block, or never stopped doing so.
        """
        grew = np.flatnonzero(self.request_slow_start)
        if grew.size == 0:
            return None
        after = np.flatnonzero(~self.request_slow_start[grew[0] :])
        return float(self.requests_s[grew[0] + after[0]]) if after.size else None

    @cached_property
    def stalls_s(self) -> Floats:
        """Durations of at least ``STALL_RTTS`` in which the window did not grow, shape (s,).

        Each lasts from one growth of the window to the next. Only slow start counts: the first
        duration begins with the connection, and the last ends with slow start, or with the logs if
        slow start never ends.
        """
        end_s = self.end_s if self.left_slow_start_s is None else self.left_slow_start_s
        inside = self.utp_s <= end_s
        times_s, window = self.utp_s[inside], self.window_bytes[inside]
        grew_s = times_s[1:][np.diff(window) > 0]
        gaps_s = np.diff(np.concatenate(([0.0], grew_s, [end_s])))
        return gaps_s[gaps_s >= STALL_RTTS * self.rtt_s]

    def received_by(self, time_s: float) -> float:
        """Return the payload received by ``time_s``, in bytes, interpolated between two counts."""
        return float(np.interp(time_s, [0.0, *self.received_s], [0.0, *self.received_bytes]))
