"""Equivalence margins of an experiment, which override the metrics' defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from analysis.errors import AnalysisError
from analysis.measures.catalogue import OWN
from analysis.measures.metric import Margin, MetricPolicy


def with_margins(
    margins: Mapping[str, float], judged: Mapping[str, MetricPolicy] = OWN.judged
) -> dict[str, MetricPolicy]:
    """Return the policy for each metric, with the margins of an experiment.

    Args:
        margins: metric -> size, > 0: a share of the baseline, or a share of streams for rates.
        judged: a table to use instead of this project's metrics.

    Raises:
        AnalysisError: a margin is not positive, or is for a metric without a verdict.
    """
    table = dict(judged)
    for name, margin in margins.items():
        if name not in table:
            raise AnalysisError(
                f"{name} gets no verdict, so it has no margin",
                f"metrics with a margin: {', '.join(table)}",
            )
        try:
            table[name] = replace(
                table[name], margin=Margin(margin, relative=table[name].margin.relative)
            )
        except ValueError as error:
            raise AnalysisError(f"margin of {name}: {error}") from None
    return table
