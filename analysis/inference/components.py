"""Variance components between and within networks. Arrays in, numbers out.

The model is one-way random effects: repeat j of network i has the value mean + network_i +
noise_ij. docs/reference/statistics.md describes the methods and their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # It loads scipy.stats, which takes a second, when it is first used.
from numpy.typing import ArrayLike

from analysis.inference.intervals import CONFIDENCE, Interval


@dataclass(frozen=True)
class Components:
    """Standard deviations between and within networks, each with its interval.

    Attributes:
        between: standard deviation of the true values of networks; None if there is only one
            network, or if no network has two repeats.
        within: standard deviation of the repeats of one network; None if no network has two.
    """

    between: Interval | None
    within: Interval | None


def components(networks: Sequence[ArrayLike]) -> Components:
    """Estimate the standard deviations between and within networks by the method of moments.

    A negative estimate of the variance between networks counts as 0.

    The interval of ``within`` is based on the chi-square distribution. The interval of ``between``
    follows Tukey (1951) and Williams (1962). It has at least the coverage ``CONFIDENCE`` if all
    networks have the same number of repeats.

    Args:
        networks: the values of each network's repeats, at least one per network.
    """
    values = [np.asarray(one, dtype=np.float64) for one in networks]
    counts = np.array([one.size for one in values])
    n, total = len(values), int(counts.sum())
    means = np.array([one.mean() for one in values])
    df_within, df_between = total - n, n - 1
    if not df_within:
        return Components(None, None)
    squares = sum(float(((one - one.mean()) ** 2).sum()) for one in values)
    within_var = squares / df_within
    tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    low, high = (squares / scipy.stats.chi2.ppf(tail, df_within) for tail in reversed(tails))
    within = Interval(*(float(np.sqrt(one)) for one in (within_var, low, high)))
    if not df_between:
        return Components(None, within)
    between_ms = float((counts * (means - np.concatenate(values).mean()) ** 2).sum()) / df_between
    size = (total - float((counts**2).sum()) / total) / df_between
    variances = [(between_ms - within_var) / size] + [
        df_between
        * (between_ms - within_var * scipy.stats.f.ppf(tail, df_between, df_within))
        / (size * scipy.stats.chi2.ppf(tail, df_between))
        for tail in reversed(tails)
    ]
    between = Interval(*(float(np.sqrt(max(0.0, one))) for one in variances))
    return Components(between, within)
