"""Definition of a metric: name, unit, computation, and equivalence margin.

The metrics themselves are defined in ``families``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from analysis.errors import AnalysisError
from analysis.formats.columns import Outcome
from analysis.formats.format_model import LARGEST_VALUE, LEAST_VALUE
from analysis.measures.data import ClassData

QUANTILES = (0.5, 0.9, 0.99)
"""The quantiles reported for every distribution."""


def rank(q: float) -> str:
    """Return the part of a metric's name that identifies a quantile, such as "p90"."""
    return f"p{round(100 * q)}"


def rank_label(q: float) -> str:
    """Return the part of a metric's label that identifies a quantile."""
    return "median" if q == 0.5 else rank(q)


@dataclass(frozen=True)
class Statistic:
    """A value with a note on what it excludes, or the reason for a missing value.

    ``repeats`` has the values of a network's runs, of which ``value`` is the mean; it is empty if
    there is only one run.
    """

    value: float | None
    reason: str = ""
    repeats: tuple[float, ...] = ()


NO_HEARTBEAT = "no heartbeat in the logs"
"""The reason why a class's throughput is unknown if its clients log no heartbeat."""

NOT_PUBLISHED = Statistic(None, "not in a published pack")
"""The value of a metric that needs data which published packs omit."""

NO_DATA = Statistic(None, "this run has no data for the metric")
"""Placeholder for a run without this metric if other runs of the level have it.

Dropping such a run would bias the comparison.
"""


@dataclass(frozen=True)
class Margin:
    """An equivalence margin: differences within it count as no change.

    Attributes:
        value: the size, > 0. If the margin is relative, it is a share of the baseline, such as 0.05
            for ratios from 1/1.05 to 1.05. Otherwise it is in the metric's unit.
        relative: whether the margin is relative.
    """

    value: float
    relative: bool = True

    def __post_init__(self) -> None:
        if not (self.value > 0 and np.isfinite(self.value)):
            raise ValueError(f"a margin must be a positive number, got {self.value}")


@dataclass(frozen=True)
class MetricPolicy:
    """Equivalence margin and resolution of a metric.

    Attributes:
        resolution: the rounding step of the metric's values; 0 if it is unknown.
        step: the meaning of ``resolution``. With "unit", it is in the metric's unit. With "stream",
            it is a number of streams, and is divided by the number of streams that a run starts.
            With "heartbeat", it is in seconds if at least one value is a whole number of
            heartbeats; otherwise the resolution is ``TIME_RESOLUTION_S``.
        rate: whether the metric is a share of failed streams or circuits, which is near zero in
            most networks.
        bounded: whether the metric is a share. A share of 0 in all runs, or of 1 in all runs, is
            not evidence on a difference between variants.
    """

    margin: Margin
    resolution: float
    step: Literal["unit", "stream", "heartbeat"] = "unit"
    rate: bool = False
    bounded: bool = False


TIME_RESOLUTION_S = 1e-6
"""Rounding step of times, which TGen logs in microseconds."""

HEARTBEAT_S = 1.0
"""TGen's default heartbeat interval, and the resolution of service gaps after the first byte."""

TIME = MetricPolicy(Margin(0.05), TIME_RESOLUTION_S)

TAIL = MetricPolicy(Margin(0.10), TIME_RESOLUTION_S)
"""Used for p99: the margin is wider, because a run has only a few streams beyond p99."""

RATE = MetricPolicy(Margin(0.01, relative=False), 1.0, "stream", rate=True, bounded=True)
"""Used for rates of failures. The margin is one percentage point: a relative margin would vanish
for a rate near zero."""

INDEX = MetricPolicy(Margin(0.02, relative=False), 1e-6)
"""Used for an index between 1/n and 1."""

SHARE = MetricPolicy(Margin(0.05, relative=False), 1e-6, bounded=True)
"""Used for the share of a file that a stream has or lacks, and for shares of cells or of time."""

NUMBER = MetricPolicy(Margin(0.05), 1e-6)
"""Used for any other number."""

WHOLE = MetricPolicy(Margin(0.05), 1.0)
"""Used for numbers of streams, and for bytes per second."""


def time_at(q: float) -> MetricPolicy:
    """Return the policy for a quantile of times."""
    return TAIL if q >= 0.99 else TIME


@dataclass(frozen=True)
class Quantity:
    """The definition of a number that is computed from a run's records, or imported.

    Attributes:
        name: the name in summary.csv; it ends with the unit if the quantity has one.
        label: the name on pages and in figures.
        unit: unit of the value: "s", "B/s", "streams", or "1" for a dimensionless number.
        judged: margin and resolution; None if the metric gets no verdict.
        scope: "class" to compute it for each class, "both" also for all classes together.
        headline: whether the report's first table shows the quantity.
        duration: name of the ``Duration`` whose distribution the quantity summarises, or "".
        without_failures: name of the quantity with the same value if no stream fails, or "".
        share_of: the outcomes, if this is the share of streams with certain outcomes; else ().
        carried: whether the value for all classes together is the traffic that the network carries.
        quantile: q if this is the q-quantile over a class's streams; None if it is not a quantile.
        counted_by: name of the metric that counts the streams of this quantile or share; "" if
            there is none.
        drawn: whether the random network, not the outcome of a run, determines which runs have the
            quantity. For example, the network determines the roles of the traced relays. If this is
            False and only some runs of a level have the quantity, it is missing in the others.
        is_signed: whether the value can be negative, down to -1.
    """

    name: str
    label: str
    unit: str
    better: Literal["lower", "higher", ""]
    judged: MetricPolicy | None
    _: KW_ONLY
    scope: Literal["class", "both"] = "class"
    headline: bool = False
    duration: str = ""
    without_failures: str = ""
    share_of: tuple[Outcome, ...] = ()
    carried: bool = False
    quantile: float | None = None
    counted_by: str = "streams_started"
    drawn: bool = False
    is_signed: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest possible value."""
        is_share = self.is_signed or (
            self.judged is not None and (self.judged.bounded or self.judged == INDEX)
        )
        return LEAST_VALUE if self.is_signed else 0.0, 1.0 if is_share else LARGEST_VALUE


def is_client_data(data: ClassData) -> bool:
    """Return whether the data are from clients with streams, including background load."""
    return data.transfer is None and data.relayed is None


def _is_stream_data(data: ClassData) -> bool:
    return is_client_data(data) and not data.load


@dataclass(frozen=True)
class Metric(Quantity):
    """A quantity that is computed from a run's records.

    ``compute`` returns the statistic of one class in one run, and ``when`` returns whether the
    metric applies to a class's data: by default, to data of streams except for background load.
    """

    compute: Callable[[ClassData], Statistic]
    _: KW_ONLY
    when: Callable[[ClassData], bool] = _is_stream_data


@dataclass(frozen=True)
class Catalogue:
    """The quantities of one source of results, in the order in which tables list them."""

    quantities: tuple[Quantity, ...]

    @cached_property
    def judged(self) -> Mapping[str, MetricPolicy]:
        """Names of the quantities that get a verdict, with their policies."""
        return {one.name: one.judged for one in self.quantities if one.judged is not None}

    def with_margins(self, margins: Mapping[str, float]) -> dict[str, MetricPolicy]:
        """Return the policies with the margins of an experiment.

        margins: metric -> size of its margin (> 0), as a share of the baseline if the metric's
        margin is relative, and otherwise in the metric's unit.

        Raises:
            AnalysisError: a margin is not positive, or is for a metric without a verdict.
        """
        table = dict(self.judged)
        for name, size in margins.items():
            if name not in table:
                raise AnalysisError(
                    f"{name} gets no verdict, so it has no margin",
                    f"metrics with a margin: {', '.join(table)}",
                )
            try:
                margin = replace(table[name].margin, value=size)
            except ValueError as error:
                raise AnalysisError(f"margin of {name}: {error}") from None
            table[name] = replace(table[name], margin=margin)
        return table

    def quantity(self, name: str) -> Quantity | None:
        """Return the quantity with this name, or None."""
        return next((quantity for quantity in self.quantities if quantity.name == name), None)
