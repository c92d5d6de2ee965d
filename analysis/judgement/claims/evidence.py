"""The values of one metric for a claim, or the reason why there is nothing to compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from analysis.arrays import Floats
from analysis.judgement.claims.claim import Claim, Labels, Point
from analysis.judgement.estimates import Statistics
from analysis.judgement.judging import find_resolution
from analysis.judgement.verdicts import Sides
from analysis.measures.catalogue import METRICS, OWN
from analysis.measures.contention import Contention, ContentionByRun
from analysis.measures.metric import Margin, Statistic

_METRIC = {metric.name: metric for metric in METRICS}


class Evidence:
    """The values of one metric for a claim.

    Attributes:
        metric: the metric.
        margin: the equivalence margin.
        bounded: whether the metric is a share, as in ``MetricPolicy``.
        labels: labels of levels and variants.
        class_name: the claim's class of clients.
    """

    def __init__(
        self,
        claim: Claim,
        metric: str,
        statistics: Statistics,
        margins: Mapping[str, float],
        labels: Labels,
        contention: ContentionByRun,
    ) -> None:
        own = {} if claim.margin is None else {metric: claim.margin}
        self._judged = OWN.with_margins({**margins, **own})[metric]
        self.class_name = claim.class_name
        self._statistics = statistics
        self.metric = _METRIC[metric]
        self.margin: Margin = self._judged.margin
        self.bounded = self._judged.bounded
        self.labels = labels
        self._contention_of_runs = contention

    def statistics_at(self, point: Point) -> Mapping[int, Statistic]:
        """Return seed -> statistic at a point (a variant at a level); empty without runs."""
        class_statistics = self._statistics.get((point.level, self.class_name), {})
        return class_statistics.get((self.metric.name, point.variant), {})

    def seeds(self, points: Sequence[Point]) -> list[int]:
        """Return the networks with runs at all of the points, ascending."""
        return sorted(set.intersection(*(set(self.statistics_at(point)) for point in points)))

    def contention(self, point: Point, seed: int) -> Contention | None:
        """Return how clients compete in a network's runs at ``point``; None if it is unknown."""
        return self._contention_of_runs.get((point.level, point.variant, seed))

    def arrays(self, points: Sequence[Point]) -> tuple[Floats, ...]:
        """Return the values at each point, of shape (networks,), for networks with all points."""
        seeds = self.seeds(points)
        return tuple(self._array(point, seeds) for point in points)

    def _array(self, point: Point, seeds: Iterable[int]) -> Floats:
        return np.array([self.statistics_at(point)[seed].value for seed in seeds], dtype=np.float64)

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
                self._judged,
                self._statistics[point.level, self.class_name],
                (point.variant,),
            )
            for point in points
        )

    def paired(self, points: Sequence[Point], variant: Floats, baseline: Floats) -> Sides:
        """Return a comparison of paired values, with the metric's rounding step at ``points``."""
        return Sides(variant, baseline, self.margin, None, self.resolution(points))

    def _name(self, point: Point) -> str:
        return f"{self.labels.variant(point.variant)} at {self.labels.level(point.level)}"
