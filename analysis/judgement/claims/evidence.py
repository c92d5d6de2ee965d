"""What the runs say of one metric where a claim looks: values, or why there are none to compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from analysis.arrays import Floats
from analysis.judgement.claims.claim import Claim, Labels, Point
from analysis.judgement.judging import Statistics, resolution_of
from analysis.judgement.margins import with_margins
from analysis.judgement.verdicts import Paired
from analysis.measures.catalogue import METRICS
from analysis.measures.leeway import Leeway, Leeways
from analysis.measures.metric import Margin, Statistic

_METRIC = {metric.name: metric for metric in METRICS}


class Evidence:
    """What the runs say of one metric where a claim looks.

    Attributes:
        metric: the metric.
        margin: what counts as the same.
        bounded: whether it is a share, as in ``Judged``.
        labels: how readers know levels and variants.
        class_name: the claim's class of clients.
    """

    def __init__(
        self,
        claim: Claim,
        metric: str,
        statistics: Statistics,
        margins: Mapping[str, float],
        labels: Labels,
        leeways: Leeways,
    ) -> None:
        own = {} if claim.margin is None else {metric: claim.margin}
        self._judged = with_margins({**margins, **own})[metric]
        self.class_name = claim.class_name
        self._statistics = statistics
        self.metric = _METRIC[metric]
        self.margin: Margin = self._judged.margin
        self.bounded = self._judged.bounded
        self.labels = labels
        self._leeways = leeways

    def of(self, point: Point) -> Mapping[int, Statistic]:
        """Seed -> statistic at a point; empty without runs."""
        of_class = self._statistics.get((point.level, self.class_name), {})
        return of_class.get((self.metric.name, point.variant), {})

    def seeds(self, points: Sequence[Point]) -> list[int]:
        """Return the networks that all of the points have runs on, ascending."""
        return sorted(set.intersection(*(set(self.of(point)) for point in points)))

    def leeway(self, point: Point, seed: int) -> Leeway | None:
        """Return what a network's runs say of whether a choice could matter; None if not known."""
        return self._leeways.get((point.level, point.variant, seed))

    def arrays(self, points: Sequence[Point]) -> tuple[Floats, ...]:
        """Return the values at each point, on their common networks, each of shape (networks,)."""
        seeds = self.seeds(points)
        return tuple(self._array(point, seeds) for point in points)

    def _array(self, point: Point, seeds: Iterable[int]) -> Floats:
        return np.array([self.of(point)[seed].value for seed in seeds], dtype=np.float64)

    def missing(self, points: Sequence[Point]) -> str:
        """What is not there to be compared; "" if all is."""
        for point in points:
            if not self.of(point):
                return f"no runs of {self._name(point)}"
        seeds = self.seeds(points)
        if not seeds:
            return "no common network"
        for point in points:
            without = [s for s in seeds if self.of(point)[s].value is None]
            if without:
                # To leave those networks out would be to select.
                count = f"{len(without)} of {len(seeds)} networks"
                reason = self.of(point)[without[0]].reason
                return f"{self._name(point)} lacks a value in {count}: {reason}"
        return ""

    def resolution(self, points: Sequence[Point]) -> float:
        """The metric's step at these points, in its own unit."""
        return max(
            resolution_of(
                self.metric.name,
                self._judged,
                self._statistics[point.level, self.class_name],
                (point.variant,),
            )
            for point in points
        )

    def paired(self, points: Sequence[Point], variant: Floats, baseline: Floats) -> Paired:
        """Values at these points against each other, in pairs."""
        return Paired(variant, baseline, self.margin, None, self.resolution(points))

    def _name(self, point: Point) -> str:
        return f"{self.labels.variant(point.variant)} at {self.labels.level(point.level)}"
