"""How many pairs a verdict needs, and what so many show."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr

from analysis.inference.effects import Effect
from analysis.inference.intervals import t_quantile

POWER = 0.8
"""Chance to get to a verdict with the numbers of networks and sizes of changes that are advised."""

MAX_COUNT = 10_000
"""Where more pairs would be needed, the search ends."""

MAX_MORE = 50
"""Where more networks than so many would be needed, more networks are no advice."""


def rounded_more(count: int | None) -> int | None:
    """Return a number of further networks rounded up for readers; None beyond ``MAX_MORE``.

    To 5 they are exact, above they are multiples of 5: the spread that they are computed from is
    itself an estimate from few networks.
    """
    if count is None or count > MAX_MORE:
        return None
    return count if count <= 5 else 5 * -(-count // 5)


def shown_from(effect: Effect, level: float) -> float:
    """Return the smallest difference that as many pairs show, as if the spread were true.

    They show it with the chance ``POWER``.

    Args:
        effect: from the pairs that there are; its estimate does not count.
        level: error rate of one test, corrected for the number of tests.
    """
    needed = effect.t_needed(level / 2, both_sides=True) + t_quantile(POWER, effect.df)
    return needed * effect.standard_error


def shown_from_spreads(count: int, level: float) -> float:
    """Return the same in standard deviations of the differences between ``count`` pairs, >= 2."""
    of_one = Effect(0.0, 1 / float(np.sqrt(count)), count - 1.0, count, any_shape=True)
    return shown_from(of_one, level)


def count_to_settle(
    effect: Effect,
    margin: float | None,
    level: float,
    level_equivalent: float | None = None,
) -> int | None:
    """Return how many pairs in all would show a difference, or the lack of one.

    They show it with the chance ``POWER``, as if the present estimate and spread were the true
    ones. A smaller number than there are pairs already means that they were unlucky; it is then
    taken to be one more.

    Args:
        effect: from the pairs that there are.
        margin: what counts as equivalent, or None.
        level: error rate of a test for a difference, corrected for the number of tests.
        level_equivalent: likewise for equivalence; None: the same.

    Returns:
        None where ``MAX_COUNT`` would not do.
    """
    level_inside = level if level_equivalent is None else level_equivalent

    def settles(count: int) -> bool:
        later = effect.with_count(count)
        size = abs(later.estimate)
        if size > 0 and size >= shown_from(later, level):
            return True
        if margin is None:
            return False
        if later.standard_error == 0:
            return size < margin
        needed = later.t_needed(level_inside, both_sides=False)
        # Both of the one-sided tests have to reject: each misses in its own tail.
        near, far = ((margin + side) / later.standard_error for side in (-size, size))
        return float(np.sum(stdtr(later.df, np.subtract((near, far), needed)))) - 1 >= POWER

    low, high = effect.count, MAX_COUNT
    if not settles(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high
