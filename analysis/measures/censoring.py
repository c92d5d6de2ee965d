"""Bias of the distribution of times of finished streams. Arrays in, numbers out.

The naive distribution of a time uses only the streams in which the event occurred. It omits failed
streams and those censored at the end of the run. docs/reference/metrics.md explains the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.measures.survival import (
    CENSORED,
    EVENT,
    FAILURE,
    Curve,
    cumulative_incidence,
    kaplan_meier,
)


@dataclass(frozen=True)
class Bias:
    """The naive distribution of a time in one run, compared with two unbiased estimates.

    Attributes:
        streams: number of streams.
        failed: number of streams that failed before the event.
        censored: number of streams censored before the event.
        distance: largest difference between the naive distribution and the cumulative incidence.
        naive: quantiles of the naive distribution, one per requested share; None if not reached.
        incidence: quantiles of the cumulative incidence.
        kaplan_meier: quantiles of the Kaplan-Meier estimate, with failures treated as censored.
    """

    streams: int
    failed: int
    censored: int
    distance: float
    naive: tuple[float | None, ...]
    incidence: tuple[float | None, ...]
    kaplan_meier: tuple[float | None, ...]


def naive_curve(times_s: ArrayLike, kinds: ArrayLike) -> Curve:
    """Return the distribution of the times of EVENT alone.

    The arguments are as for ``cumulative_incidence``.
    """
    times = np.asarray(times_s, dtype=np.float64)
    seen = times[np.asarray(kinds, dtype=np.int64) == EVENT]
    return cumulative_incidence(seen, np.full(seen.shape, EVENT))


def bias(times_s: ArrayLike, kinds: ArrayLike, shares: Sequence[float]) -> Bias | None:
    """Return the bias of the naive distribution.

    Args:
        times_s: shape (n,), as for ``cumulative_incidence``.
        kinds: shape (n,), as for ``cumulative_incidence``.
        shares: the quantiles to compute, in (0, 1].

    Returns:
        None if there is no EVENT.
    """
    kind = np.asarray(kinds, dtype=np.int64)
    naive = naive_curve(times_s, kind)
    if naive.count == 0:
        return None
    incidence = cumulative_incidence(times_s, kind)
    km = kaplan_meier(times_s, kind)
    # Both curves jump only at the times of EVENT, so comparing them there is sufficient.
    return Bias(
        streams=int(kind.size),
        failed=int(np.sum(kind == FAILURE)),
        censored=int(np.sum(kind == CENSORED)),
        distance=float(np.abs(naive.probability - incidence.probability).max()),
        naive=tuple(naive.quantile(share) for share in shares),
        incidence=tuple(incidence.quantile(share) for share in shares),
        kaplan_meier=tuple(km.quantile(share) for share in shares),
    )
