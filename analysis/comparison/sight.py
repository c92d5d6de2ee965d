"""What a comparison could have shown: from which size on a change would have been called different.

Its power is that of ``inference.sample_size``, the level that of Holm's first step: of one metric
that changes alone. Where several change together, each is seen a little sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.comparison.comparing import Comparison, MetricRow
from analysis.inference.sample_size import shown_from, shown_from_spreads

LARGEST_LOG = 100.0
"""Of a factor; what is larger has no number."""


@dataclass(frozen=True)
class Sight:
    """What as many seeds see, with the chance ``POWER``.

    Attributes:
        seeds: pairs, or runs of the smaller side, where there are fewest.
        spreads: the smallest change that is seen, in standard deviations of the differences between
            pairs; None where one pair shows no spread, or there are none.
        changes: primary metrics, each with the smallest change of it that is seen, on the scale of
            its effect (a factor above 1, or a difference); none where the records are the same
            bytes, which tell no noise.
    """

    seeds: int
    spreads: float | None
    changes: tuple[tuple[MetricRow, float], ...] = ()

    def change_of(self, row: MetricRow) -> float | None:
        """The smallest change of one primary metric that is seen; None where that is not known."""
        return next((size for other, size in self.changes if other is row), None)


def sight_of(comparison: Comparison) -> Sight:
    """What a comparison with so many seeds and this noise sees."""
    primary = comparison.primary
    seeds = min((row.judgement.verdict.count for row in primary), default=0)
    level = _level(comparison)
    spreads = shown_from_spreads(seeds, level) if seeds > 1 and comparison.paired else None
    if comparison.identical:
        return Sight(seeds, spreads)
    return Sight(seeds, spreads, tuple(_changes(primary, level)))


def _level(comparison: Comparison) -> float:
    """The level of a test at Holm's first step, in the largest family of primary metrics."""
    families = [row.match.label for row in comparison.primary]
    largest = max(map(families.count, families), default=1)
    return comparison.error_level / max(1, len(set(families))) / largest


def _changes(rows: list[MetricRow], level: float) -> list[tuple[MetricRow, float]]:
    found = []
    for row in rows:
        verdict = row.judgement.verdict
        if verdict.measured is not None and verdict.measured.standard_error > 0:
            size = shown_from(verdict.measured, level)
            ratio = verdict.scale == "ratio"
            found.append((row, float(np.exp(min(size, LARGEST_LOG))) if ratio else size))
    return found
