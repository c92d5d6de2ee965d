"""How much of what is measured differs between networks, and how much within them.

One-way random effects: repeat j of network i has the value mean + network_i + noise_ij. Methods and
their sources: docs/reference/statistics.md. Arrays in, numbers out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from analysis.inference.intervals import CONFIDENCE, Interval, t_quantile


@dataclass(frozen=True)
class Components:
    """Standard deviations, each with its interval.

    Attributes:
        between: of networks' true values; None where there is one network, or none has two repeats.
        within: of the repeats of one network; None where no network has two.
    """

    between: Interval | None
    within: Interval | None


def components(networks: Sequence[ArrayLike]) -> Components:
    """Estimate both standard deviations by the method of moments, of which none is negative.

    The interval within networks is that of chi-square. The one between networks is that of Tukey
    (1951) and Williams (1962), which has at least the coverage ``CONFIDENCE`` for balanced
    designs.

    Args:
        networks: the values of each network's repeats, at least one of each.
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
    low, high = (squares / stats.chi2.ppf(tail, df_within) for tail in reversed(tails))
    within = Interval(*(float(np.sqrt(one)) for one in (within_var, low, high)))
    if not df_between:
        return Components(None, within)
    between_ms = float((counts * (means - np.concatenate(values).mean()) ** 2).sum()) / df_between
    size = (total - float((counts**2).sum()) / total) / df_between
    variances = [(between_ms - within_var) / size] + [
        df_between
        * (between_ms - within_var * stats.f.ppf(tail, df_between, df_within))
        / (size * stats.chi2.ppf(tail, df_between))
        for tail in reversed(tails)
    ]
    between = Interval(*(float(np.sqrt(max(0.0, one))) for one in variances))
    return Components(between, within)


def half_width(between: float, within: float, networks: int, repeats: int) -> float:
    """Return half of the expected t interval's width of a mean over networks.

    between, within: standard deviations; networks: at least two.
    """
    variance = between**2 / networks + within**2 / (networks * repeats)
    return t_quantile((1 + CONFIDENCE) / 2, networks - 1.0) * float(np.sqrt(variance))


def best_split(between: float, within: float, runs: int) -> tuple[int, int]:
    """Return the networks and repeats, together at most ``runs`` >= 2, of the shortest interval."""
    splits = [(runs // repeats, repeats) for repeats in range(1, runs // 2 + 1)]
    return min(splits, key=lambda split: half_width(between, within, *split))
