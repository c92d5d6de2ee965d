"""Repeated looks at growing data with one error rate over all of them. Arrays in, numbers out.

A group-sequential test with an error-spending function: Lan and DeMets (1983), Biometrika 70(3).
The share of the error rate spent by the time a share t of the budget is used is t^POWER, one of the
family of Kim and DeMets (1987), Biometrika 74(1). The p-value of each look is that of the t test,
compared with the nominal level that the spending allows there (the significance-level approach,
Jennison and Turnbull 2000, section 4.4). How many looks there are, and when, may not depend on the
data seen; docs/reference/statistics.md says what that means for SEEDS=auto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from analysis.arrays import Floats

POWER = 2.0
"""Exponent of the spending function, chosen by simulation (docs/reference/statistics.md)."""

ALLOWANCE = 0.9
"""Share of the error rate that is spent. Small samples' t tests depend less on each other from look
to look than the Brownian motion does, and reject up to a tenth more often than planned."""

LATER = 0.2
"""Share of what is left of the error rate that a plan leaves to plans after it: to a budget that is
raised, or to seeds that are added once more."""

FIRST_LOOK = 3
"""Pairs at the first look: a t test of two pairs finds nothing but the grossest difference."""

LOOK_GROWTH = 1.15
"""Each look has this many times the seeds of the one before, and at least one more."""

_ALPHAS = np.geomspace(1e-7, 0.5, 60)
"""Error rates for which nominal levels are computed; between them they are interpolated."""

_GRID_STEPS_PER_SD = 8
_GRID_END = 6.5
"""Where the grid of the Brownian motion ends; 4e-11 of its mass lie outside at t = 1."""


def schedule(budget: int) -> tuple[int, ...]:
    """Sizes of all looks up to a budget, fixed before any data is seen.

    Raises:
        ValueError: the budget is smaller than the first look.
    """
    if budget < FIRST_LOOK:
        raise ValueError(f"a budget of at least {FIRST_LOOK} seeds, got {budget}")
    sizes = [FIRST_LOOK]
    while sizes[-1] < budget:
        sizes.append(min(budget, max(sizes[-1] + 1, int(LOOK_GROWTH * sizes[-1]))))
    return tuple(sizes)


@dataclass(frozen=True)
class Spending:
    """How the error rate is spent over all looks at one set of growing data.

    Attributes:
        sizes: shape (k,), pairs at each look, increasing.
        spent: shape (k,), the share of the error rate spent by then, not falling. Beyond 1: the
            rate is exceeded by that factor.
        end: the most pairs that any of the plans allows.
    """

    sizes: tuple[int, ...]
    spent: tuple[float, ...]
    end: int

    @property
    def excess(self) -> float:
        """The error rate that holds over all looks, in units of the one that was asked for."""
        return max(1.0, self.spent[-1])

    def up_to(self, count: int) -> Spending:
        """The looks at no more than ``count`` pairs."""
        kept = sum(size <= count for size in self.sizes)
        return Spending(self.sizes[:kept], self.spent[:kept], self.end)


def spending(plans: Sequence[tuple[Sequence[int], int]]) -> Spending:
    """The spending of one or more plans for the same data, each of sizes of looks and a budget.

    A plan spends all but the share ``LATER`` of what is left when it begins, as t^POWER of the
    share t of its way to its budget; so plans may follow each other without end. Where the first of
    several was one look at a fixed number of pairs, that was an ordinary test, which spends
    everything; what follows exceeds the rate, by ``LATER`` of it at most.

    Raises:
        ValueError: no plan, or one without a look.
    """
    if not plans or not all(looks for looks, _ in plans):
        raise ValueError("looks that are planned need sizes")
    first, budget = plans[0]
    fixed = len(plans) > 1 and tuple(first) == (budget,)
    purse = 1 + LATER if fixed else 1.0
    used, reached = 0.0, 0
    sizes: list[int] = []
    spent: list[float] = []
    for number, (looks, end) in enumerate(plans):
        share = 1.0 if fixed and number == 0 else (1 - LATER) * (purse - used)
        before, begin = used, reached
        for size in looks:
            # What was seen before is nothing new.
            if size > reached:
                used = before + share * ((size - begin) / (end - begin)) ** POWER
                sizes.append(size)
                spent.append(used)
                reached = size
    return Spending(tuple(sizes), tuple(spent), max(end for _, end in plans))


def nominal_levels(fractions: Sequence[float], alphas: ArrayLike, power: float = POWER) -> Floats:
    """One-sided levels for each look that spend ``alpha * t^power`` by information share t.

    Args:
        fractions: shape (k,), increasing, in (0, 1].
        alphas: shape (a,), one-sided error rates in (0, 1).
        power: exponent of the spending function, > 0.

    Returns:
        Shape (a, k): reject at look k where the one-sided p-value is at most this.
    """
    return spending_levels(fractions, alphas, np.asarray(fractions, dtype=np.float64) ** power)


def spending_levels(times: Sequence[float], alphas: ArrayLike, spent: ArrayLike) -> Floats:
    """One-sided levels for each look that spend given shares of an error rate.

    By the recursion of Armitage, McPherson and Rowe (1969) for a Brownian motion on a grid.

    Args:
        times: shape (k,), information at each look, increasing, in (0, 1].
        alphas: shape (a,), one-sided error rates in (0, 1).
        spent: shape (k,), the share of the rate spent by each look, not falling.

    Returns:
        Shape (a, k): reject at look k where the one-sided p-value is at most this.
    """
    t = np.asarray(times, dtype=np.float64)
    alpha = np.asarray(alphas, dtype=np.float64)
    gaps = np.diff(t, prepend=0.0)
    step = float(np.sqrt(gaps.min())) / _GRID_STEPS_PER_SD
    grid = np.arange(-_GRID_END, _GRID_END + step, step)
    spend = alpha[:, None] * np.diff(np.asarray(spent, dtype=np.float64), prepend=0.0)
    levels = np.empty((alpha.size, t.size))
    # Mass of the paths not stopped yet, for each alpha, on the grid.
    mass = np.tile(stats.norm.pdf(grid, 0.0, np.sqrt(t[0])) * step, (alpha.size, 1))
    for look in range(t.size):
        if look:
            reach = np.exp(-((grid[:, None] - grid[None, :]) ** 2) / (2 * gaps[look]))
            mass = mass @ (reach * (step / np.sqrt(2 * np.pi * gaps[look])))
        # above[j]: mass right of the left edge of bin j.
        above = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
        for row in range(alpha.size):
            boundary, edge, share = _boundary(above[row], grid, step, spend[row, look])
            # At the first look nothing was spent before; the grid would only add its error.
            levels[row, look] = (
                stats.norm.sf(boundary / np.sqrt(t[look])) if look else spend[row, look]
            )
            mass[row, edge + 1 :] = 0.0
            mass[row, edge] *= share
    return levels


def _boundary(above: Floats, grid: Floats, step: float, spend: float) -> tuple[float, int, float]:
    """Where the mass above is what may be spent: the boundary, its bin, the bin's share below."""
    edge = max(0, int(np.searchsorted(-above, -spend, side="right")) - 1)
    beyond = float(above[edge + 1]) if edge + 1 < above.size else 0.0
    inside = float(above[edge]) - beyond
    # Far out the density falls by orders of magnitude within a bin: interpolate its logarithm.
    if beyond > 0 and inside > 0:
        ratio = np.log(float(above[edge]) / spend) / np.log(float(above[edge]) / beyond)
    else:
        ratio = 1.0
    ratio = min(max(float(ratio), 0.0), 1.0)
    share = (float(above[edge]) - spend) / inside if inside > 0 else 0.0
    return float(grid[edge]) - step / 2 + ratio * step, edge, min(max(share, 0.0), 1.0)


@lru_cache(maxsize=64)
def _level_table(looks: Spending) -> Floats:
    times = [size / looks.end for size in looks.sizes]
    # A share of more than 1 must not make an error rate of 1 or more.
    alphas = np.minimum(ALLOWANCE * _ALPHAS, 0.5 / looks.excess)
    table = spending_levels(times, alphas, looks.spent)
    # Numerical noise must not make a larger error rate allow less.
    monotone: Floats = np.maximum.accumulate(table, axis=0)
    return monotone


def sequential_p(p_values: ArrayLike, looks: Spending) -> float:
    """The smallest one-sided error rate at which any look so far would have rejected.

    It is a p-value at any of the looks, whatever made one stop there, and so can be corrected for
    several metrics like any other (Liu and Anderson 2008, J. American Statistical Association 103;
    with Holm: Maurer and Bretz 2013, Statistics in Biopharmaceutical Research 5).

    Args:
        p_values: shape (k,), the one-sided p-value of each look on its own data.
        looks: the k looks.
    """
    p = np.asarray(p_values, dtype=np.float64)
    table = _level_table(looks)
    best = 1.0
    for look, value in enumerate(p):
        levels = table[:, look]
        if value <= levels[0]:
            return float(_ALPHAS[0])
        if value <= levels[-1]:
            log = np.interp(np.log(value), np.log(levels), np.log(_ALPHAS))
            best = min(best, float(np.exp(log)))
    return best
