"""Verdicts on the endpoints of a study, by variant and level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.inference.intervals import Interval
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Verdict


@dataclass(frozen=True)
class VariantComparison:
    """A comparison of one variant with the baseline at one level.

    Attributes:
        place: label of the level; "" if there is only one.
        judgements: judgements of the endpoints, in their order; an endpoint that was not judged has
            no grade.
        key: names of level and variant, which are unique, unlike labels.
    """

    place: str
    variant: str
    baseline: str
    judgements: tuple[Judgement, ...]
    key: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """Label of variant and level, for readers."""
        return f"{self.variant}, {self.place}" if self.place else self.variant

    @property
    def networks(self) -> int:
        """The largest number of networks of any endpoint."""
        return max((judgement.verdict.count for judgement in self.judgements), default=0)


def size_in_margins(found: Verdict) -> float:
    """Return an effect as a multiple of its margin, so that ratios and differences can be ordered.

    The result is 0 without an effect or a margin.
    """
    if found.effect is None or not found.margin:
        return 0.0
    effect = found.effect.estimate
    if found.scale == "ratio":
        return float(abs(np.log(effect)) / np.log(found.margin))
    # If the margin is almost zero, the quotient can be infinite.
    return min(abs(effect) / found.margin, 1e300)


def judgement_record(judgement: Judgement) -> dict[str, object]:
    """Return a judgement as one row of a CSV file: column -> value."""
    metric, verdict = judgement.metric, judgement.verdict
    return {
        "class": judgement.class_name,
        "metric": metric.name,
        "unit": metric.unit,
        "endpoint": None if judgement.endpoint is None else judgement.endpoint + 1,
        "note": "; ".join(filter(None, (verdict.reason, verdict.caution))),
        **{
            name: getattr(verdict, name)
            for name in (
                *("scale", "margin", "grade", "direction", "p_different", "p_equivalent"),
                *("count", "agreeing", "detectable", "more_networks"),
            )
        },
        **interval_record(verdict.effect),
    }


def interval_record(
    interval: Interval | None, names: Sequence[str] = ("effect", "low", "high")
) -> dict[str, float | None]:
    """Return the estimate and the bounds as columns of a CSV file: column -> value."""
    values = (None,) * 3 if interval is None else (interval.estimate, interval.low, interval.high)
    return dict(zip(names, values, strict=True))
