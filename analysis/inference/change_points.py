"""Step changes in a time series, a value each night. Arrays in, steps out.

The search is ``ruptures``' PELT (Killick, Fearnhead and Eckley 2012, JASA 107) with the cost of
Gaussian means and a penalty chosen so that a year of looks has a stated chance of any false step.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import ruptures  # type: ignore[import-untyped]
from numpy.typing import ArrayLike
from scipy import stats

from analysis.arrays import Floats

NIGHTS = 365
"""Nights for which the rate of false steps holds; a longer history is searched in its last ones."""

LOOKS = 6.0
"""How many independent places for a step a night counts as, when every night the whole history is
searched anew. With it the stated rate holds in simulation (docs/how-to/nightly.md, and a test)."""

MINIMUM_DF = 20
"""Before the noise is known this well no step is looked for."""

KEPT_CHANGES = 0.9
"""Share of the changes from night to night that tell the noise; steps are among the others."""

DF_OF_A_CHANGE = 0.55
"""Degrees of freedom for each change that is looked at, from 8,000 simulated histories."""

EXCESS_LEVEL = 0.01
"""How sure it has to be that nights differ by more than their runs do. Not surer: to miss it makes
false steps. Not less sure: where nights do not, their own noise is known worse."""

NIGHTS_ALONE = 1 + int(np.ceil(MINIMUM_DF / DF_OF_A_CHANGE))
"""Nights with one run that it takes before steps are looked for."""


@dataclass(frozen=True)
class Step:
    """One step: between the nights ``index - 1`` and ``index``.

    Attributes:
        index: of the first night at the new level.
        before: mean over the nights of the segment before it.
        after: mean over those of the segment behind it.
    """

    index: int
    before: float
    after: float


def penalty(false_steps: float, df: float = np.inf) -> float:
    """The fall of the sum of squares, in units of the noise variance, that a step has to bring.

    Args:
        false_steps: chance of any false step in one time series of ``NIGHTS`` nights, each of which
            searches the whole history so far; in (0, 1).
        df: degrees of freedom of the noise variance.
    """
    share = false_steps / (LOOKS * NIGHTS)
    return float(stats.chi2.isf(share, 1) if np.isinf(df) else stats.f.isf(share, 1, df))


def noise(nights: Sequence[dict[int, float]]) -> tuple[float, float]:
    """Standard deviation of a night's mean, from within nights, and its degrees of freedom.

    Where two nights in a row have the same seeds, the changes of these seeds tell the noise of a
    mean of paired seeds: what all of them do together, a step, is no part of it. Nights on other
    seeds than the night before tell it from the spread of their own.

    Args:
        nights: seed -> value, night by night.

    Returns:
        (0.0, 0.0) where nothing is known.
    """
    squares, df = 0.0, 0.0
    for before, after in itertools.pairwise(nights):
        n = len(after)
        if n < 2:
            continue
        if set(before) == set(after):
            changes = np.array([after[seed] - before[seed] for seed in after])
            squares += float(changes.var(ddof=1)) / (2 * n) * (n - 1) / 1.5
            # Two changes in a row share a night: their squares are correlated by a quarter.
            df += (n - 1) / 1.5
        else:
            own = np.array(list(after.values()))
            squares += float(own.var(ddof=1)) / n * (n - 1)
            df += n - 1
    return (float(np.sqrt(squares / df)), df) if df else (0.0, 0.0)


def night_to_night(means: ArrayLike) -> tuple[float, float]:
    """Standard deviation of a night's mean from one night to the next, and its degrees of freedom.

    Half the mean square of the changes between nights in a row, without the tenth of them that are
    largest, among which the steps are; what normal changes lose by that is put back.

    Args:
        means: shape (n,), a night's mean each, finite.

    Returns:
        (0.0, 0.0) where nothing is known, as where most nights are exactly alike.
    """
    squares = np.sort(np.diff(np.asarray(means, dtype=np.float64)) ** 2)
    kept = int(KEPT_CHANGES * squares.size)
    if kept < 1:
        return 0.0, 0.0
    share = kept / squares.size
    end = float(stats.norm.ppf((1 + share) / 2))
    left = 1 - 2 * end * float(stats.norm.pdf(end)) / share
    sd = float(np.sqrt(squares[:kept].mean() / left / 2))
    return (sd, DF_OF_A_CHANGE * squares.size) if sd > 0 else (0.0, 0.0)


def noise_of_means(
    nights: Sequence[dict[int, float]], excess_level: float = EXCESS_LEVEL
) -> tuple[float, float]:
    """Standard deviation of a night's mean as a search for steps takes it, and its df.

    That from within nights, unless nights differ by more than it says (as F shows at a level of
    ``excess_level``) or it is not known: then that from one night to the next.

    Args:
        nights: seed -> value, night by night.
        excess_level: how sure it has to be that nights differ by more; 0.5 takes about the larger
            of the two.

    Returns:
        (0.0, 0.0) where nothing is known.
    """
    within, df = noise(nights)
    between, df_between = night_to_night([float(np.mean(list(night.values()))) for night in nights])
    if df < MINIMUM_DF:
        return (between, df_between) if df_between > df else (within, df)
    excess = df_between > 0 and (between / within) ** 2 if within > 0 else np.inf
    if excess > stats.f.isf(excess_level, max(df_between, 1.0), df):
        return between, df_between
    return within, df


def find_steps(means: ArrayLike, sd: float, df: float, false_steps: float) -> list[Step]:
    """Steps of the level of a time series.

    Args:
        means: shape (n,), a night's mean each, finite; the last ``NIGHTS`` are searched.
        sd: standard deviation of a night's mean.
        df: degrees of freedom of ``sd``.
        false_steps: see ``penalty``.

    Returns:
        By index into ``means``; none while the noise is not known well enough.
    """
    history: Floats = np.asarray(means, dtype=np.float64)
    skipped = max(0, history.size - NIGHTS)
    window = history[skipped:]
    if window.size < 2 or df < MINIMUM_DF or not sd > 0:
        return []
    scaled = (window - np.median(window)) / sd
    model = ruptures.Pelt(model="l2", min_size=1, jump=1).fit(scaled.reshape(-1, 1))
    ends = [int(end) for end in model.predict(pen=penalty(false_steps, df))]
    starts = [0, *ends[:-1]]
    levels = [float(window[a:b].mean()) for a, b in zip(starts, ends, strict=True)]
    return [
        Step(skipped + start, before, after)
        for start, before, after in zip(starts[1:], levels, levels[1:], strict=False)
    ]
