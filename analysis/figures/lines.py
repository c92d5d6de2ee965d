"""Figures made of panels with a line for each variant: drawing, table and caption.

To add a kind, add an entry to ``LINE_FIGURES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.arrays import Floats
from analysis.figures.curves import Lines, difference_lines, has_pairs, mean_lines, ratio_lines
from analysis.figures.kind import FigureData, FigureKind
from analysis.figures.panels import (
    THROUGHPUT_TIMEOUTS,
    X_LABELS,
    Panel,
    incidence_panel,
    quantile_panel,
)
from analysis.figures.style import (
    LINE_OF_INTEREST,
    OUTSIDE_COLOR,
    Page,
    as_drawn,
    draw_legend,
    line_style,
    panel_grid,
    write_in_panel,
)
from analysis.formats.byte_marks import BYTE_MARKS, MARK_FIGURES, format_size
from analysis.formats.study import Level, Study
from analysis.measures.data import ClassData
from analysis.measures.families.durations import FIRST_BYTE, TIME_TO_MARK
from analysis.measures.over_time import THROUGHPUT_WINDOW_S

DIFFERENCE_HEIGHT = 0.6
"""Height of a panel of differences relative to the panel above it."""

BAND_ROOM = 4.0
"""Largest range of an axis of differences, as a multiple of the range of the lines.

Bands that exceed the axis are cut.
"""

TIME_ROOM = 2.0
"""Largest range of the y axis of a panel over time, as a multiple of the range of the lines.

Bands that exceed the axis are cut.
"""


@dataclass(frozen=True)
class LineFigure(FigureKind):
    """A kind of figure made of panels.

    Lines of variants often overlap, since networks differ by more than variants do. The differences
    to the baseline are therefore drawn below each panel, except for panels of ratios.

    Attributes:
        panels: the panels, in a row or, on a narrow page, in a column.
        about: a function of the level, and of the places of the first and the second panel. It
            returns the first part of the caption.
    """

    panels: tuple[Panel, ...]
    about: Callable[[Level, str, str], str]

    def keep(self, run: Mapping[str, ClassData], level: Level) -> list[Floats]:
        return [panel.keep(run, level) for panel in self.panels]

    def lines(self, data: FigureData, number: int) -> Lines:
        """Return the lines of the panel with index ``number``."""
        return (ratio_lines if self.panels[number].compares else mean_lines)(data, number)

    def table(self, data: FigureData) -> pd.DataFrame:
        """Return a row for each panel, variant and x value.

        The rows of the differences to the baseline follow the rows of all panels.
        """
        shown = [(one.name, one, self.lines(data, n)) for n, one in enumerate(self.panels)]
        shown += [
            (f"{one.name}_difference", one, difference_lines(data, n))
            for n, one in enumerate(self.panels)
            if one.difference
        ]
        x_name = "share" if self.panels[0].compares else "x_s"
        columns = ["panel", "variant", x_name, "mean", "low", "high", "seeds"]
        parts = [
            pd.DataFrame(
                {
                    "panel": name,
                    "variant": variant.name,
                    x_name: [f"{x:.6g}" for x in panel.grid(data.level)],
                    **vars(lines[variant.name]),
                    "seeds": lines[variant.name].count,
                }
            )
            for name, panel, lines in shown
            for variant in data.study.variants
            if variant.name in lines
        ]
        return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)

    def draw(self, data: FigureData, page: Page) -> Figure:
        differ = any(panel.difference for panel in self.panels) and has_pairs(data)
        down, across = (len(self.panels), 1) if page.stacked else (1, len(self.panels))
        heights = [1.0, DIFFERENCE_HEIGHT] if differ else [1.0]
        figure, grid = panel_grid(
            page.width_in,
            down * page.panel_height_in * sum(heights),
            down * len(heights),
            across,
            height_ratios=heights * down,
        )
        for number, panel in enumerate(self.panels):
            row, column = (number, 0) if page.stacked else (0, number)
            axes, lines = grid[row * len(heights), column], self.lines(data, number)
            _draw_panel(axes, panel, data, lines)
            if differ:
                below = grid[row * len(heights) + 1, column]
                _draw_differences(below, axes, panel, data, lines, difference_lines(data, number))
        draw_legend(figure, figure.axes[0].get_legend_handles_labels()[0])
        return figure

    def caption(self, data: FigureData, page: Page) -> str:
        return f"{self.about(data.level, *page.places)} {self._describe_lines(data)}"

    def _describe_lines(self, data: FigureData) -> str:
        if any(panel.compares for panel in self.panels):
            return (
                "Lines: geometric mean over pairs of runs. Bands: simultaneous 95% intervals; "
                "one pair has none."
            )
        places = [(one.variant, one.seed) for one in data.samples]
        counts = sorted({len({s for v, s in places if v == variant}) for variant, _ in places})
        unit = data.study.replicate_unit
        if not counts:
            return "No runs."
        if counts == [1]:
            return f"One {unit} per variant."
        many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        text = f"Lines: mean over {many} {unit}s per variant. Bands: smallest to largest {unit}."
        if len(places) > len(set(places)):
            text += " The curve of a network is the mean of its repeats."
        if any(panel.difference for panel in self.panels) and has_pairs(data):
            text += f" Below each: the differences between runs of the same {unit}."
        return text


def _describe_throughput(level: Level, first: str, second: str) -> str:
    return (
        f"{first.capitalize()}: bytes read by all clients per second, moving average over "
        f"{THROUGHPUT_WINDOW_S:g} s. "
        f"{second.capitalize()}: cumulative number of timeouts, of streams started in the measured "
        f"span ({level.measured_start_s:g} s to {level.measured_end_s:g} s). Grey: outside that "
        "span."
    )


def _describe_durations(mark_bytes: int, level: Level, first: str, second: str) -> str:
    load = level.classes.get(level.main_class)
    timeout = load.timeout_s if load else None
    end = f"the timeout is {timeout:g} s" if timeout else "there is no timeout"
    return (
        f"Share of the {level.main_class} clients' streams that had their first payload byte "
        f"({first}) and {format_size(mark_bytes)} ({second}) by the given time since the stream's "
        f"start. A failed stream counts as never finishing; {end}. Streams open at the end are "
        "right-censored."
    )


def _describe_ratios(mark_bytes: int, level: Level, first: str, second: str) -> str:
    return (
        f"Time until a share of the {level.main_class} clients' streams had their first payload "
        f"byte ({first}) and {format_size(mark_bytes)} ({second}), divided by the baseline's time "
        "on the same network: 1.1 is 10% longer."
    )


_RATIO_MARK = min(BYTE_MARKS.values())
LINE_FIGURES: Mapping[str, LineFigure] = {
    "throughput-timeouts": LineFigure(THROUGHPUT_TIMEOUTS, _describe_throughput),
    **{
        kind: LineFigure(
            (incidence_panel(FIRST_BYTE), incidence_panel(TIME_TO_MARK[mark])),
            partial(_describe_durations, mark),
        )
        for kind, mark in MARK_FIGURES.items()
    },
    "quantile-ratios": LineFigure(
        (quantile_panel(FIRST_BYTE), quantile_panel(TIME_TO_MARK[_RATIO_MARK])),
        partial(_describe_ratios, _RATIO_MARK),
    ),
}


def _draw_panel(axes: Axes, panel: Panel, data: FigureData, lines: Lines) -> None:
    grid = panel.grid(data.level)
    keep = _nonzero_part(panel, lines)
    _draw_lines(axes, grid, keep, lines, panel.scale, data.study)
    axes.set(title=panel.title, xlabel=X_LABELS[panel.x_axis], ylabel=panel.y_label)
    if panel.x_axis == "time":
        _style_time_axis(axes, panel, grid, data.level, lines)
    elif panel.x_axis == "share":
        _style_share_axis(axes, lines)
    else:
        _style_duration_axis(axes, grid[keep], data.level)
    text = ""
    if not any(np.isfinite(line.mean).any() for line in lines.values()):
        text = "no data"
    elif not any(np.nan_to_num(line.high).any() for line in lines.values()):
        text = panel.nothing
    if text:
        write_in_panel(axes, text)
        axes.set_yticks([])


def _draw_lines(
    axes: Axes, grid: Floats, keep: slice, lines: Lines, scale: float, study: Study
) -> None:
    """Draw the line and the band of each variant that has a line."""
    shown = [variant for variant in study.variants if variant.name in lines]
    x = grid[keep]
    for place, variant in enumerate(shown):
        line = lines[variant.name]
        mean, low, high = (scale * one[keep] for one in (line.mean, line.low, line.high))
        style = line_style(variant, (place + 0.5) / len(shown))
        axes.plot(x, mean, label=as_drawn(variant.label), zorder=3, **style)
        if line.count > 1:
            axes.fill_between(x, low, high, color=variant.color, alpha=0.16, linewidth=0, zorder=2)


def _draw_differences(
    axes: Axes, above: Axes, panel: Panel, data: FigureData, shown: Lines, lines: Lines
) -> None:
    """Draw the differences of a panel's lines to the baseline.

    above, shown: the axes and the lines of the panel itself.
    """
    assert panel.difference is not None
    y_label, scale = panel.difference
    grid = panel.grid(data.level)
    keep = _nonzero_part(panel, shown)
    _draw_lines(axes, grid, keep, lines, scale, data.study)
    baseline = next(v.label for v in data.study.variants if v.name == data.study.baseline)
    axes.set(xlabel=X_LABELS[panel.x_axis], ylabel=y_label)
    axes.set_title(f"difference from {as_drawn(baseline)}", fontsize=7.5)
    if panel.x_axis == "duration":
        _use_log_durations(axes)
    else:
        _shade_outside(axes, grid, data.level)
    axes.set_xlim(*above.get_xlim())
    above.set_xlabel("")
    axes.axhline(0.0, **LINE_OF_INTEREST)
    reach, band = (scale * value for value in _reach(lines, keep))
    # The range of a panel of differences is at least 1 for counts, and otherwise at least a
    # hundredth of the range of the panel above, so that negligible differences look small.
    least = 1.0 if panel.counts else 0.01 * abs(scale / panel.scale) * above.get_ylim()[1]
    top = max(least, min(1.05 * band, BAND_ROOM * reach) if reach else 1.05 * band)
    axes.set_ylim(-top, top)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=panel.counts))
    if band > 1.06 * top:
        _note_cut(axes)
    if panel.nothing and not band and not any(shown[variant].high.any() for variant in lines):
        write_in_panel(axes, panel.nothing, 0.75)  # Avoid the middle, where the lines at zero are.
        axes.set_yticks([])


def _reach(lines: Lines, keep: slice) -> tuple[float, float]:
    """Return the largest distance from 0 of the lines, and of their bands."""

    def furthest(*arrays: Floats) -> float:
        known = [np.abs(a[keep][np.isfinite(a[keep])]) for a in arrays]
        return max((float(a.max()) for a in known if a.size), default=0.0)

    return (
        furthest(*(line.mean for line in lines.values())),
        furthest(*(bound for line in lines.values() for bound in (line.low, line.high))),
    )


def _note_cut(axes: Axes) -> None:
    """Write "bands cut" into a panel whose bands exceed the axis."""
    axes.text(
        0.985, 0.97, "bands cut", ha="right", va="top", transform=axes.transAxes,
        fontsize=6.5, color="#555555", zorder=4,
    )  # fmt: skip


def _nonzero_part(panel: Panel, lines: Lines) -> slice:
    """Return the part of the grid to draw.

    An axis of durations starts shortly before the first line leaves zero.
    """
    if panel.x_axis != "duration":
        return slice(None)
    started = [np.flatnonzero(line.high > 0.001) for line in lines.values()]
    first = min((places[0] for places in started if places.size), default=0)
    return slice(max(0, int(first) - 10), None)


def _style_time_axis(axes: Axes, panel: Panel, grid: Floats, level: Level, lines: Lines) -> None:
    axes.set_xlim(float(grid[0]), float(grid[-1]))
    axes.set_ylim(bottom=0.0)
    reach, band = (panel.scale * value for value in _reach(lines, slice(None)))
    # A single network can make a band so wide that the axis would compress the lines: cut the band.
    top = min(axes.get_ylim()[1], TIME_ROOM * reach) if reach else axes.get_ylim()[1]
    if panel.counts:
        top = max(1.0, top)
    if band > top:
        _note_cut(axes)
    # Counts are often 0, and the x axis would hide a line at 0: leave some room below 0.
    axes.set_ylim(-0.03 * top if panel.counts else 0.0, top)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=panel.counts))
    _shade_outside(axes, grid, level)


def _shade_outside(axes: Axes, grid: Floats, level: Level) -> None:
    """Shade the time outside of the measured span."""
    for begin, end in ((grid[0], level.measured_start_s), (level.measured_end_s, grid[-1])):
        if end > begin:
            axes.axvspan(float(begin), float(end), color=OUTSIDE_COLOR, linewidth=0, zorder=0)


def _style_share_axis(axes: Axes, lines: Lines) -> None:
    axes.set_xlim(0.0, 1.0)
    axes.axhline(1.0, **LINE_OF_INTEREST)
    # With two or three pairs, bands may be far wider than the effect, so the lines determine the
    # scale.
    means = [np.abs(np.log(line.mean[np.isfinite(line.mean)])) for line in lines.values()]
    reach = max((float(mean.max()) for mean in means if mean.size), default=0.0)
    top = float(np.exp(max(3 * reach, 0.1)))
    low, high = axes.get_ylim()
    if low < 1 / top or high > top:
        _note_cut(axes)
    axes.set_ylim(max(low, 1 / top), min(high, top))


def _use_log_durations(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _style_duration_axis(axes: Axes, x: Floats, level: Level) -> None:
    _use_log_durations(axes)
    axes.set_xlim(float(x[0]), float(x[-1]) * 1.04)
    axes.set_ylim(0.0, 1.02)
    load = level.classes.get(level.main_class)
    timeout = load.timeout_s if load else None
    if timeout and timeout <= x[-1] * 1.001:
        axes.axvline(timeout, **LINE_OF_INTEREST)
        axes.annotate(
            f"timeout {timeout:g} s",
            (timeout, 0.03),
            xytext=(-3, 0),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="bottom",
            fontsize=7,
            color="#555555",
        )
