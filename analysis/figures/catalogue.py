"""Figures of a study. Each kind stands once in ``KINDS``; what it shows is a tuple of panels.

Figures that are not made of lines, one for each variant, stand in ``PICTURES``.

A panel turns one run into values on a grid that is the same for all runs of a level; a line is
their mean over seeds, its band their range. In a panel that compares, a line is the geometric mean
of the ratios to the baseline's runs of the same seeds, its band a simultaneous interval. Each
figure is written as PDF, PNG and the CSV of what is drawn.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.figures.picture import Kept, Picture, Shown, draw_legend
from analysis.figures.side_by_side import SIDE_BY_SIDE_PICTURES
from analysis.figures.style import OUTSIDE_COLOR, PNG_DPI, RC, TEXT, Page, line_style
from analysis.figures.transfers import TRANSFER_PICTURES
from analysis.formats.study import FigureSpec, Level, Study
from analysis.inference.bands import simultaneous_band
from analysis.inference.intervals import log_ratios
from analysis.measures.data import ALL, ClassData
from analysis.measures.durations import duration_over_grid, duration_quantiles
from analysis.measures.over_time import (
    THROUGHPUT_WINDOW_S,
    throughput_over_time,
    timeouts_over_time,
)

WEB = "web"
"""The class whose times the second kind of figure shows, as the paper's does."""

SHARES: Floats = np.round(np.arange(0.02, 0.985, 0.02), 2)
"""Where quantile functions are compared; the extremes of a run are single streams."""

LEAD_S = 60.0
"""How much of the time before the measured span is shown."""

Run = Mapping[str, ClassData]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        name: in the CSV; says what y is and its unit.
        title: above the axes.
        x_label: with its unit.
        y_label: with its unit.
        grid: x values for a level, shape (g,).
        values: y values of one run on that grid, shape (g,).
        scale: factor from y's unit to that of ``y_label``.
        x_axis: "time" shows the run's clock, "duration" a logarithmic axis, "share" shares of
            streams.
        compares: show ratios to the baseline.
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


@dataclass(frozen=True)
class Kind:
    """One kind of figure; its caption tells the panels apart by their places on the page."""

    panels: tuple[Panel, ...]
    caption: Callable[[Level, Page], str]


def _time_grid(level: Level) -> Floats:
    begin = np.floor(max(0.0, level.measured_start_s - LEAD_S))
    return np.arange(begin, np.floor(level.stop_s) + 1.0)


def _duration_grid(level: Level) -> Floats:
    # 200 points a decade from 10 ms on: less than a line's width on paper.
    limit = max(level.horizon_s(WEB), 1.0)
    return np.geomspace(0.01, limit, round(200 * np.log10(limit / 0.01)) + 1)


def _web(values: Callable[[ClassData, Floats], Floats]) -> Callable[[Run, Floats], Floats]:
    def of_run(run: Run, grid_s: Floats) -> Floats:
        return values(run[WEB], grid_s) if WEB in run else np.full(grid_s.shape, np.nan)

    return of_run


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
    end = f"a timeout comes after {timeout:g} s" if timeout else "there is no timeout"
    return (
        f"Share of the web clients' streams that had their first payload byte ({first}) and 320 "
        f"KiB ({second}) by the time given, counted from the stream's start. A failed stream "
        f"counts as one that never gets there; {end}. Streams open at the end are right-censored."
    )


KINDS: dict[str, Kind] = {
    "throughput-timeouts": Kind(
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
            ),
        ),
        _throughput_caption,
    ),
    "ttfb-320kib": Kind(
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
            ),
        ),
        _durations_caption,
    ),
}


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
        "longer. Ratios are taken between runs of the same seed."
    )


KINDS["quantile-ratios"] = Kind(
    (
        _quantile_panel("ttfb", "Time to first byte"),
        _quantile_panel("time_to_320kib", "Time to 320 KiB"),
    ),
    _ratios_caption,
)


PICTURES: dict[str, Picture] = {**SIDE_BY_SIDE_PICTURES, **TRANSFER_PICTURES}


def check_kind(spec: FigureSpec) -> None:
    """Whether there is such a kind of figure.

    Raises:
        AnalysisError: there is none of that name.
    """
    if spec.kind not in PICTURES:
        find_kind(spec)


def find_kind(spec: FigureSpec) -> Kind:
    """The kind of a figure that is made of panels.

    Raises:
        AnalysisError: there is none of that name.
    """
    try:
        return KINDS[spec.kind]
    except KeyError:
        raise AnalysisError(
            f"figure {spec.id} has the unknown kind {spec.kind}",
            f"kinds: {', '.join([*KINDS, *PICTURES])}",
        ) from None


@dataclass(frozen=True)
class Lines:
    """What one panel shows of one variant: arrays of the grid's shape, NaN where not known."""

    mean: Floats
    low: Floats
    high: Floats
    seeds: int


@dataclass
class FigureData:
    """Collects a figure's values run by run: variant -> one entry per seed -> panel -> array."""

    spec: FigureSpec
    level: Level
    baseline: str | None = None
    runs: dict[str, list[list[Floats]]] = field(default_factory=dict)
    seeds: dict[str, list[int]] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)

    def takes(self, level: Level) -> bool:
        """Whether the figure shows runs of a level."""
        picture = PICTURES.get(self.spec.kind)
        if picture is not None:
            return picture.takes(self.level, level)
        return level.name == self.level.name

    def add(self, variant: str, seed: int, run: Run, level: Level | None = None) -> None:
        """Takes one run; ``level``: of the run, if it is not the figure's own."""
        picture = PICTURES.get(self.spec.kind)
        if picture is not None:
            self.kept.append(Kept(level or self.level, variant, seed, picture.keep(run)))
            return
        panels = find_kind(self.spec).panels
        values = [panel.values(run, panel.grid(self.level)) for panel in panels]
        self.runs.setdefault(variant, []).append(values)
        self.seeds.setdefault(variant, []).append(seed)

    def lines(self, panel: int) -> dict[str, Lines]:
        """Mean and range over seeds for each variant. A point that a run lacks is unknown.

        Of a panel that compares: ratios to the baseline, for each other variant that shares seeds.
        """
        if find_kind(self.spec).panels[panel].compares:
            return self._ratios(panel)
        lines = {}
        for variant, runs in self.runs.items():
            values = np.stack([run[panel] for run in runs])
            lines[variant] = Lines(
                values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(runs)
            )
        return lines

    def _ratios(self, panel: int) -> dict[str, Lines]:
        if self.baseline not in self.runs:
            return {}
        base = dict(zip(self.seeds[self.baseline], self.runs[self.baseline], strict=True))
        lines = {}
        for variant, runs in self.runs.items():
            pairs = [
                (run[panel], base[seed][panel])
                for seed, run in zip(self.seeds[variant], runs, strict=True)
                if seed in base
            ]
            if variant == self.baseline or not pairs:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.stack([log_ratios(own, other) for own, other in pairs])
            band = simultaneous_band(logs)
            lines[variant] = Lines(
                np.exp(band.mean), np.exp(band.low), np.exp(band.high), len(pairs)
            )
        return lines

    def seeds_text(self) -> str:
        """How many seeds stand behind the lines."""
        if any(panel.compares for panel in find_kind(self.spec).panels):
            return (
                "Lines: geometric mean over pairs of runs. Bands: 95% for a whole line at once; "
                "one pair has none."
            )
        counts = sorted({len(runs) for runs in self.runs.values()})
        if not counts:
            return "No runs."
        if counts == [1]:
            return "One seed per variant."
        many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return f"Lines: mean over {many} seeds per variant. Bands: smallest to largest seed."


@dataclass(frozen=True)
class FigurePaths:
    """Files of one figure, its caption, and the same drawing as SVG for the report."""

    spec: FigureSpec
    pdf: Path
    png: Path
    csv: Path
    svg: bytes
    caption: str

    def moved_to(self, directory: Path) -> FigurePaths:
        """The same files in another directory."""
        pdf, png, csv_path = (directory / path.name for path in (self.pdf, self.png, self.csv))
        return FigurePaths(self.spec, pdf, png, csv_path, self.svg, self.caption)


def write_figure(data: FigureData, study: Study, directory: Path, page: Page = TEXT) -> FigurePaths:
    """Draws a figure as <id>.pdf, .png and .csv in ``directory``; same data, same bytes."""
    picture = PICTURES.get(data.spec.kind)
    shown = Shown(data.spec, data.level, study, tuple(data.kept))
    base = directory / data.spec.id
    paths = {name: base.with_name(f"{data.spec.id}.{name}") for name in ("pdf", "png", "csv")}
    table = _csv(data, study) if picture is None else _as_csv(picture.table(shown))
    paths["csv"].write_text(table, encoding="utf-8")
    settings: Any = {**mpl.rcParamsDefault, **RC, "backend": "agg"}
    with mpl.rc_context(settings):
        figure = _draw(data, study, page) if picture is None else picture.draw(shown, page)
        nothing = {"Creator": None, "Producer": None, "CreationDate": None}
        figure.savefig(paths["pdf"], format="pdf", metadata=nothing)
        figure.savefig(paths["png"], format="png", dpi=PNG_DPI, metadata={"Software": None})
        svg = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=nothing)
    if picture is None:
        caption = f"{find_kind(data.spec).caption(data.level, page)} {data.seeds_text()}"
    else:
        caption = picture.caption(shown, page)
    return FigurePaths(data.spec, paths["pdf"], paths["png"], paths["csv"], svg.getvalue(), caption)


def _as_csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _csv(data: FigureData, study: Study) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    panels = find_kind(data.spec).panels
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


def _draw(data: FigureData, study: Study, page: Page) -> Figure:
    kind = find_kind(data.spec)
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
        _dress_time(axes, grid, data.level, counts=panel.y_label.startswith("Cumulative"))
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
