"""Drawing of figures made of panels, and the table of what is drawn."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.arrays import Floats
from analysis.figures.catalogue import panel_figure
from analysis.figures.figure_data import FigureData, Lines
from analysis.figures.panels import WEB, Panel
from analysis.figures.picture import draw_legend
from analysis.figures.style import OUTSIDE_COLOR, Page, line_style
from analysis.formats.study import Level, Study


def lines_csv(data: FigureData, study: Study) -> str:
    """What is drawn: a line for each panel, variant and x, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    panels = panel_figure(data.spec).panels
    x_name = "share" if panels[0].x_axis == "share" else "x_s"
    writer.writerow(["panel", "variant", x_name, "mean", "low", "high", "seeds"])
    for number, panel in enumerate(panels):
        lines = data.lines(number)
        grid = panel.grid(data.level)
        for variant in study.variants:
            if variant.name not in lines:
                continue
            line = lines[variant.name]
            for x, *values in zip(grid, line.mean, line.low, line.high, strict=True):
                numbers = ["" if np.isnan(value) else f"{value:.9g}" for value in values]
                writer.writerow([panel.name, variant.name, f"{x:.6g}", *numbers, line.seeds])
    return text.getvalue()


def draw_lines(data: FigureData, study: Study, page: Page) -> Figure:
    """A panel beside the other, or one below the other on a narrow page."""
    kind = panel_figure(data.spec)
    rows, columns = (len(kind.panels), 1) if page.stacked else (1, len(kind.panels))
    size = (page.width_in, rows * page.panel_height_in)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(rows, columns, squeeze=False).flat
    for number, (panel, axes) in enumerate(zip(kind.panels, all_axes, strict=True)):
        _draw_panel(axes, panel, data, number, study)
    draw_legend(figure, *figure.axes[0].get_legend_handles_labels())
    return figure


def _draw_panel(axes: Axes, panel: Panel, data: FigureData, number: int, study: Study) -> None:
    grid = panel.grid(data.level)
    lines = data.lines(number)
    shown = [variant for variant in study.variants if variant.name in lines]
    if not any(np.isfinite(line.mean).any() for line in lines.values()):
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
    keep = slice(None)
    if panel.x_axis == "duration":
        keep = _interesting(lines)
    x = grid[keep]
    for place, variant in enumerate(shown):
        line = lines[variant.name]
        y = panel.scale * line.mean[keep]
        marks = _mark_indices(panel, y, (place + 0.5) / len(shown))
        axes.plot(x, y, label=variant.label, zorder=3, **line_style(variant, marks))
        if line.seeds > 1:
            axes.fill_between(
                x,
                panel.scale * line.low[keep],
                panel.scale * line.high[keep],
                color=variant.color,
                alpha=0.16,
                linewidth=0,
                zorder=2,
            )
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.x_axis == "time":
        _dress_time(axes, grid, data.level, counts=panel.counts)
    elif panel.x_axis == "share":
        _dress_share(axes, lines)
    else:
        _dress_duration(axes, x, data.level)


def _interesting(lines: Mapping[str, Lines]) -> slice:
    """Cuts the grid's front, where no line has left zero yet."""
    started = [np.flatnonzero(line.high > 0.001) for line in lines.values()]
    first = min((places[0] for places in started if places.size), default=0)
    return slice(max(0, int(first) - 10), None)


def _mark_indices(panel: Panel, y: Floats, phase: float) -> list[int]:
    """Where a line carries markers; ``phase`` in (0, 1) keeps those of different lines apart.

    Evenly in time, but on a distribution evenly in its height: its steep part is a small part of x.
    """
    if panel.x_axis != "duration":
        places = (np.arange(7) + phase) / 7 * (y.size - 1)
        return [round(float(place)) for place in places]
    heights = (np.arange(5) + phase) / 5
    found = np.searchsorted(np.nan_to_num(y, nan=np.inf), heights)
    return [int(place) for place in found if place < y.size and np.isfinite(y[place])]


def _dress_time(axes: Axes, grid: Floats, level: Level, counts: bool) -> None:
    axes.set_xlim(float(grid[0]), float(grid[-1]))
    axes.set_ylim(bottom=0.0)
    if counts:
        top = max(1.0, axes.get_ylim()[1])
        # A little room below, or a line at zero disappears in the axis.
        axes.set_ylim(-0.03 * top, top)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=counts))
    for begin, end in ((grid[0], level.measured_start_s), (level.measured_end_s, grid[-1])):
        if end > begin:
            axes.axvspan(float(begin), float(end), color=OUTSIDE_COLOR, linewidth=0, zorder=0)


def _dress_share(axes: Axes, lines: Mapping[str, Lines]) -> None:
    axes.set_xlim(0.0, 1.0)
    axes.axhline(1.0, color="#555555", linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    # Two or three pairs may have a band far wider than the effect: the lines decide the scale.
    means = [np.abs(np.log(line.mean[np.isfinite(line.mean)])) for line in lines.values()]
    reach = max((float(mean.max()) for mean in means if mean.size), default=0.0)
    top = float(np.exp(max(3 * reach, 0.1)))
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 1 / top), min(high, top))


def _dress_duration(axes: Axes, x: Floats, level: Level) -> None:
    axes.set_xscale("log")
    axes.set_xlim(float(x[0]), float(x[-1]) * 1.04)
    axes.set_ylim(0.0, 1.02)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
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
