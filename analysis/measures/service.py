"""Amounts over time, fairness between clients, and service gaps (times without a byte) of streams.

docs/reference/metrics.md has the definitions. The fairness index is from Jain, Chiu and Hawe
(1984), DEC TR-301.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Bools, Floats, Ints

STARVED_S = 10.0
"""A stream that gets no byte for this long is starved. People wait for about this long."""


def jain_index(amounts: ArrayLike) -> float | None:
    """Return Jain's index of n amounts x: (sum x)^2 / (n sum x^2).

    The index is 1 if all amounts are equal, and 1/n if all but one are zero.

    amounts: shape (n,), >= 0. The index is None without amounts, or if all are zero.
    """
    x = np.asarray(amounts, dtype=np.float64)
    largest = float(x.max(initial=0.0))
    if largest == 0:
        return None
    # Divide by the largest amount: this does not change the index, and squares cannot overflow.
    share = x / largest
    return float(share.sum() ** 2 / (share.size * np.sum(share**2)))


def cumulative_at(
    grid_s: ArrayLike, begin_s: ArrayLike, end_s: ArrayLike, amount: ArrayLike
) -> Floats:
    """Return the cumulative amount at each grid time, spreading amounts evenly over (begin, end].

    Args:
        grid_s: shape (g,), like the result.
        begin_s: shape (n,), start of each counting interval.
        end_s: shape (n,), end of each counting interval. If it is not later than the start, the
            amount is added at this instant.
        amount: shape (n,), the amount of each counting interval.
    """
    grid = np.asarray(grid_s, dtype=np.float64)
    begin = np.asarray(begin_s, dtype=np.float64)
    end = np.asarray(end_s, dtype=np.float64)
    value = np.asarray(amount, dtype=np.float64)
    instant = end <= begin
    order = np.argsort(end[instant], kind="stable")
    steps = np.concatenate(([0.0], np.cumsum(value[instant][order])))
    total: Floats = steps[np.searchsorted(end[instant][order], grid, side="right")]
    # Each interval adds the slope value/length at its begin and removes this slope at its end. The
    # sum is therefore piecewise linear, and one interpolation over the sorted changes of slope
    # suffices.
    begin, end, value = begin[~instant], end[~instant], value[~instant]
    if value.size == 0:
        return total
    slope = value / (end - begin)
    at = np.concatenate((begin, end))
    change = np.concatenate((slope, -slope))
    order = np.argsort(at, kind="stable")
    at, change = at[order], change[order]
    rate = np.cumsum(change)[:-1]
    height = np.concatenate(([0.0], np.cumsum(rate * np.diff(at))))
    return total + np.interp(grid, at, height)


def amount_by_client(
    client: Ints, begin_s: Floats, end_s: Floats, amount: Floats, low_s: float, high_s: float
) -> Floats:
    """Return the amount of each client in [low, high], spreading amounts over their intervals.

    Args:
        client: shape (n,), code of the client of each counting interval.
        begin_s: shape (n,), start of each counting interval.
        end_s: shape (n,), end of each counting interval. If it is not later than the start, the
            amount belongs to this instant.
        amount: shape (n,), the amount of each counting interval.
        low_s: start of the span.
        high_s: end of the span.

    Returns:
        A value for each client with an interval, ordered by code.
    """
    length = end_s - begin_s
    inside = np.clip(np.minimum(end_s, high_s) - np.maximum(begin_s, low_s), 0.0, None)
    instant = length <= 0
    share = np.where(
        instant, (end_s > low_s) & (end_s <= high_s), inside / np.where(instant, 1.0, length)
    )
    _, place = np.unique(client, return_inverse=True)
    return np.bincount(place, weights=amount * share).astype(np.float64)


def longest_gaps(
    client: Ints,
    start_s: Floats,
    end_s: Floats,
    first_byte_s: Floats,
    beat_client: Ints,
    beat_begin_s: Floats,
    beat_end_s: Floats,
    beat_bytes: Floats,
) -> Floats:
    """Return each stream's longest time without a byte, between its start and its end, in seconds.

    The wait for the first byte is exact. Later gaps are sequences of heartbeat intervals in which
    the client read nothing. They are underestimated by at most two heartbeat intervals.

    Args:
        client: shape (n,), codes of the streams' clients.
        start_s: shape (n,).
        end_s: shape (n,), end of the stream or of its observation.
        first_byte_s: shape (n,), time from the start to the first byte; NaN without a byte.
        beat_client: shape (m,), codes of the heartbeats' clients.
        beat_begin_s: shape (m,), start of each heartbeat interval.
        beat_end_s: shape (m,), end of each heartbeat interval.
        beat_bytes: shape (m,), bytes read in each heartbeat interval.

    Returns:
        Shape (n,). A gap is NaN if the client had another stream at the same time, because
        heartbeats count the bytes of both, or if the client has no heartbeat.
    """
    gaps = np.full(start_s.shape, np.nan)
    for code in np.unique(client):
        own = np.flatnonzero(client == code)
        beats = np.flatnonzero(beat_client == code)
        if beats.size == 0:
            continue
        beats = beats[np.argsort(beat_end_s[beats], kind="stable")]
        begin, end = beat_begin_s[beats], beat_end_s[beats]
        silent = beat_bytes[beats] <= 0
        for i in own[_alone(start_s[own], end_s[own])]:
            waited = end_s[i] - start_s[i]
            first = min(first_byte_s[i], waited) if np.isfinite(first_byte_s[i]) else waited
            low = np.searchsorted(begin, start_s[i] + first, side="left")
            high = np.searchsorted(end, end_s[i], side="right")
            gaps[i] = max(first, _longest_run(silent[low:high], begin[low:high], end[low:high]))
    return gaps


def _alone(start_s: Floats, end_s: Floats) -> Bools:
    """Return whether each stream overlaps with no other stream of its client, shape (n,)."""
    order = np.argsort(start_s, kind="stable")
    start, end = start_s[order], end_s[order]
    before = np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1]))
    after = np.concatenate((start[1:], [np.inf]))
    alone = np.empty(start.shape, dtype=np.bool_)
    alone[order] = (before <= start) & (end <= after)
    return alone


def _longest_run(silent: Bools, begin_s: Floats, end_s: Floats) -> float:
    """Return the length of the longest sequence of silent intervals; 0 without such an interval."""
    edges = np.diff(np.concatenate(([False], silent, [False])).astype(np.int8))
    first, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return float(np.max(end_s[last] - begin_s[first], initial=0.0))
