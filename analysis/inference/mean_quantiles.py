"""The mean quantile function of several samples, as in tornettools. Arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from analysis.arrays import Floats
from analysis.inference.bands import Band
from analysis.inference.intervals import CONFIDENCE, t_quantile


def lower_quantiles(sample: ArrayLike, shares: Floats) -> Floats:
    """Return the quantiles of a sample at ``shares``, rounded down to values of the sample.

    sample: shape (n,), or (n, 2) if each value has a second number, which is returned with it.
    """
    values = np.asarray(sample, dtype=np.float64)
    keys = values if values.ndim == 1 else values[:, 0]
    ordered = values[np.argsort(keys, kind="stable")]
    return ordered[((len(ordered) - 1) * shares).astype(np.int64)]


def mean_quantiles(samples: Sequence[Floats | Sequence[Floats]], shares: Floats) -> Band | None:
    """Return the mean quantiles over samples, and mean +- t(n-1) sd / sqrt(n), clipped at 0.

    Each of the n samples counts once, regardless of its size, and empty samples are ignored. An
    element of ``samples`` may be a group of samples, such as the repeats of a network. A group
    counts as one sample, whose quantiles are the means of the group's quantiles. If values have a
    resolution (rounding step), each may lie anywhere in a span of this width. Therefore sd^2 is
    increased by the sum of the samples' resolution^2 / 12, divided by n - 1.

    Args:
        samples: samples of nonnegative values, one per simulation. A sample has the shape (m,), or
            (m, 2) if each value has its resolution in the second column.
        shares: in [0, 1], shape (g,).

    Returns:
        A pointwise band of shape (g,): the coverage holds at each point, not for the whole curve.
        Its bounds are NaN for a single sample. The result is None if no sample has a value.
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
        return Band(mean, nothing, nothing, 1)
    variance = values.var(axis=0, ddof=1) + (resolutions**2).sum(axis=0) / 12 / (count - 1)
    half = t_quantile((1 + CONFIDENCE) / 2, count - 1.0) * np.sqrt(variance) / np.sqrt(count)
    return Band(mean, np.maximum(0.0, mean - half), mean + half, count)


def _columns(stacked: Floats) -> tuple[Floats, Floats]:
    """Return values and resolutions. The resolutions are 0 if ``stacked`` has none."""
    if stacked.ndim == 2:
        return stacked, np.zeros(stacked.shape)
    return stacked[..., 0], stacked[..., 1]
