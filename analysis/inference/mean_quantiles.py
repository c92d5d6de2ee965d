"""The mean quantile function of several samples, as tornettools draws it. Arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats
from analysis.inference.intervals import CONFIDENCE, t_quantile


@dataclass(frozen=True)
class MeanQuantiles:
    """At each share: the samples' mean quantile and its t interval; shape (g,).

    The interval holds for one share at a time, and is NaN where there is one sample only.
    """

    mean: Floats
    low: Floats
    high: Floats
    samples: int


def lower_quantiles(sample: ArrayLike, shares: Floats) -> Floats:
    """The sample's quantiles, each a value of the sample: the largest at or below its place.

    sample: shape (n,); or (n, 2), of values with something each, which stays with its value.
    """
    values = np.asarray(sample, dtype=np.float64)
    keys = values if values.ndim == 1 else values[:, 0]
    ordered = values[np.argsort(keys, kind="stable")]
    return ordered[((len(ordered) - 1) * shares).astype(np.int64)]


def mean_quantiles(
    samples: Sequence[Floats | Sequence[Floats]], shares: Floats, confidence: float = CONFIDENCE
) -> MeanQuantiles | None:
    """Mean quantiles over samples, and mean +- t(n-1) sd / sqrt(n), from 0 on.

    A sample counts once however many values it has, and not at all without any. Several samples in
    the place of one count together as one: the mean of their quantiles. A value with a resolution
    lies anywhere in a span of that width: sd^2 grows by the samples' resolution^2 / 12, summed over
    n - 1.

    Args:
        samples: of values that are not negative, one sample a simulation; shape (n,), or (n, 2) of
            values with their resolutions.
        shares: in [0, 1], shape (g,).
        confidence: coverage at each share, in (0, 1).

    Returns:
        None where no sample has a value.
    """
    groups = [[one] if isinstance(one, np.ndarray) else one for one in samples]
    found = [
        np.mean([lower_quantiles(sample, shares) for sample in group], axis=0)
        for group in ([sample for sample in group if np.size(sample)] for group in groups)
        if group
    ]
    if not found:
        return None
    values, resolutions = _columns(np.stack(found))
    mean, count = values.mean(axis=0), len(found)
    if count == 1:
        nothing = np.full(shares.shape, np.nan)
        return MeanQuantiles(mean, nothing, nothing, 1)
    variance = values.var(axis=0, ddof=1) + (resolutions**2).sum(axis=0) / 12 / (count - 1)
    half = t_quantile((1 + confidence) / 2, count - 1.0) * np.sqrt(variance) / np.sqrt(count)
    return MeanQuantiles(mean, np.maximum(0.0, mean - half), mean + half, count)


def _columns(stacked: Floats) -> tuple[Floats, Floats]:
    """Values and resolutions, without which these are 0."""
    if stacked.ndim == 2:
        return stacked, np.zeros(stacked.shape)
    return stacked[..., 0], stacked[..., 1]
