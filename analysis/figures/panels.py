"""Kinds of figures made of panels with a line for each variant.

A panel converts one run to values on a grid that is common to all runs of a level. To add a kind,
add an entry to ``LINE_FIGURES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.arrays import Floats
from analysis.figures.style import Page
from analysis.formats.study import Level
from analysis.measures.data import ALL, ClassData
from analysis.measures.durations import duration_over_grid, duration_quantiles
from analysis.measures.over_time import (
    THROUGHPUT_WINDOW_S,
    throughput_over_time,
    timeouts_over_time,
)

WEB = "web"
"""The class whose times the second kind of figure shows, as in the paper."""

SHARES: Floats = np.round(np.arange(0.02, 0.985, 0.02), 2)
"""Shares at which quantile functions are compared. The extremes of a run are single streams."""

LEAD_S = 60.0
"""Length of the time before the measured span that is shown."""


Run = Mapping[str, ClassData]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        name: name in the CSV; describes y and its unit.
        title: title of the axes.
        x_label: with its unit.
        y_label: with its unit.
        grid: x values for a level, shape (g,).
        values: y values of one run on that grid, shape (g,).
        scale: factor from y's unit to that of ``y_label``.
        x_axis: "time" shows the run's clock, "duration" a logarithmic axis, "share" shares of
            streams.
        compares: whether to show ratios to the baseline.
        counts: whether y is a count, a whole number and never below 0.
        nothing: text if all values are 0; "" to draw them as a line.
        difference: label of the differences to the baseline, with their unit, and the factor from
            y's unit to that; None if they are not shown.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    grid: Callable[[Level], Floats]
    values: Callable[[Run, Floats], Floats]
    scale: float
    x_axis: Literal["time", "duration", "share"]
    compares: bool = False
    counts: bool = False
    nothing: str = ""
    difference: tuple[str, float] | None = None


@dataclass(frozen=True)
class LineFigure:
    """One kind of figure; its caption refers to the panels by their places on the page."""

    panels: tuple[Panel, ...]
    caption: Callable[[Level, Page], str]


def _time_grid(level: Level) -> Floats:
    begin = np.floor(max(0.0, level.measured_start_s - LEAD_S))
    return np.arange(begin, np.floor(level.stop_s) + 1.0)


def _duration_grid(level: Level) -> Floats:
    # Use 200 points per decade from 10 ms, less than the width of a line on paper.
    limit = max(level.horizon_s(WEB), 1.0)
    return np.geomspace(0.01, limit, round(200 * np.log10(limit / 0.01)) + 1)


def _web(values: Callable[[ClassData, Floats], Floats]) -> Callable[[Run, Floats], Floats]:
    def run_values(run: Run, grid_s: Floats) -> Floats:
        return values(run[WEB], grid_s) if WEB in run else np.full(grid_s.shape, np.nan)

    return run_values


def _throughput_caption(level: Level, page: Page) -> str:
    first, second = (place.capitalize() for place in page.places)
    return (
        f"{first}: bytes read by all clients per second, moving average over "
        f"{THROUGHPUT_WINDOW_S:g} s. "
        f"{second}: cumulative number of timeouts, of streams started in the measured span "
        f"({level.measured_start_s:g} s to {level.measured_end_s:g} s). Grey: outside that span."
    )


def _durations_caption(level: Level, page: Page) -> str:
    first, second = page.places
    timeout = level.classes[WEB].timeout_s if WEB in level.classes else None
    end = f"the timeout is {timeout:g} s" if timeout else "there is no timeout"
    return (
        f"Share of the web clients' streams that had their first payload byte ({first}) and 320 "
        f"KiB ({second}) by the given time since the stream's start. A failed stream "
        f"counts as never finishing; {end}. Streams open at the end are right-censored."
    )


def _quantile_panel(name: str, title: str) -> Panel:
    return Panel(
        f"{name}_quantile_ratio",
        title,
        "Share of streams",
        "Ratio to the baseline",
        lambda level: SHARES,
        _web(lambda data, shares: duration_quantiles(data, name, shares)),
        1.0,
        "share",
        compares=True,
    )


def _ratios_caption(level: Level, page: Page) -> str:
    first, second = page.places
    return (
        "By how much longer than under the baseline it took until a share of the web clients' "
        f"streams had their first payload byte ({first}) and 320 KiB ({second}): 1.1 is 10% "
        "longer. Ratios are taken between runs of the same network."
    )


LINE_FIGURES: dict[str, LineFigure] = {
    "throughput-timeouts": LineFigure(
        (
            Panel(
                "throughput_bytes_per_s",
                "Network throughput",
                "Simulated time (s)",
                "Throughput (MB/s)",
                _time_grid,
                lambda run, grid_s: throughput_over_time(run[ALL], grid_s),
                1e-6,
                "time",
                difference=("Difference (MB/s)", 1e-6),
            ),
            Panel(
                "cumulative_timeouts",
                "Download timeouts",
                "Simulated time (s)",
                "Cumulative timeouts",
                _time_grid,
                lambda run, grid_s: timeouts_over_time(run[ALL], grid_s),
                1.0,
                "time",
                counts=True,
                nothing="no timeouts",
                difference=("Difference", 1.0),
            ),
        ),
        _throughput_caption,
    ),
    "ttfb-320kib": LineFigure(
        (
            Panel(
                "ttfb_cumulative_incidence",
                "Time to first byte",
                "Time since the stream's start (s)",
                "Share of streams",
                _duration_grid,
                _web(lambda data, grid_s: duration_over_grid(data, "ttfb", grid_s)),
                1.0,
                "duration",
                difference=("Difference (points)", 100.0),
            ),
            Panel(
                "time_to_320kib_cumulative_incidence",
                "Time to 320 KiB",
                "Time since the stream's start (s)",
                "Share of streams",
                _duration_grid,
                _web(lambda data, grid_s: duration_over_grid(data, "time_to_320kib", grid_s)),
                1.0,
                "duration",
                difference=("Difference (points)", 100.0),
            ),
        ),
        _durations_caption,
    ),
    "quantile-ratios": LineFigure(
        (
            _quantile_panel("ttfb", "Time to first byte"),
            _quantile_panel("time_to_320kib", "Time to 320 KiB"),
        ),
        _ratios_caption,
    ),
}
