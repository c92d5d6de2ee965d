"""All directions of claims, by the name in files of claims."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.judgement.claims.kinds import bound, equivalence, gap, order
from analysis.judgement.claims.statement import Direction

DIRECTIONS: Mapping[str, Direction] = {
    direction.name: direction
    for direction in (
        order.LOWEST,
        order.ASCENDING,
        order.FALLS,
        gap.FALLS_AGAINST,
        order.HIGHEST,
        order.DESCENDING,
        order.RISES,
        gap.RISES_AGAINST,
        equivalence.EQUIVALENT,
        gap.CONVERGES,
        bound.BELOW,
        bound.ABOVE,
        bound.ABOUT,
    )
}
