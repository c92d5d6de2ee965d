"""How many pairs a verdict takes."""

from __future__ import annotations

from analysis.inference.effects import Effect
from analysis.inference.intervals import t_quantile
from analysis.inference.rare import p_rare

MAX_SEEDS_ASKED = 10_000
"""Where more would be needed, it is no use to say how many."""


def count_to_settle(
    effect: Effect,
    margin: float | None,
    level: float,
    power: float = 0.8,
    largest_unseen: float = 0.0,
) -> int | None:
    """How many pairs in all would show a difference, or the lack of one, with this power.

    As if the present estimate and spread were the true ones. A smaller number than there are pairs
    already means that they were unlucky; it is then taken to be one more.

    Args:
        effect: from the pairs that there are.
        margin: what counts as equivalent, or None.
        level: error rate of one test, corrected for the number of tests.
        power: chance to get there.
        largest_unseen: by how much a network that was not seen may be off, where that is asked for
            equivalence (``rare``); 0: it is not.

    Returns:
        None where ``MAX_SEEDS_ASKED`` would not do.
    """

    def settles(count: int) -> bool:
        later = effect.with_count(count)
        sure = t_quantile(power, later.df)
        size = abs(later.estimate)
        needed = later.t_needed(level / 2, both_sides=True) + sure
        if size > 0 and size >= needed * later.standard_error:
            return True
        if margin is None:
            return False
        if largest_unseen and p_rare(size, margin, largest_unseen, count) > level:
            return False
        needed = later.t_needed(level, both_sides=False) + sure
        return margin - size >= needed * later.standard_error

    low, high = effect.count, MAX_SEEDS_ASKED
    if not settles(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high
