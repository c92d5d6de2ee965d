"""Detection of step changes in a time series of nightly values. Arrays in, steps out.

The search is PELT (Killick, Fearnhead and Eckley 2012, JASA 107) of the package ``ruptures``. The
cost function is that of a linear kernel, which detects changes of a Gaussian mean. The penalty
limits the probability of any false step in a year of nightly searches.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import ruptures  # type: ignore[import-untyped]
import scipy  # It loads scipy.stats, which takes a second, when it is first used.
from numpy.typing import ArrayLike

from analysis.arrays import Floats

NIGHTS = 365
"""Number of nightly runs ("nights") over which the probability of a false step is limited.

Only the latest ``NIGHTS`` nights are searched.
"""

LOOKS = 6.0
"""Number of independent tests that the penalty assumes for the search of one night.

A search considers a step before every night of the history, and the next night's search considers
most of these positions again. The value comes from simulations, which a test repeats.
"""

MINIMUM_DF = 20
"""Minimum degrees of freedom of the noise estimate; below it, no steps are reported."""

KEPT_CHANGES = 0.9
"""Share of the night-to-night changes that are used to estimate the noise.

The smallest changes are used. The largest changes are omitted, because they include the steps.
"""

DF_OF_A_CHANGE = 0.55
"""Degrees of freedom that each change adds to the estimate, from 8,000 simulated histories."""

EXCESS_LEVEL = 0.01
"""Significance level of the F test for more variation between nights than within them.

A stricter level would miss excess variation, and steps would be falsely reported. A looser level
would often replace the estimate from within nights by the less precise estimate between nights.
"""

NIGHTS_ALONE = 1 + int(np.ceil(MINIMUM_DF / DF_OF_A_CHANGE))
"""Minimum number of nights for a search of steps if each night has only one run."""


@dataclass(frozen=True)
class Step:
    """A step between the nights ``index - 1`` and ``index``, and the means of both segments."""

    index: int
    before: float
    after: float


def penalty(false_steps: float, df: float = np.inf) -> float:
    """Return the amount by which a step must reduce the sum of squares, in noise variances.

    Args:
        false_steps: probability of any false step in a series of ``NIGHTS`` nights, if every night
            searches the history so far; in (0, 1).
        df: degrees of freedom of the noise variance.
    """
    share = false_steps / (LOOKS * NIGHTS)
    return float(
        scipy.stats.chi2.isf(share, 1) if np.isinf(df) else scipy.stats.f.isf(share, 1, df)
    )


def noise(nights: Sequence[dict[int, float]]) -> tuple[float, float]:
    """Estimate the standard deviation of a night's mean, and its df, from the spread within nights.

    If two consecutive nights have the same networks (seeds), the estimate uses the spread of the
    change over these networks. A step that is the same on all networks does not affect this spread.
    Otherwise, the estimate uses the spread over the networks of the later night. The result is
    (0.0, 0.0) if there is no estimate.

    nights: seed -> value, for each night.
    """
    squares, df = 0.0, 0.0
    for before, after in itertools.pairwise(nights):
        n = len(after)
        if n < 2:
            continue
        if set(before) == set(after):
            changes = np.array([after[seed] - before[seed] for seed in after])
            # Consecutive changes share a night, so their squares have a correlation of 1/4. This
            # makes the variance of their sum 1.5 times that of independent squares.
            squares += float(changes.var(ddof=1)) / (2 * n) * (n - 1) / 1.5
            df += (n - 1) / 1.5
        else:
            own = np.array(list(after.values()))
            squares += float(own.var(ddof=1)) / n * (n - 1)
            df += n - 1
    return (float(np.sqrt(squares / df)), df) if df else (0.0, 0.0)


def night_to_night(means: ArrayLike) -> tuple[float, float]:
    """Estimate the standard deviation of a night's mean, and its df, from changes between nights.

    The variance is half the mean square of the changes between consecutive nights. The largest
    tenth of the changes, which includes the steps, is left out. The mean square of the others is
    corrected for this, as if changes were normal. The result is (0.0, 0.0) if there is no estimate,
    for example because most nights are identical.

    means: shape (n,), the mean of each night, finite.
    """
    squares = np.sort(np.diff(np.asarray(means, dtype=np.float64)) ** 2)
    retained = int(KEPT_CHANGES * squares.size)
    if retained < 1:
        return 0.0, 0.0
    share = retained / squares.size
    end = float(scipy.stats.norm.ppf((1 + share) / 2))
    left = 1 - 2 * end * float(scipy.stats.norm.pdf(end)) / share
    sd = float(np.sqrt(squares[:retained].mean() / left / 2))
    return (sd, DF_OF_A_CHANGE * squares.size) if sd > 0 else (0.0, 0.0)


def noise_of_means(
    nights: Sequence[dict[int, float]], excess_level: float = EXCESS_LEVEL
) -> tuple[float, float]:
    """Return one of the estimates `noise` and `night_to_night`, as input of `find_steps`.

    If `noise` has fewer than ``MINIMUM_DF`` degrees of freedom, this is the estimate with more
    degrees of freedom. Otherwise it is `noise`, unless `night_to_night` is significantly larger (F
    test at ``excess_level``; 0.5 selects roughly the larger estimate).

    nights: seed -> value, for each night.
    """
    within, df = noise(nights)
    between, df_between = night_to_night([float(np.mean(list(night.values()))) for night in nights])
    if df < MINIMUM_DF:
        return (between, df_between) if df_between > df else (within, df)
    excess = df_between > 0 and (between / within) ** 2 if within > 0 else np.inf
    if excess > scipy.stats.f.isf(excess_level, max(df_between, 1.0), df):
        return between, df_between
    return within, df


def find_steps(means: ArrayLike, sd: float, df: float, false_steps: float) -> list[Step]:
    """Find the steps in a time series.

    Args:
        means: shape (n,), the mean of each night, finite; the last ``NIGHTS`` are searched.
        sd: standard deviation of a night's mean.
        df: degrees of freedom of ``sd``.
        false_steps: see ``penalty``.

    Returns:
        Steps with indices into ``means``. There are none if ``sd`` is 0, if ``df`` is below
        ``MINIMUM_DF``, or if there are fewer than two nights.
    """
    history: Floats = np.asarray(means, dtype=np.float64)
    skipped = max(0, history.size - NIGHTS)
    window = history[skipped:]
    if window.size < 2 or df < MINIMUM_DF or not sd > 0:
        return []
    scaled = (window - np.median(window)) / sd
    # This gives the same steps as ruptures.Pelt(model="l2"), and is 1,000 times as fast.
    model = ruptures.KernelCPD(kernel="linear", min_size=1, jump=1).fit(scaled.reshape(-1, 1))
    ends = [int(end) for end in model.predict(pen=penalty(false_steps, df))]
    starts = [0, *ends[:-1]]
    levels = [float(window[a:b].mean()) for a, b in zip(starts, ends, strict=True)]
    return [
        Step(skipped + start, before, after)
        for start, before, after in zip(starts[1:], levels, levels[1:], strict=False)
    ]
