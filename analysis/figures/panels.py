"""Panels with a line for each variant, and the values of a run that they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.arrays import Floats
from analysis.formats.study import Level
from analysis.measures.data import ALL, ClassData
from analysis.measures.families.durations import Duration, duration_over_grid, duration_quantiles
from analysis.measures.over_time import throughput_over_time, timeouts_over_time

SHARES: Floats = np.round(np.arange(0.02, 0.985, 0.02), 2)
"""Shares at which quantile functions are compared.

Extreme shares are left out, because they depend on single streams.
"""

LEAD_S = 60.0
"""Length of the time that is shown before the measured span."""

X_LABELS = {
    "time": "Simulated time (s)",
    "duration": "Time since the stream's start (s)",
    "share": "Share of streams",
}


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    Attributes:
        name: name in the CSV; describes y and its unit.
        x_axis: "time" (simulated time), "duration" (time since a stream's start, logarithmic) or
            "share" (share of streams). With "share", lines are ratios to the baseline.
        y_label: label of the y axis, with its unit.
        class_name: class of clients whose values the panel shows; None for the level's main class.
        values: a function of a run's data of this class, and of x values of shape (x,). It returns
            the run's values at these x values, with the same shape.
        scale: factor that converts ``values`` to the unit of ``y_label``.
        counts: whether y is a count, and therefore a whole number that is never below 0.
        nothing: text to show if all values are 0; "" to draw a line at 0.
        difference: label of the differences to the baseline, with a unit, and the factor that
            converts ``values`` to this unit; None if differences are not shown.
    """

    name: str
    title: str
    x_axis: Literal["time", "duration", "share"]
    y_label: str
    class_name: str | None
    values: Callable[[ClassData, Floats], Floats]
    scale: float = 1.0
    counts: bool = False
    nothing: str = ""
    difference: tuple[str, float] | None = None

    @property
    def compares(self) -> bool:
        """True if lines are ratios to the baseline."""
        return self.x_axis == "share"

    def grid(self, level: Level) -> Floats:
        """Return the x values, which are common to all runs of a level."""
        if self.x_axis == "share":
            return SHARES
        if self.x_axis == "time":
            begin = np.floor(max(0.0, level.measured_start_s - LEAD_S))
            return np.arange(begin, np.floor(level.stop_s) + 1.0)
        # Use 200 points per decade from 10 ms on: on paper, the distance between them is less than
        # the width of a line.
        limit = max(level.horizon_s(self._class_at(level)), 1.0)
        return np.geomspace(0.01, limit, round(200 * np.log10(limit / 0.01)) + 1)

    def keep(self, run: Mapping[str, ClassData], level: Level) -> Floats:
        """Return the values of a run; NaN if the run has no such class."""
        x = self.grid(level)
        name = self._class_at(level)
        if name not in run:
            return np.full(x.shape, np.nan)
        return self.values(run[name], x)

    def _class_at(self, level: Level) -> str:
        return level.main_class if self.class_name is None else self.class_name


def incidence_panel(duration: Duration) -> Panel:
    """Return a panel of the share of streams that took at most a given time."""
    return Panel(
        f"{duration.name}_cumulative_incidence",
        duration.label,
        "duration",
        "Share of streams",
        None,
        lambda data, grid_s: duration_over_grid(data, duration, grid_s),
        difference=("Difference (points)", 100.0),
    )


def quantile_panel(duration: Duration) -> Panel:
    """Return a panel of a time's quantiles, as ratios to the quantiles of the baseline."""
    return Panel(
        f"{duration.name}_quantile_ratio",
        duration.label,
        "share",
        "Ratio to the baseline",
        None,
        lambda data, shares: duration_quantiles(data, duration, shares),
    )


THROUGHPUT_TIMEOUTS = (
    Panel(
        "throughput_bytes_per_s",
        "Network throughput",
        "time",
        "Throughput (MB/s)",
        ALL,
        throughput_over_time,
        scale=1e-6,
        difference=("Difference (MB/s)", 1e-6),
    ),
    Panel(
        "cumulative_timeouts",
        "Download timeouts",
        "time",
        "Cumulative timeouts",
        ALL,
        timeouts_over_time,
        counts=True,
        nothing="no timeouts",
        difference=("Difference", 1.0),
    ),
)
