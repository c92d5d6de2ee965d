"""Repeated tests of growing data with one overall error rate. Arrays in, numbers out.

This is a group-sequential test with an error-spending function: Lan and DeMets (1983), Biometrika
70(3). When a share t of the budget (the maximum number of pairs) has been used, the share t^POWER
of the error rate has been spent. This function is of the family of Kim and DeMets (1987),
Biometrika 74(1).
Each interim analysis ("look") compares its ordinary p-value with the nominal level that the
spending function allows (the significance-level approach, Jennison and Turnbull 2000, section 4.4).
The number and times of looks must not depend on the observed data; docs/reference/statistics.md
explains the consequences for NETWORKS=auto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # It loads scipy.stats, which takes a second, when it is first used.
from numpy.typing import ArrayLike

from analysis.arrays import Floats

POWER = 2.0
"""Exponent of the spending function (docs/reference/statistics.md)."""

ALLOWANCE = 0.9
"""Share of the error rate that the looks are planned to spend.

The plan assumes a Brownian motion. The t statistics of small samples are less correlated between
looks, so that the tests reject up to a tenth more often than planned.
"""

LATER = 0.2
"""Share of the remaining error rate that a plan (looks up to a budget) leaves to later plans.

A later plan has a larger budget than the plans before it.
"""

FIRST_LOOK = 3
"""Number of pairs at the first look. A t test of two pairs detects only extreme differences."""

LOOK_GROWTH = 1.15
"""Factor by which the number of networks grows between looks. It grows by at least one network."""

_ALPHAS = np.geomspace(1e-7, 0.5, 60)
"""Error rates for which nominal levels are computed. Between them, levels are interpolated."""

_GRID_STEPS_PER_SD = 8
_GRID_END = 6.5
"""End of the grid of the Brownian motion. At t = 1, 4e-11 of its mass is above this end."""


def schedule(
    budget: int, first: int = FIRST_LOOK, growth: float = LOOK_GROWTH, min_added: int = 1
) -> tuple[int, ...]:
    """Return the number of pairs at each look, up to a budget.

    The error rate of the looks holds only because these numbers do not depend on data.

    Args:
        budget: the number of pairs at the last look, at least ``first``.
        first: the number of pairs at the first look.
        growth: factor by which the number grows between looks.
        min_added: minimum number of pairs that a look adds, except for the last look.
    """
    sizes = [first]
    while sizes[-1] < budget:
        sizes.append(min(budget, max(sizes[-1] + min_added, int(growth * sizes[-1]))))
    return tuple(sizes)


@dataclass(frozen=True)
class Spending:
    """The spending of the error rate over all looks at one growing data set.

    Attributes:
        sizes: shape (k,), number of pairs at each look, increasing.
        spent: shape (k,), cumulative share of the error rate spent, nondecreasing. A value above 1
            means that the rate is exceeded by that factor.
        end: the largest budget of all plans, in pairs.
    """

    sizes: tuple[int, ...]
    spent: tuple[float, ...]
    end: int

    @property
    def excess(self) -> float:
        """The error rate over all looks, as a multiple of the requested rate; at least 1."""
        return max(1.0, self.spent[-1])

    def up_to(self, count: int) -> Spending:
        """Return the spending of only those looks that have at most ``count`` pairs."""
        count_kept = sum(size <= count for size in self.sizes)
        return Spending(self.sizes[:count_kept], self.spent[:count_kept], self.end)


def spending(plans: Sequence[tuple[Sequence[int], int]]) -> Spending:
    """Return how consecutive plans of looks at the same growing data spend the error rate.

    A plan leaves the share ``LATER`` of the remaining error rate to later plans, so the number of
    plans is unlimited. At a share t of the way from the last look of earlier plans to its own
    budget, a plan has spent the share t^POWER of what it may spend. If the first of several plans
    is a single look at a fixed number of pairs, it was an ordinary test that spent everything. In
    this case, later plans exceed the rate by at most the share ``LATER``.

    Args:
        plans: the sizes of the looks and the budget of each plan, both in pairs. There is at least
            one plan, and each has at least one look.
    """
    first, budget = plans[0]
    fixed = len(plans) > 1 and tuple(first) == (budget,)
    available = 1 + LATER if fixed else 1.0
    used, reached = 0.0, 0
    sizes: list[int] = []
    spent: list[float] = []
    for number, (looks, end) in enumerate(plans):
        share = 1.0 if fixed and number == 0 else (1 - LATER) * (available - used)
        before, begin = used, reached
        for size in looks:
            # A look at no more pairs than an earlier look is not a new look.
            if size > reached:
                used = before + share * ((size - begin) / (end - begin)) ** POWER
                sizes.append(size)
                spent.append(used)
                reached = size
    return Spending(tuple(sizes), tuple(spent), max(end for _, end in plans))


def spending_levels(times: Sequence[float], alphas: ArrayLike, spent: ArrayLike) -> Floats:
    """Return the one-sided levels at which the looks spend the given shares of an error rate.

    This uses the recursion of Armitage, McPherson and Rowe (1969) for a Brownian motion on a grid.

    Args:
        times: shape (k,), share of the budget that each look has used, increasing, in (0, 1].
        alphas: shape (a,), one-sided error rates in (0, 1).
        spent: shape (k,), cumulative share of the rate spent by each look, nondecreasing.

    Returns:
        Shape (a, k): look k rejects if its one-sided p-value is at most this level.
    """
    t = np.asarray(times, dtype=np.float64)
    alpha = np.asarray(alphas, dtype=np.float64)
    gaps = np.diff(t, prepend=0.0)
    step = float(np.sqrt(gaps.min())) / _GRID_STEPS_PER_SD
    grid = np.arange(-_GRID_END, _GRID_END + step, step)
    spend = alpha[:, None] * np.diff(np.asarray(spent, dtype=np.float64), prepend=0.0)
    levels = np.empty((alpha.size, t.size))
    # mass[a, j]: probability, for the error rate alpha[a], that the path is in bin j of the grid
    # and that no look has stopped it yet.
    mass = np.tile(scipy.stats.norm.pdf(grid, 0.0, np.sqrt(t[0])) * step, (alpha.size, 1))
    for look in range(t.size):
        if look:
            reach = np.exp(-((grid[:, None] - grid[None, :]) ** 2) / (2 * gaps[look]))
            mass = mass @ (reach * (step / np.sqrt(2 * np.pi * gaps[look])))
        # above[j]: total mass of bin j and all bins to its right.
        above = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
        for row in range(alpha.size):
            boundary, edge, share = _boundary(above[row], grid, step, spend[row, look])
            # The level of the first look is known exactly, so avoid the error of the grid.
            levels[row, look] = (
                scipy.stats.norm.sf(boundary / np.sqrt(t[look])) if look else spend[row, look]
            )
            mass[row, edge + 1 :] = 0.0
            mass[row, edge] *= share
    return levels


def _boundary(above: Floats, grid: Floats, step: float, spend: float) -> tuple[float, int, float]:
    """Return the boundary above which the probability mass is ``spend``.

    above: for each bin of ``grid``, the total mass of this bin and all bins to its right.

    Returns:
        The boundary, the index of its bin, and the share of the bin's mass below the boundary.
    """
    edge = max(0, int(np.searchsorted(-above, -spend, side="right")) - 1)
    beyond = float(above[edge + 1]) if edge + 1 < above.size else 0.0
    inside = float(above[edge]) - beyond
    # Interpolate the logarithm, as the density falls by orders of magnitude within a bin.
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
    # All looks together may spend up to `excess` times the error rate. Keep this product below 1.
    alphas = np.minimum(ALLOWANCE * _ALPHAS, 0.5 / looks.excess)
    table = spending_levels(times, alphas, looks.spent)
    # Enforce monotonicity despite numerical noise.
    monotone: Floats = np.maximum.accumulate(table, axis=0)
    return monotone


def sequential_p(p_values: ArrayLike, looks: Spending) -> float:
    """Return the smallest one-sided error rate at which any look so far would have rejected.

    This rate is a valid p-value at every look, regardless of the reason for stopping, and can be
    corrected for several metrics as usual (Liu and Anderson 2008, J. American Statistical
    Association 103; with Holm: Maurer and Bretz 2013, Stat. in Biopharmaceutical Research 5).

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
