"""Drawing of figures made of panels, and the table of their data."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.arrays import Floats
from analysis.figures.catalogue import line_figure
from analysis.figures.custom_figure import draw_legend
from analysis.figures.figure_data import FigureData, Lines
from analysis.figures.panels import WEB, Panel
from analysis.figures.style import OUTSIDE_COLOR, Page, as_drawn, line_style
from analysis.formats.study import Level, Study

DIFFERENCE_HEIGHT = 0.6
"""Height of a panel of differences relative to the panel above it."""

BAND_ROOM = 4.0
"""Maximum extent of the bands of differences relative to their lines."""

TIME_ROOM = 2.0
"""The same for bands over time, which begin at 0."""


def lines_csv(data: FigureData, study: Study) -> str:
    """Return the drawn data as CSV, with a line for each panel, variant and x."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    panels = line_figure(data.spec).panels
    x_name = "share" if panels[0].x_axis == "share" else "x_s"
    writer.writerow(["panel", "variant", x_name, "mean", "low", "high", "seeds"])
    for number, panel in enumerate(panels):
        _write_lines(writer, panel.name, data.lines(number), panel.grid(data.level), study)
    for number, panel in enumerate(panels):
        if panel.difference:
            name = f"{panel.name}_difference"
            _write_lines(writer, name, data.differences(number), panel.grid(data.level), study)
    return text.getvalue()


def _write_lines(
    writer: Any, name: str, lines: Mapping[str, Lines], grid: Floats, study: Study
) -> None:
    for variant in study.variants:
        if variant.name not in lines:
            continue
        line = lines[variant.name]
        for x, *values in zip(grid, line.mean, line.low, line.high, strict=True):
            numbers = ["" if np.isnan(value) else f"{value:.9g}" for value in values]
            writer.writerow([name, variant.name, f"{x:.6g}", *numbers, line.seeds])


def draw_lines(data: FigureData, study: Study, page: Page) -> Figure:
    """Draw the panels in a row, or in a column on a narrow page.

    Lines of variants often overlap, since networks differ by more than variants do. The differences
    to the baseline are therefore drawn below each panel.
    """
    panels = line_figure(data.spec).panels
    differ = data.compared and any(panel.difference for panel in panels)
    down, across = (len(panels), 1) if page.stacked else (1, len(panels))
    heights = [1.0, DIFFERENCE_HEIGHT] if differ else [1.0]
    size = (page.width_in, down * page.panel_height_in * sum(heights))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(down * len(heights), across, squeeze=False, height_ratios=heights * down)
    for number, panel in enumerate(panels):
        row, column = (number, 0) if page.stacked else (0, number)
        axes = grid[row * len(heights), column]
        _draw_panel(axes, panel, data, number, study)
        if differ:
            below = grid[row * len(heights) + 1, column]
            _draw_differences(below, axes, panel, data, number, study)
    draw_legend(figure, *figure.axes[0].get_legend_handles_labels())
    return figure


def _draw_panel(axes: Axes, panel: Panel, data: FigureData, number: int, study: Study) -> None:
    grid = panel.grid(data.level)
    lines = data.lines(number)
    keep = _interesting(lines) if panel.x_axis == "duration" else slice(None)
    _draw_lines(axes, panel, grid, keep, lines, panel.scale, study)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.x_axis == "time":
        _style_time_axis(axes, panel, grid, data.level, lines)
    elif panel.x_axis == "share":
        _style_share_axis(axes, lines)
    else:
        _style_duration_axis(axes, grid[keep], data.level)
    if not any(np.isfinite(line.mean).any() for line in lines.values()):
        _write_text(axes, "no data")
    elif panel.nothing and not any(np.nan_to_num(line.high).any() for line in lines.values()):
        _write_text(axes, panel.nothing)


def _draw_lines(
    axes: Axes,
    panel: Panel,
    grid: Floats,
    keep: slice,
    lines: Mapping[str, Lines],
    scale: float,
    study: Study,
) -> None:
    """Draw a line and its band for each variant that has one."""
    shown = [variant for variant in study.variants if variant.name in lines]
    x = grid[keep]
    for place, variant in enumerate(shown):
        line = lines[variant.name]
        y = scale * line.mean[keep]
        marks = _mark_indices(panel, y, (place + 0.5) / len(shown))
        axes.plot(x, y, label=as_drawn(variant.label), zorder=3, **line_style(variant, marks))
        if line.seeds > 1:
            axes.fill_between(
                x,
                scale * line.low[keep],
                scale * line.high[keep],
                color=variant.color,
                alpha=0.16,
                linewidth=0,
                zorder=2,
            )


def _draw_differences(
    axes: Axes, above: Axes, panel: Panel, data: FigureData, number: int, study: Study
) -> None:
    """Draw the differences to the baseline of the panel above, on the same x axis."""
    assert panel.difference is not None
    y_label, scale = panel.difference
    grid = panel.grid(data.level)
    lines = data.differences(number)
    keep = _interesting(data.lines(number)) if panel.x_axis == "duration" else slice(None)
    _draw_lines(axes, panel, grid, keep, lines, scale, study)
    baseline = next(v.label for v in study.variants if v.name == data.baseline)
    axes.set(xlabel=panel.x_label, ylabel=y_label)
    axes.set_title(f"less that of {as_drawn(baseline)}", fontsize=7.5)
    if panel.x_axis == "duration":
        _duration_axis(axes)
    else:
        _shade_outside(axes, grid, data.level)
    axes.set_xlim(*above.get_xlim())
    above.set_xlabel("")
    axes.axhline(0.0, color="#555555", linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    reach, band = (scale * value for value in _reach(lines, keep))
    # Minimum range of a panel of differences: a hundredth of the panel above.
    least = 1.0 if panel.counts else 0.01 * abs(scale / panel.scale) * above.get_ylim()[1]
    top = max(least, min(1.05 * band, BAND_ROOM * reach) if reach else 1.05 * band)
    axes.set_ylim(-top, top)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=panel.counts))
    if band > 1.06 * top:
        _note_cut(axes)
    if panel.nothing and not band and not any(data.lines(number)[v].high.any() for v in lines):
        _write_text(axes, panel.nothing, 0.75)  # Avoid the middle, where the lines at zero are.


def _reach(lines: Mapping[str, Lines], keep: slice) -> tuple[float, float]:
    """Return the largest distance from 0 of the lines, and of their bands."""

    def furthest(*arrays: Floats) -> float:
        known = [np.abs(a[keep][np.isfinite(a[keep])]) for a in arrays]
        return max((float(a.max()) for a in known if a.size), default=0.0)

    return (
        furthest(*(line.mean for line in lines.values())),
        furthest(*(bound for line in lines.values() for bound in (line.low, line.high))),
    )


def _write_text(axes: Axes, words: str, height: float = 0.5) -> None:
    """Write a text instead of an empty scale. height: its position, as a share of the panel."""
    axes.text(
        0.5, height, words, ha="center", va="center", transform=axes.transAxes, color="#555555"
    )
    axes.set_yticks([])


def _note_cut(axes: Axes) -> None:
    """Note that bands exceed the axis."""
    axes.text(
        0.985, 0.97, "bands cut", ha="right", va="top", transform=axes.transAxes,
        fontsize=6.5, color="#555555", zorder=4,
    )  # fmt: skip


def _interesting(lines: Mapping[str, Lines]) -> slice:
    """Return the slice of the grid without the part before any line leaves zero."""
    started = [np.flatnonzero(line.high > 0.001) for line in lines.values()]
    first = min((places[0] for places in started if places.size), default=0)
    return slice(max(0, int(first) - 10), None)


def _mark_indices(panel: Panel, y: Floats, phase: float) -> list[int]:
    """Return the indices of markers; ``phase`` in (0, 1) separates those of different lines.

    Markers are evenly spaced in time. On a distribution they are evenly spaced in height, as its
    steep part is a small part of x.
    """
    if panel.x_axis != "duration":
        places = (np.arange(7) + phase) / 7 * (y.size - 1)
        return [round(float(place)) for place in places]
    heights = (np.arange(5) + phase) / 5
    found = np.searchsorted(np.nan_to_num(y, nan=np.inf), heights)
    return [int(place) for place in found if place < y.size and np.isfinite(y[place])]


def _style_time_axis(
    axes: Axes, panel: Panel, grid: Floats, level: Level, lines: Mapping[str, Lines]
) -> None:
    axes.set_xlim(float(grid[0]), float(grid[-1]))
    axes.set_ylim(bottom=0.0)
    reach, band = (panel.scale * value for value in _reach(lines, slice(None)))
    # A single seed far above the others would compress the lines.
    top = min(axes.get_ylim()[1], TIME_ROOM * reach) if reach else axes.get_ylim()[1]
    if panel.counts:
        top = max(1.0, top)
    if band > top:
        _note_cut(axes)
    # Leave some room below, as a line at zero would otherwise be hidden by the axis.
    axes.set_ylim(-0.03 * top if panel.counts else 0.0, top)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=panel.counts))
    _shade_outside(axes, grid, level)


def _shade_outside(axes: Axes, grid: Floats, level: Level) -> None:
    """Shade the time outside of the measured span."""
    for begin, end in ((grid[0], level.measured_start_s), (level.measured_end_s, grid[-1])):
        if end > begin:
            axes.axvspan(float(begin), float(end), color=OUTSIDE_COLOR, linewidth=0, zorder=0)


def _style_share_axis(axes: Axes, lines: Mapping[str, Lines]) -> None:
    axes.set_xlim(0.0, 1.0)
    axes.axhline(1.0, color="#555555", linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    # Two or three pairs may have a band far wider than the effect, so the lines determine the
    # scale.
    means = [np.abs(np.log(line.mean[np.isfinite(line.mean)])) for line in lines.values()]
    reach = max((float(mean.max()) for mean in means if mean.size), default=0.0)
    top = float(np.exp(max(3 * reach, 0.1)))
    low, high = axes.get_ylim()
    if low < 1 / top or high > top:
        _note_cut(axes)
    axes.set_ylim(max(low, 1 / top), min(high, top))


def _duration_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _style_duration_axis(axes: Axes, x: Floats, level: Level) -> None:
    _duration_axis(axes)
    axes.set_xlim(float(x[0]), float(x[-1]) * 1.04)
    axes.set_ylim(0.0, 1.02)
    timeout = level.classes[WEB].timeout_s if WEB in level.classes else None
    if timeout and timeout <= x[-1] * 1.001:
        axes.axvline(timeout, color="#555555", linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
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
