"""Downloads that a client makes side by side: who is served when. Arrays in, numbers out.

Definitions: docs/explanation/starvation.md. Index of fairness: Jain, Chiu and Hawe (1984), DEC
TR-301.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.arrays import Floats
from analysis.measures.service import jain_index

JAIN_WINDOW_S = 10.0
"""Width of the windows that the index of fairness is taken over."""

STEP_S = 1.0
"""Between the points of a curve of bytes over time."""

LAST = 3
"""How many of the newest streams the mail of 2010 sees served while the others starve."""


@dataclass(frozen=True)
class Download:
    """One stream of a client.

    Attributes:
        start_s: when it was created.
        end_s: when it ended, or when the observation of it did.
        done_s: when its last byte came; None if it did not.
        size_bytes: how much it asked for.
        time_s: shape (n,), ascending: when bytes came, from the start on.
        received_bytes: shape (n,), how many had come by then; 0 at the start.
        known_gap_s: the longest gap, where ``time_s`` does not tell it: in a published pack it has
            the times alone at which somebody asks (``asked_times``).
    """

    start_s: float
    end_s: float
    done_s: float | None
    size_bytes: float
    time_s: Floats
    received_bytes: Floats
    known_gap_s: float | None = None

    def received_at(self, grid_s: Floats) -> Floats:
        """Bytes received by each time of a grid; 0 before the start. Shape of the grid."""
        place = np.searchsorted(self.time_s, grid_s, side="right")
        return np.concatenate(([0.0], self.received_bytes))[place]

    @property
    def longest_gap_s(self) -> float:
        """The longest time without a byte, from the start to the last byte or to the end."""
        if self.known_gap_s is not None:
            return self.known_gap_s
        last = self.end_s if self.done_s is None else self.done_s
        times = np.concatenate((self.time_s[self.time_s < last], [last]))
        return float(np.max(np.diff(times), initial=0.0))


Downloads = Sequence[Download]
"""One client's downloads, oldest first."""


def download(
    start_s: float,
    end_s: float,
    done_s: float | None,
    size_bytes: float,
    time_s: Floats,
    received_bytes: Floats,
    known_gap_s: float | None = None,
) -> Download:
    """A download from what the logs tell of it.

    Args:
        start_s: when it was created.
        end_s: end of the stream, or of its observation.
        done_s: when its last byte came, or None.
        size_bytes: how much it asked for.
        time_s: shape (n,), ascending: when how much had come; none need be at start or end.
        received_bytes: shape (n,).
        known_gap_s: see ``Download``.
    """
    times = np.concatenate(([start_s], np.maximum(time_s, start_s)))
    received = np.concatenate(([0.0], np.minimum(received_bytes, size_bytes)))
    if done_s is not None:
        keep = times < done_s
        times = np.concatenate((times[keep], [done_s]))
        received = np.concatenate((received[keep], [size_bytes]))
    received = np.maximum.accumulate(received)
    return Download(start_s, end_s, done_s, size_bytes, times, received, known_gap_s)


def first_done_s(downloads: Downloads) -> float | None:
    """When the first of the downloads was complete; None if none was."""
    done = [one.done_s for one in downloads if one.done_s is not None]
    return min(done, default=None)


def shares_at(downloads: Downloads, time_s: float) -> Floats:
    """Which share of its size each download has by a time, shape (streams,)."""
    at = np.array([time_s])
    return np.array([float(one.received_at(at)[0]) / one.size_bytes for one in downloads])


def starvation(shares: Floats) -> float:
    """How much of its file the slowest stream lacked when the first one was complete.

    Args:
        shares: of each stream at that time, shape (n,), n >= 2.
    """
    return float(1.0 - shares.min())


def lead_of_last(shares: Floats, last: int = LAST) -> float | None:
    """By how much the newest streams are ahead of the others, in shares of a file.

    Args:
        shares: of each stream, oldest first, shape (n,).
        last: how many are the newest.

    Returns:
        1 if the newest have all and the others nothing, 0 if both have the same; None where there
        are no others.
    """
    if shares.size <= last:
        return None
    return float(shares[-last:].mean() - shares[:-last].mean())


def served(shares: Floats) -> float | None:
    """As how many equally served streams these count, n times Jain's index; None without bytes."""
    index = jain_index(shares)
    return None if index is None else index * shares.size


def completion_spread_s(downloads: Downloads) -> float | None:
    """Time from the first complete download to the last one; None if one is not complete."""
    done = [one.done_s for one in downloads]
    known = [one for one in done if one is not None]
    return max(known) - min(known) if known and len(known) == len(done) else None


def jain_edges(downloads: Downloads, window_s: float = JAIN_WINDOW_S) -> Floats:
    """Where the windows of ``jain_over_time`` begin and end, shape (m + 1,)."""
    return np.arange(max(one.start_s for one in downloads), _end_s(downloads) + window_s, window_s)


def curve_times(downloads: Downloads) -> Floats:
    """The points of a curve of bytes over time, from the first start to the last end."""
    return np.arange(min(one.start_s for one in downloads), _end_s(downloads) + STEP_S, STEP_S)


def asked_times(downloads: Downloads) -> Floats:
    """All times at which metrics and figures ask what the downloads had received, ascending."""
    first = first_done_s(downloads)
    done = [] if first is None else [first]
    return np.unique(np.concatenate((curve_times(downloads), jain_edges(downloads), done)))


def _end_s(downloads: Downloads) -> float:
    return max(one.end_s if one.done_s is None else one.done_s for one in downloads)


def jain_over_time(downloads: Downloads, window_s: float = JAIN_WINDOW_S) -> tuple[Floats, Floats]:
    """Jain's index over what the streams get in one window after the other.

    Of a window those streams count that are in progress in all of it; it takes two of them, and a
    byte for at least one.

    Returns:
        The windows' middles and the index, both of shape (m,).
    """
    ends = [one.end_s if one.done_s is None else one.done_s for one in downloads]
    edges = jain_edges(downloads, window_s)
    received = np.array([one.received_at(edges) for one in downloads])
    middles, indices = [], []
    for k, (low, high) in enumerate(pairwise(edges)):
        busy = np.array([end >= high for end in ends])
        if busy.sum() < 2:
            continue
        index = jain_index(received[busy, k + 1] - received[busy, k])
        if index is not None:
            middles.append((low + high) / 2)
            indices.append(index)
    return np.array(middles), np.array(indices)
