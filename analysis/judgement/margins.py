"""Margins of an experiment in place of the metrics' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from analysis.errors import AnalysisError
from analysis.measures.catalogue import OWN
from analysis.measures.metric import Judged, Margin


def with_margins(
    margins: Mapping[str, float], judged: Mapping[str, Judged] = OWN.judged
) -> dict[str, Judged]:
    """How each metric is judged, with an experiment's own margins.

    Args:
        margins: metric -> size, > 0: a share of the baseline, or a share of streams for rates.
        judged: another table instead of that of this project's metrics.

    Raises:
        AnalysisError: a margin that is not positive, or for a metric that gets no verdict.
    """
    table = dict(judged)
    for name, margin in margins.items():
        if name not in table:
            raise AnalysisError(
                f"there is no verdict on {name}, so it has no margin",
                f"metrics with a margin: {', '.join(table)}",
            )
        try:
            table[name] = replace(
                table[name], margin=Margin(margin, relative=table[name].margin.relative)
            )
        except ValueError as error:
            raise AnalysisError(f"margin of {name}: {error}") from None
    return table
