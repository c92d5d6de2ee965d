"""The values of one metric for a claim, or the reason why there is nothing to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Floats
from analysis.judgement.claims.claim import Claim, Labels, Point
from analysis.judgement.estimates import Statistics
from analysis.judgement.judging import find_resolution
from analysis.measures.contention import Contention, ContentionByRun
from analysis.measures.metric import Metric, MetricPolicy, Statistic


@dataclass(frozen=True)
class Evidence:
    """The values of one metric for a claim, and how they are judged."""

    claim: Claim
    metric: Metric
    policy: MetricPolicy
    statistics: Statistics
    labels: Labels
    contention_of_runs: ContentionByRun

    def statistics_at(self, point: Point) -> Mapping[int, Statistic]:
        """Return seed -> statistic at a point (a variant at a level); empty without runs."""
        class_statistics = self.statistics.get((point.level, self.claim.class_name), {})
        return class_statistics.get((self.metric.name, point.variant), {})

    def seeds(self, points: Sequence[Point]) -> list[int]:
        """Return the networks with runs at all of the points, ascending."""
        return sorted(set.intersection(*(set(self.statistics_at(point)) for point in points)))

    def contention(self, point: Point, points: Sequence[Point]) -> list[Contention | None]:
        """Return how clients compete at ``point`` in each network with runs at all ``points``.

        The element of a network is None if it is unknown.
        """
        place = point.level, point.variant
        return [self.contention_of_runs.get((*place, seed)) for seed in self.seeds(points)]

    def arrays(self, points: Sequence[Point]) -> tuple[Floats, ...]:
        """Return the values at each point, of shape (networks,), for networks with all points."""
        seeds = self.seeds(points)
        by_point = map(self.statistics_at, points)
        return tuple(np.array([one[seed].value for seed in seeds], np.float64) for one in by_point)

    def missing(self, points: Sequence[Point]) -> str:
        """Return which values are missing for a comparison; "" if none are."""
        for point in points:
            if not self.statistics_at(point):
                return f"no runs of {self._name(point)}"
        seeds = self.seeds(points)
        if not seeds:
            return "no common network"
        for point in points:
            without = [s for s in seeds if self.statistics_at(point)[s].value is None]
            if without:
                # Excluding these networks would bias the comparison.
                count = f"{len(without)} of {len(seeds)} networks"
                reason = self.statistics_at(point)[without[0]].reason
                return f"{self._name(point)} lacks a value in {count}: {reason}"
        return ""

    def resolution(self, points: Sequence[Point]) -> float:
        """Return the largest rounding step of the metric at these points, in the metric's unit."""
        return max(
            find_resolution(
                self.metric.name,
                self.policy,
                self.statistics[point.level, self.claim.class_name],
                (point.variant,),
            )
            for point in points
        )

    def _name(self, point: Point) -> str:
        return f"{self.labels.variant(point.variant)} at {self.labels.level(point.level)}"
