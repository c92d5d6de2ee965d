"""What a metric is: a number of one run, its name and unit, and what counts as the same.

The metrics themselves stand in ``families``, by what they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from analysis.formats.columns import Outcome
from analysis.formats.format_model import LARGEST_VALUE, LEAST_VALUE
from analysis.measures.data import ClassData

QUANTILES = (0.5, 0.9, 0.99)
"""The quantiles that every distribution is told by."""


def rank(q: float) -> str:
    """A quantile's part of a metric's name."""
    return f"p{round(100 * q)}"


def rank_words(q: float) -> str:
    """A quantile's part of a metric's label."""
    return "median" if q == 0.5 else rank(q)


@dataclass(frozen=True)
class Statistic:
    """A number, and what it leaves out; or the reason why there is none.

    repeats: the values of a network's runs, whose mean ``value`` is; empty where there is one run.
    """

    value: float | None
    reason: str = ""
    repeats: tuple[float, ...] = ()


NO_HEARTBEAT = "no heartbeat in the logs"
"""Why it is not known how much a class read, where no client says so."""

NOT_PUBLISHED = Statistic(None, "not in a published pack")
"""Of a metric that takes what a published pack leaves out."""

NOTHING_THERE = Statistic(None, "the run has nothing that it could be taken of")
"""Of a metric that other runs of the level have: to leave such a run out would be to select."""


@dataclass(frozen=True)
class Margin:
    """What counts as the same.

    Attributes:
        value: > 0. Relative: a share of the baseline, 0.05 for ratios from 1/1.05 to 1.05.
            Absolute: in the metric's unit.
        relative: which of the two.
    """

    value: float
    relative: bool = True

    def __post_init__(self) -> None:
        if not (self.value > 0 and np.isfinite(self.value)):
            raise ValueError(f"a margin is a positive number, got {self.value}")


@dataclass(frozen=True)
class Judged:
    """How one metric is judged.

    Attributes:
        margin: what counts as the same.
        step: what ``resolution`` counts.
        resolution: "unit": step of the value in the metric's unit. "stream": step of the value
            in streams, of those the run started. "heartbeat": in seconds, where any value is a
            whole number of steps and so comes from heartbeats; else a time as any other.
        rate: it is a share of streams or circuits that failed, near zero in most networks.
        bounded: it is a share of something, so that 0 or 1 in all runs shows nothing.
    """

    margin: Margin
    resolution: float
    step: Literal["unit", "stream", "heartbeat"] = "unit"
    rate: bool = False
    bounded: bool = False


TIME_RESOLUTION_S = 1e-6
"""TGen logs microseconds."""

HEARTBEAT_S = 1.0
"""Between TGen's heartbeats by default: gaps after the first byte are known no better."""

TIME = Judged(Margin(0.05), TIME_RESOLUTION_S)

TAIL = Judged(Margin(0.10), TIME_RESOLUTION_S)
"""p99: a run of a few hundred streams knows it from a handful of them."""

RATE = Judged(Margin(0.01, relative=False), 1.0, "stream", rate=True, bounded=True)
"""One percentage point. A share of a rate near zero would be no margin at all."""

INDEX = Judged(Margin(0.02, relative=False), 1e-6)
"""Of an index between 1/n and 1."""

SHARE = Judged(Margin(0.05, relative=False), 1e-6, bounded=True)
"""Of a share of a file that a single stream has or lacks, of cells, or of their time."""

NUMBER = Judged(Margin(0.05), 1e-6)
"""Of any other number."""

WHOLE = Judged(Margin(0.05), 1.0)
"""Of what is counted in whole bytes or streams."""


def time_at(q: float) -> Judged:
    """How a quantile of times is judged."""
    return TAIL if q >= 0.99 else TIME


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What one number of a run is, wherever the number comes from.

    Attributes:
        name: as in summary.csv; ends with its unit where it has one.
        label: for readers.
        unit: of the value: "s", "B/s", "streams", or "1" for a number without one.
        better: which direction is the better one; "" where neither is.
        scope: "class": each class on its own; "both": also all classes together.
        headline: shown in the report's first table.
        judged: what counts as the same; None: it gets no verdict.
        duration: the time of streams that it is of, a name of ``durations``; "" if of none.
        without_failures: the quantity that it repeats where no stream fails; "" if none.
        share_of: it is the share of streams that ended in one of these ways; () if it is none.
        carried: it is what the network carries, as long as it is asked of all classes together.
        quantile: which quantile of a class's streams it is; None if it is none.
        counted_by: the metric that counts the streams which it is a quantile or a share of; "" if
            there is none.
        drawn: which runs have it is drawn with the network and no outcome of it, as the roles of
            traced relays are; of other metrics a run that lacks one has no value.
        is_signed: whether it can be negative, down to -1.
    """

    name: str
    label: str
    unit: str
    better: Literal["lower", "higher", ""]
    scope: Literal["class", "both"] = "class"
    headline: bool = False
    judged: Judged | None
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


def of_clients(data: ClassData) -> bool:
    """Whether a class's data are of clients with streams, even those that are load alone."""
    return data.transfer is None and data.relayed is None


def _of_streams(data: ClassData) -> bool:
    return of_clients(data) and not data.load


@dataclass(frozen=True, kw_only=True)
class Metric(Quantity):
    """A quantity that is computed from a run's records.

    Attributes:
        compute: the statistic of one class of one run.
        when: whether a class's data are of the kind that it is about; else it is left out. Without:
            whether they are of streams.
    """

    compute: Callable[[ClassData], Statistic]
    when: Callable[[ClassData], bool] = _of_streams


@dataclass(frozen=True)
class Catalogue:
    """A set of quantities defined in one way, in the order in which tables show them."""

    quantities: tuple[Quantity, ...]

    @cached_property
    def judged(self) -> Mapping[str, Judged]:
        """Name -> how it is judged; one that is not here gets no verdict."""
        return {one.name: one.judged for one in self.quantities if one.judged is not None}

    def quantity(self, name: str) -> Quantity | None:
        """The quantity of that name."""
        return next((quantity for quantity in self.quantities if quantity.name == name), None)
