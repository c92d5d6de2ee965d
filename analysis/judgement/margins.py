"""What counts as the same, metric by metric, and how finely each metric is known.

The one place that says so; an experiment's ``margins`` replace single sizes. Counts of streams
have no margin: their rates have, which do not depend on how many streams were started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from analysis.errors import AnalysisError
from analysis.judgement.verdicts import Margin
from analysis.measures.catalogue import METRICS, Quantity


@dataclass(frozen=True)
class Judged:
    """How one metric is judged.

    Attributes:
        margin: what counts as the same.
        step: what ``resolution`` counts.
        resolution: "unit": step of the value in the metric's unit. "stream": step of the value
            in streams, of those the run started. "heartbeat": in seconds, where any value is a
            whole number of steps and so comes from heartbeats; else a time as any other.
    """

    margin: Margin
    resolution: float
    step: Literal["unit", "stream", "heartbeat"] = "unit"


TIMES = Margin(0.05)
TAILS = Margin(0.10)
"""p99: a run of a few hundred streams knows it from a handful of them."""
RATES = Margin(0.01, relative=False)
"""One percentage point. A share of a rate near zero would be no margin at all."""

INDICES = Margin(0.02, relative=False)
"""Of an index between 1/n and 1."""

SHARES = Margin(0.05, relative=False)
"""Of a share of a file that a single stream has or lacks, of cells, or of their time."""

TIME_RESOLUTION_S = 1e-6
"""TGen logs microseconds."""

HEARTBEAT_S = 1.0
"""Between TGen's heartbeats by default: gaps after the first byte are known no better."""

RATE_METRICS = ("timeout_rate", "timeout_incidence", "failure_rate", "starved_share")


def _judged() -> dict[str, Judged]:
    table = {name: Judged(RATES, 1.0, "stream") for name in RATE_METRICS}
    for metric in METRICS:
        if metric.unit == "s":
            margin = TAILS if "_p99_" in metric.name else TIMES
            table[metric.name] = Judged(margin, TIME_RESOLUTION_S)
            if metric.name.startswith("longest_gap"):
                table[metric.name] = Judged(margin, HEARTBEAT_S, "heartbeat")
    table["jain_index_clients"] = Judged(INDICES, 1e-6)
    table["jain_index_streams"] = Judged(INDICES, 1e-6)
    for name in ("starvation", "last_three_lead", "cell_quiet_longer", "cell_flush_share"):
        table[name] = Judged(SHARES, 1e-6)
    table["cell_spike_45s"] = Judged(Margin(0.05), 1e-6)
    table["served_streams"] = Judged(Margin(0.05), 1e-6)
    table["goodput_bytes_per_s"] = Judged(Margin(0.05), 1.0)
    table["early_rate_bytes_per_s"] = Judged(Margin(0.05), 1.0)
    table["streams_started"] = Judged(Margin(0.05), 1.0)
    return table


JUDGED: Mapping[str, Judged] = _judged()
"""Metric -> how it is judged. A metric that is not here gets no verdict."""


@dataclass(frozen=True)
class Catalogue:
    """A set of quantities defined in one way, and how each is judged.

    Attributes:
        quantities: in the order in which tables show them.
        judged: name -> how it is judged; one that is not here gets no verdict.
    """

    quantities: tuple[Quantity, ...]
    judged: Mapping[str, Judged]

    def quantity(self, name: str) -> Quantity | None:
        """The quantity of that name."""
        return next((quantity for quantity in self.quantities if quantity.name == name), None)


OWN = Catalogue(METRICS, JUDGED)
"""The metrics of this project."""


def with_margins(
    margins: Mapping[str, float], judged: Mapping[str, Judged] = JUDGED
) -> dict[str, Judged]:
    """``JUDGED`` with an experiment's own margins.

    Args:
        margins: metric -> size, > 0: a share of the baseline, or a share of streams for rates.
        judged: another table instead of ``JUDGED``.

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
