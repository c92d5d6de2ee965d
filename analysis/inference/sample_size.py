"""How many pairs a verdict takes."""

from __future__ import annotations

from analysis.inference.effects import Effect
from analysis.inference.intervals import t_quantile

MAX_SEEDS_ASKED = 10_000
"""Where more would be needed, it is no use to say how many."""


def count_to_settle(
    effect: Effect, margin: float | None, level: float, power: float = 0.8
) -> int | None:
    """How many pairs in all would show a difference, or the lack of one, with this power.

    As if the present estimate and spread were the true ones. A smaller number than there are pairs
    already means that they were unlucky; it is then taken to be one more.

    Args:
        effect: from the pairs that there are.
        margin: what counts as equivalent, or None.
        level: error rate of one test, corrected for the number of tests.
        power: chance to get there.

    Returns:
        None where ``MAX_SEEDS_ASKED`` would not do.
    """

    def settles(count: int) -> bool:
        later = effect.with_count(count)
        sure = t_quantile(power, later.df)
        size = abs(later.estimate)
        needed = t_quantile(1 - level / 2, later.df) + sure
        if size > 0 and size >= needed * later.standard_error:
            return True
        needed = t_quantile(1 - level, later.df) + sure
        return margin is not None and margin - size >= needed * later.standard_error

    low, high = effect.count, MAX_SEEDS_ASKED
    if not settles(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high
