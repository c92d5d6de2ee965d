"""The number of pairs that a verdict needs, and the effect that a number of pairs can detect.

A pair has the values of a variant and of the baseline on the same network.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr

from analysis.inference.effects import Effect
from analysis.inference.intervals import t_quantile

POWER = 0.8
"""Power for which numbers of networks and detectable effects are computed."""

MAX_COUNT = 10_000
"""Maximum number of pairs that `count_to_settle` considers."""

MAX_MORE = 50
"""Maximum number of further networks that is recommended."""


def rounded_more(count: int | None) -> int | None:
    """Round up a number of further networks; return None if it is unknown or above ``MAX_MORE``.

    Numbers above 5 are rounded to multiples of 5, because the spread behind them is itself an
    estimate from few networks.
    """
    if count is None or count > MAX_MORE:
        return None
    return count if count <= 5 else 5 * -(-count // 5)


def shown_from(effect: Effect, level: float) -> float:
    """Return the smallest difference that ``effect.count`` pairs detect with probability ``POWER``.

    The estimated spread is treated as the true one.

    Args:
        effect: the effect in the existing pairs; its estimate is ignored.
        level: error rate of one test, corrected for multiple testing.
    """
    needed = effect.t_needed(level / 2, two_sided=True) + t_quantile(POWER, effect.df)
    return needed * effect.standard_error


def shown_from_spreads(count: int, level: float) -> float:
    """Return the smallest difference that ``count`` >= 2 pairs detect with probability ``POWER``.

    The unit is the standard deviation of the pairs' differences; ``level`` as in `shown_from`.
    """
    unit_spread = Effect(0.0, 1 / float(np.sqrt(count)), count - 1.0, count, robust=True)
    return shown_from(unit_spread, level)


def count_to_settle(
    effect: Effect, margin: float | None, level: float, level_equivalent: float
) -> int | None:
    """Return the total number of pairs that would show a difference, or equivalence.

    With this number of pairs, a difference or equivalence is shown with probability ``POWER`` if
    the present estimate and spread are true. The result exceeds the number of existing pairs.

    Args:
        effect: the effect in the existing pairs.
        margin: the equivalence margin; None if equivalence is not tested.
        level: error rate of a test for a difference, corrected for multiple testing.
        level_equivalent: error rate of a test for equivalence, corrected in the same way.

    Returns:
        None if ``MAX_COUNT`` pairs would not suffice.
    """

    def settles(count: int) -> bool:
        later = effect.with_count(count)
        size = abs(later.estimate)
        if size > 0 and size >= shown_from(later, level):
            return True
        if margin is None:
            return False
        if later.standard_error == 0:
            return size < margin
        needed = later.t_needed(level_equivalent, two_sided=False)
        # Both one-sided tests have to reject. The probability of this is at least the sum of their
        # powers minus 1.
        near, far = ((margin + side) / later.standard_error for side in (-size, size))
        return float(np.sum(stdtr(later.df, np.subtract((near, far), needed)))) - 1 >= POWER

    low, high = effect.count, MAX_COUNT
    if not settles(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high


def unseen_share(count: int, level: float) -> float:
    """Return the largest share of all networks in which harm may occur without being observed.

    If harm occurs in a share q of all networks, the probability that none of the ``count`` networks
    of a study has it is (1 - q)^count. The result is the q for which this probability is ``level``.
    """
    return float(-np.expm1(np.log(level) / count))
