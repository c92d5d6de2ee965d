"""How far a distribution of only those times that were seen is off. Arrays in, numbers out.

The naive distribution of a time is that of the streams that got there: no failed stream, none that
the end of the run cut off. What it should be compared with, and why: docs/reference/metrics.md.
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
    """One run's naive distribution of a time beside the two that know of the other streams.

    Attributes:
        streams: all of them.
        failed: those that failed before.
        censored: those that were cut off before.
        distance: the largest difference of the naive distribution from the cumulative incidence.
        naive: quantiles by the naive distribution, for each share asked for; None: not reached.
        incidence: by the cumulative incidence.
        kaplan_meier: by Kaplan-Meier, with failures taken as censored.
    """

    streams: int
    failed: int
    censored: int
    distance: float
    naive: tuple[float | None, ...]
    incidence: tuple[float | None, ...]
    kaplan_meier: tuple[float | None, ...]


def naive_curve(times_s: ArrayLike, kinds: ArrayLike) -> Curve:
    """The distribution of the times of EVENT alone; arguments as for ``cumulative_incidence``."""
    times = np.asarray(times_s, dtype=np.float64)
    seen = times[np.asarray(kinds, dtype=np.int64) == EVENT]
    return cumulative_incidence(seen, np.full(seen.shape, EVENT))


def bias(times_s: ArrayLike, kinds: ArrayLike, shares: Sequence[float]) -> Bias | None:
    """The naive distribution beside the others; arguments as for ``cumulative_incidence``.

    Args:
        times_s: shape (n,).
        kinds: shape (n,).
        shares: for which quantiles are given, in (0, 1].

    Returns:
        None if nothing was seen to happen.
    """
    kind = np.asarray(kinds, dtype=np.int64)
    naive = naive_curve(times_s, kind)
    if naive.count == 0:
        return None
    incidence = cumulative_incidence(times_s, kind)
    km = kaplan_meier(times_s, kind)
    # Both jump at the same times, those of EVENT, and are flat in between.
    return Bias(
        streams=int(kind.size),
        failed=int(np.sum(kind == FAILURE)),
        censored=int(np.sum(kind == CENSORED)),
        distance=float(np.abs(naive.probability - incidence.probability).max()),
        naive=tuple(naive.quantile(share) for share in shares),
        incidence=tuple(incidence.quantile(share) for share in shares),
        kaplan_meier=tuple(km.quantile(share) for share in shares),
    )
