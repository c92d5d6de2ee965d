"""All that a claim can say, by the name that files of claims use."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.judgement.claims.kinds import alike, bound, gap, order
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
        alike.ALIKE,
        gap.CONVERGES,
        bound.BELOW,
        bound.ABOVE,
        bound.ABOUT,
    )
}
