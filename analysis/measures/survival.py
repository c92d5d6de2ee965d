"""Distributions of censored times.

The methods are those of Kaplan and Meier (1958) for right-censored times, and of Aalen and Johansen
(1978) for the cumulative incidence with competing risks. docs/reference/metrics.md lists the uses
of each method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats

CENSORED = 0
"""Observation ended before anything happened."""
EVENT = 1
"""The awaited event happened."""
FAILURE = 2
"""A competing event happened, which rules out the awaited event."""

_SLACK = 1e-9
"""Tolerance for rounding in tests of whether a probability reaches a value."""


@dataclass(frozen=True)
class Curve:
    """A right-continuous step function F(t), the probability that the event came by t.

    Attributes:
        times_s: shape (k,), increasing; the jumps of F.
        probability: shape (k,), F at and after each of ``times_s``; F is 0 before the first time.
        end_s: F is known up to this time: the longest observation, or infinity if no remaining
            observation can change F.
        count: number of observations behind the curve.
    """

    times_s: Floats
    probability: Floats
    end_s: float
    count: int

    def at(self, times_s: ArrayLike) -> Floats:
        """Return F at the given times; NaN after ``end_s``."""
        times = np.asarray(times_s, dtype=np.float64)
        steps = np.concatenate(([0.0], self.probability))
        values: Floats = steps[np.searchsorted(self.times_s, times, side="right")]
        return np.where(times <= self.end_s, values, np.nan)

    def quantile(self, q: float) -> float | None:
        """Return the smallest t with F(t) >= q, or None if the curve does not reach q."""
        reached = np.flatnonzero(self.probability >= q - _SLACK)
        return float(self.times_s[reached[0]]) if reached.size else None

    def restricted_mean(self, limit_s: float) -> float | None:
        """Return the mean of min(T, limit) for the time T of the event.

        The mean is the integral of 1 - F from 0 to the limit. Returns None if F is not known up to
        the limit.
        """
        if self.count == 0 or limit_s > self.end_s:
            return None
        inside = self.times_s < limit_s
        edges = np.concatenate(([0.0], self.times_s[inside], [limit_s]))
        survival = 1.0 - np.concatenate(([0.0], self.probability[inside]))
        return float(np.sum(survival * np.diff(edges)))


def cumulative_incidence(times_s: ArrayLike, kinds: ArrayLike) -> Curve:
    """Return the Aalen-Johansen estimate of the probability of EVENT by t, with FAILURE competing.

    This is the sum over t_i <= t of S(t_i-) d_i / n_i, with n_i observations still at risk at t_i,
    d_i events at t_i, and S the Kaplan-Meier estimate of the probability of neither event nor
    failure. Without CENSORED entries, it is the share of all observations whose event came by t.

    Args:
        times_s: shape (n,), each observation's event time or the end of its observation, >= 0.
        kinds: shape (n,), CENSORED, EVENT or FAILURE. Among equal times, censoring counts as later.
    """
    times = np.asarray(times_s, dtype=np.float64)
    kind = np.asarray(kinds, dtype=np.int64)
    if times.size == 0:
        return Curve(np.empty(0), np.empty(0), 0.0, 0)
    unique, place = np.unique(times, return_inverse=True)
    events = np.bincount(place[kind == EVENT], minlength=unique.size)
    failures = np.bincount(place[kind == FAILURE], minlength=unique.size)
    leaving = np.bincount(place, minlength=unique.size)
    at_risk = times.size - np.concatenate(([0], np.cumsum(leaving)[:-1]))
    survival = np.cumprod(1.0 - (events + failures) / at_risk)
    before = np.concatenate(([1.0], survival[:-1]))
    probability = np.cumsum(before * events / at_risk)
    jumps = events > 0
    none_at_risk = survival[-1] <= _SLACK
    end = float("inf") if none_at_risk else float(unique[-1])
    return Curve(unique[jumps], np.minimum(probability[jumps], 1.0), end, int(times.size))


def kaplan_meier(times_s: ArrayLike, kinds: ArrayLike) -> Curve:
    """Return the Kaplan-Meier estimate, with FAILURE treated as censoring."""
    kind = np.asarray(kinds, dtype=np.int64)
    return cumulative_incidence(times_s, np.where(kind == FAILURE, CENSORED, kind))
