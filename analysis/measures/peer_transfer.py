"""One transfer between two peers as arrays, and what is measured on it.

Times count from the moment at which the seed was connected. docs/explanation/slowstart.md has
the definitions in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analysis.arrays import Floats
from analysis.records.peerlog import ENDS

BLOCK_BYTES = 16_384
"""What one request asks for."""

STALL_RTTS = 0.5
"""A window that stands still for a shorter time waits for nothing but the next acknowledgement."""

LONG_STALL_RTTS = 1.5
"""A longer stall is not that of the round trip: nothing was asked for."""

EARLY_S = 5.0
"""How much of a transfer the early rate is taken over."""


@dataclass(frozen=True)
class PeerTransfer:
    """What the logs of a seed and of its downloader say about one transfer.

    Attributes:
        rtt_s: of the path without load.
        end_s: end of the logs.
        utp_s: times of the seed's uTP lines, shape (n,); empty over TCP.
        window_bytes: congestion window, shape (n,).
        in_flight_bytes: most payload in flight since the line before, shape (n,).
        event: why there is a line (``peerlog.UtpEvent``), shape (n,).
        requests_s: times of the downloader's lines about requests, shape (m,).
        target_requests: how many there were to be, in blocks, shape (m,).
        outstanding_requests: how many there were, shape (m,).
        request_slow_start: whether the target grew with each block, shape (m,).
        received_s: times at which the downloader counted, shape (k,).
        received_bytes: payload until then, shape (k,).
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
        """When the transport first left slow start: by delay, by a loss or at the threshold."""
        ends = np.flatnonzero(np.isin(self.event, [end.value for end in ENDS]))
        return float(self.utp_s[ends[0]]) if ends.size else None

    @cached_property
    def left_request_slow_start_s(self) -> float | None:
        """When the requests first stopped to grow with each block."""
        grew = np.flatnonzero(self.request_slow_start)
        if grew.size == 0:
            return None
        after = np.flatnonzero(~self.request_slow_start[grew[0] :])
        return float(self.requests_s[grew[0] + after[0]]) if after.size else None

    @cached_property
    def stalls_s(self) -> Floats:
        """How long the window stood still in slow start, each time that it did; shape (s,).

        From one growth to the next, the first from the connection on, the last to the end of slow
        start (or of the logs, where it never ended).
        """
        end_s = self.end_s if self.left_slow_start_s is None else self.left_slow_start_s
        inside = self.utp_s <= end_s
        times_s, window = self.utp_s[inside], self.window_bytes[inside]
        grew_s = times_s[1:][np.diff(window) > 0]
        gaps_s = np.diff(np.concatenate(([0.0], grew_s, [end_s])))
        return gaps_s[gaps_s >= STALL_RTTS * self.rtt_s]

    def received_by(self, time_s: float) -> float:
        """Payload that the downloader had by then, in bytes; between two counts, in proportion."""
        return float(
            np.interp(
                time_s,
                np.concatenate(([0.0], self.received_s)),
                np.concatenate(([0.0], self.received_bytes)),
            )
        )
