"""Parallel downloads of a client, and how the received bytes are divided among them.

docs/explanation/starvation.md defines the quantities. The fairness index is from Jain, Chiu and
Hawe (1984), DEC TR-301.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from analysis.arrays import Floats
from analysis.measures.service import jain_index

JAIN_WINDOW_S = 10.0
"""Width of the windows for the fairness index."""

STEP_S = 1.0
"""Distance in time between the points of a curve of received bytes."""

LAST = 3
"""Number of newest streams whose lead over the other streams is measured.

In the mail that docs/explanation/starvation.md replicates, three streams starve the others.
"""


@dataclass(frozen=True)
class Download:
    """One stream of a client.

    Attributes:
        end_s: end of the stream or of its observation.
        done_s: time of the last byte; None if the download did not complete.
        size_bytes: requested payload.
        time_s: shape (n,), ascending: ``start_s``, then the times at which bytes arrived.
        received_bytes: shape (n,), the bytes received by each of these times; 0 at the start.
        known_gap_s: the longest time without a byte, if the download is from a published pack;
            otherwise None. A pack has to store this value, because its ``time_s`` contains only the
            times returned by ``asked_times``.
    """

    start_s: float
    end_s: float
    done_s: float | None
    size_bytes: float
    time_s: Floats
    received_bytes: Floats
    known_gap_s: float | None = None

    @classmethod
    def from_progress(
        cls,
        start_s: float,
        end_s: float,
        done_s: float | None,
        size_bytes: float,
        time_s: Floats,
        received_bytes: Floats,
        known_gap_s: float | None = None,
    ) -> Self:
        """Create a download from logged progress, which may lack the start and the last byte."""
        times = np.concatenate(([start_s], np.maximum(time_s, start_s)))
        received = np.concatenate(([0.0], np.minimum(received_bytes, size_bytes)))
        if done_s is not None:
            keep = times < done_s
            times = np.concatenate((times[keep], [done_s]))
            received = np.concatenate((received[keep], [size_bytes]))
        received = np.maximum.accumulate(received)
        return cls(start_s, end_s, done_s, size_bytes, times, received, known_gap_s)

    @property
    def finish_s(self) -> float:
        """Time of the last byte, or ``end_s`` if the download did not complete."""
        return self.end_s if self.done_s is None else self.done_s

    def received_at(self, grid_s: Floats) -> Floats:
        """Return the number of bytes that had arrived at each time in ``grid_s``.

        The number is 0 before the start.
        """
        place = np.searchsorted(self.time_s, grid_s, side="right")
        return np.concatenate(([0.0], self.received_bytes))[place]

    @property
    def longest_gap_s(self) -> float:
        """The longest time without a byte, from ``start_s`` to ``finish_s``."""
        if self.known_gap_s is not None:
            return self.known_gap_s
        times = np.append(self.time_s[self.time_s < self.finish_s], self.finish_s)
        return float(np.max(np.diff(times), initial=0.0))


Downloads = Sequence[Download]
"""The downloads of one client, oldest first."""


def first_done_s(downloads: Downloads) -> float | None:
    """Return when the first download completed; None if none did."""
    done = [one.done_s for one in downloads if one.done_s is not None]
    return min(done, default=None)


def shares_at(downloads: Downloads, time_s: float) -> Floats:
    """Return, for each download, the share of its size received by ``time_s``; shape (streams,)."""
    at = np.array([time_s])
    return np.array([float(one.received_at(at)[0]) / one.size_bytes for one in downloads])


def starvation(shares: Floats) -> float:
    """Return the missing share of the slowest stream when the first stream completes.

    shares: for each stream, the share of its size received by this time, shape (n,), n >= 2.
    """
    return float(1.0 - shares.min())


def lead_of_last(shares: Floats) -> float | None:
    """Return the mean share of the newest ``LAST`` streams minus that of all other streams.

    It is 1 if the newest streams have everything and the others nothing, and None if there are no
    other streams. shares: as in ``starvation``, oldest stream first.
    """
    if shares.size <= LAST:
        return None
    return float(shares[-LAST:].mean() - shares[:-LAST].mean())


def served(shares: Floats) -> float | None:
    """Return n times Jain's index of the n shares; None if no stream has received a byte."""
    index = jain_index(shares)
    return None if index is None else index * shares.size


def completion_spread_s(downloads: Downloads) -> float | None:
    """Return the time from the first completion to the last; None if a download is incomplete."""
    done = [one.done_s for one in downloads]
    known = [one for one in done if one is not None]
    return max(known) - min(known) if known and len(known) == len(done) else None


def jain_edges(downloads: Downloads) -> Floats:
    """Return the edges of ``jain_over_time``'s windows, from the newest stream's start."""
    end_s = max(one.finish_s for one in downloads)
    return np.arange(max(one.start_s for one in downloads), end_s + JAIN_WINDOW_S, JAIN_WINDOW_S)


def curve_times(downloads: Downloads) -> Floats:
    """Return the times of a curve of bytes over time, from the first start to the last end."""
    end_s = max(one.finish_s for one in downloads)
    return np.arange(min(one.start_s for one in downloads), end_s + STEP_S, STEP_S)


def asked_times(downloads: Downloads) -> Floats:
    """Return all times at which metrics and figures need the received bytes, ascending."""
    first = first_done_s(downloads)
    done = [] if first is None else [first]
    return np.unique(np.concatenate((curve_times(downloads), jain_edges(downloads), done)))


def jain_over_time(downloads: Downloads) -> tuple[Floats, Floats]:
    """Return Jain's index over the bytes that the streams receive in consecutive windows.

    The index of a window is over the streams that are in progress during the whole window. Windows
    with fewer than two such streams, or without any bytes, are omitted.

    Returns:
        The centres of the windows, and the fairness index of each window; both of shape (m,).
    """
    ends = [one.finish_s for one in downloads]
    edges = jain_edges(downloads)
    received = np.array([one.received_at(edges) for one in downloads])
    found = []
    for (low, high), got in zip(pairwise(edges), np.diff(received).T, strict=True):
        busy = np.array([end >= high for end in ends])
        index = jain_index(got[busy]) if busy.sum() > 1 else None
        if index is not None:
            found.append(((low + high) / 2, index))
    middles, indices = np.array(found).reshape(-1, 2).T
    return middles, indices
