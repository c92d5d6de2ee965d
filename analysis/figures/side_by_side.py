"""Figures of parallel downloads: bytes of each stream over time, and a map of starvation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.figures.custom_figure import CustomFigure, FigureInput
from analysis.figures.style import Page, as_drawn
from analysis.formats.study import Level, Variant
from analysis.measures.catalogue import METRICS, run_statistics
from analysis.measures.data import ClassData
from analysis.measures.downloads import (
    JAIN_WINDOW_S,
    LAST,
    Downloads,
    curve_times,
    jain_over_time,
)

LAST_COLOR = "#CC3311"
OTHERS_COLOR = "#4477AA"

MAPPED = "starvation"
"""The metric that the map shows."""

NO_STREAMS = (
    "it needs parallel downloads and TGen's log level info: streams: 2 or more, and "
    "engine: {tgen: {loglevel: info}}; or records extracted again with `onionlab analyse`"
)


# ----- bytes over time


@dataclass(frozen=True)
class _Curves:
    """One run: times since the first start, bytes of each stream, and the fairness index.

    Attributes:
        time_s: shape (t,).
        received_bytes: shape (streams, t), oldest stream first.
        jain_time_s: shape (w,).
        jain: shape (w,).
    """

    time_s: Floats
    received_bytes: Floats
    jain_time_s: Floats
    jain: Floats


def _keep_curves(run: Mapping[str, ClassData]) -> _Curves | None:
    """Return the curves of the first client with parallel downloads; None without one."""
    clients = [downloads for data in run.values() for downloads in data.side_by_side]
    return _curves(clients[0]) if clients else None


def _curves(downloads: Downloads) -> _Curves:
    begin = min(one.start_s for one in downloads)
    time_s = curve_times(downloads)
    middles, index = jain_over_time(downloads)
    received = np.stack([one.received_at(time_s) for one in downloads])
    return _Curves(time_s - begin, received, middles - begin, index)


def _first_seed_curves(shown: FigureInput) -> list[tuple[Variant, _Curves]]:
    """Return the curves of the lowest seed of each variant that has runs, in the study's order."""
    found = []
    for variant in shown.study.variants:
        runs = [one for one in shown.samples if one.variant == variant.name]
        if not runs:
            continue
        first = min(runs, key=lambda one: one.seed)
        if first.value is None:
            raise AnalysisError(
                f"figure {shown.spec.id}: the records of {variant.name}, seed {first.seed}, lack "
                "the progress of streams",
                NO_STREAMS,
            )
        found.append((variant, first.value))
    return found


def _draw_progress(shown: FigureInput, page: Page) -> Figure:
    curves = _first_seed_curves(shown)
    across = max(1, len(curves))
    if page.stacked:
        shape, size = (across, 1), (page.width_in, across * page.panel_height_in)
    else:
        shape, size = (2, across), (page.width_in, 1.75 * page.panel_height_in)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    # The index is below the bytes and needs less height.
    ratios = [1] * across if page.stacked else [2, 1]
    grid = figure.subplots(*shape, squeeze=False, sharex=True, sharey="row", height_ratios=ratios)
    for place, (variant, one) in enumerate(curves):
        top = grid[place, 0] if page.stacked else grid[0, place]
        _draw_bytes(top, variant, one)
        if page.stacked or place == 0:
            top.set_ylabel("Received (MB)")
        if not page.stacked:
            _draw_jain(grid[1, place], one)
            if place == 0:
                grid[1, 0].set_ylabel("Jain's index")
    for axes in grid[-1]:
        axes.set_xlabel("Time since the first start (s)")
    if curves:
        count = curves[0][1].received_bytes.shape[0]
        figure.legend(*_legend(count), loc="outside upper center", ncols=2, frameon=False)
    else:
        grid[0, 0].text(0.5, 0.5, "no data", ha="center", transform=grid[0, 0].transAxes)
    return figure


def _is_last(place: int, count: int) -> bool:
    return count > LAST and place >= count - LAST


def _draw_bytes(axes: Axes, variant: Variant, one: _Curves) -> None:
    count = one.received_bytes.shape[0]
    for place, received in enumerate(one.received_bytes):
        last = _is_last(place, count)
        axes.plot(
            one.time_s,
            received * 1e-6,
            color=LAST_COLOR if last else OTHERS_COLOR,
            linestyle=(0, (4, 1.2)) if last else "-",
            linewidth=1.1 if last else 0.9,
            # Draw older streams lighter, except for the last ones.
            alpha=1.0 if last else 0.45 + 0.55 * place / max(1, count - 1),
            zorder=3 if last else 2,
        )
    axes.set_title(as_drawn(variant.label))
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(left=0.0)


def _draw_jain(axes: Axes, one: _Curves) -> None:
    axes.plot(one.jain_time_s, one.jain, color="#222222", linewidth=1.0)
    axes.set_ylim(0.0, 1.05)


def _legend(count: int) -> tuple[list[Line2D], list[str]]:
    others = Line2D([], [], color=OTHERS_COLOR, linestyle="-", linewidth=1.1)
    if count <= LAST:
        return [others], [f"streams 1 to {count}"]
    last = Line2D([], [], color=LAST_COLOR, linestyle=(0, (4, 1.2)), linewidth=1.3)
    return [others, last], [
        f"streams 1 to {count - LAST}",
        f"streams {count - LAST + 1} to {count}, the last ones",
    ]


def _progress_table(shown: FigureInput) -> list[list[str]]:
    rows = [["panel", "variant", "stream", "x_s", "value"]]
    for variant, one in _first_seed_curves(shown):
        for number, received in enumerate(one.received_bytes, start=1):
            rows += [
                ["received_bytes", variant.name, str(number), f"{x:.6g}", f"{y:.9g}"]
                for x, y in zip(one.time_s, received, strict=True)
            ]
        rows += [
            ["jain_index", variant.name, "", f"{x:.6g}", f"{y:.9g}"]
            for x, y in zip(one.jain_time_s, one.jain, strict=True)
        ]
    return rows


def _progress_caption(shown: FigureInput, page: Page) -> str:
    seeds = sorted({one.seed for one in shown.samples})
    which = f"Network {seeds[0]}. " if seeds else ""
    below = (
        ""
        if page.stacked
        else f" Below: Jain's index over the bytes of streams in progress in {JAIN_WINDOW_S:g} s."
    )
    return (
        f"{which}Payload that each of a client's parallel downloads has received, by the order in "
        f"which they started; the last {LAST} are dashed.{below}"
    )


# ----- the map

RATE, STREAMS, CONTROL = "bottleneck_kib_per_s", "streams", "cc_alg"
_METRIC = {metric.name: metric for metric in METRICS}


def _keep_mapped(run: Mapping[str, ClassData]) -> float | None:
    values = [
        statistic.value
        for (_, name), statistic in run_statistics(run).items()
        if name == MAPPED and statistic.value is not None
    ]
    return values[0] if values else None


@dataclass(frozen=True)
class _Point:
    """One level of one variant: mean over seeds, and range."""

    mean: float
    low: float
    high: float
    seeds: int


def _points(shown: FigureInput) -> dict[str, dict[tuple[float, float], _Point]]:
    """Return variant -> (rate, streams) -> point, without levels in which a run lacks a value."""
    values: dict[str, dict[tuple[float, float], dict[int, list[float | None]]]] = {}
    for one in shown.samples:
        where = (one.level.coordinates[RATE], one.level.coordinates[STREAMS])
        level_values = values.setdefault(one.variant, {}).setdefault(where, {})
        level_values.setdefault(one.seed, []).append(one.value)
    return {
        variant: {
            where: _Point(float(np.mean(known)), min(known), max(known), len(known))
            for where, found in levels.items()
            for known in [[value for value in map(_mean, found.values()) if value is not None]]
            if known and len(known) == len(found)
        }
        for variant, levels in values.items()
    }


def _mean(repeats: Sequence[float | None]) -> float | None:
    """Return the mean of a network's repeats; None if any of them lacks a value."""
    known = [value for value in repeats if value is not None]
    return float(np.mean(known)) if len(known) == len(repeats) else None


def _draw_map(shown: FigureInput, page: Page) -> Figure:
    points = _points(shown)
    variants = [variant for variant in shown.study.variants if variant.name in points]
    rates, streams = (
        sorted({where[axis] for levels in points.values() for where in levels}) for axis in (0, 1)
    )
    across = max(1, len(variants))
    if page.stacked:
        shape, size = (across, 1), (page.width_in, across * page.panel_height_in)
    else:
        shape, size = (1, across), (page.width_in, page.panel_height_in)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(*shape, squeeze=False, sharex=True, sharey=True)
    image = None
    for axes, variant in zip(grid.flat, variants, strict=False):
        shares = np.full((len(streams), len(rates)), np.nan)
        for (rate, count), point in points[variant.name].items():
            shares[streams.index(count), rates.index(rate)] = point.mean
        image = axes.imshow(
            shares, origin="lower", aspect="auto", cmap="cividis_r", vmin=0.0, vmax=1.0
        )
        for (row, column), value in np.ndenumerate(shares):
            if np.isnan(value):
                text, color = "\N{EN DASH}", "#555555"
            else:
                text, color = f"{100 * value:.0f}", "white" if value > 0.5 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
        axes.grid(visible=False)
        axes.set_title(as_drawn(variant.label))
        axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        axes.set_yticks(range(len(streams)), [f"{count:g}" for count in streams])
    for axes in grid[-1]:
        axes.set_xlabel("Bottleneck (KiB/s)")
    for axes in grid[:, 0]:
        axes.set_ylabel("Streams")
    if image is None:
        grid[0, 0].text(0.5, 0.5, "no data", ha="center", transform=grid[0, 0].transAxes)
    else:
        bar = figure.colorbar(image, ax=grid, label=_METRIC[MAPPED].label + " (%)")
        bar.set_ticks([0.0, 0.5, 1.0], labels=["0", "50", "100"])
    return figure


def _map_table(shown: FigureInput) -> list[list[str]]:
    rows = [["variant", RATE, STREAMS, "mean", "low", "high", "seeds"]]
    for variant, levels in _points(shown).items():
        rows += [
            [variant, f"{rate:g}", f"{count:g}"]
            + [f"{value:.9g}" for value in (point.mean, point.low, point.high)]
            + [str(point.seeds)]
            for (rate, count), point in sorted(levels.items())
        ]
    return rows


def _map_caption(shown: FigureInput, page: Page) -> str:
    del page
    counts = sorted(
        {point.seeds for levels in _points(shown).values() for point in levels.values()}
    )
    seeds = "no runs"
    if counts:
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        seeds = f"mean over {seeds} networks" if counts != [1] else "one network"
    return (
        "Share of its file that the slowest stream of a client lacked when the first one was "
        "complete, in per cent, by the rate of the slowest relay and the number of streams; "
        f"{seeds}. A dash: no level, or no completed stream. "
        f"Congestion control: cc_alg={shown.level.coordinates[CONTROL]:g}."
    )


def _same_control(own: Level, other: Level) -> bool:
    """Return whether two levels belong on one map: each map is for one congestion control."""
    return {RATE, STREAMS} <= other.coordinates.keys() and own.coordinates.get(
        CONTROL
    ) == other.coordinates.get(CONTROL)


def _same_level(own: Level, other: Level) -> bool:
    return own.name == other.name


SIDE_BY_SIDE_FIGURES: dict[str, CustomFigure] = {
    "stream-progress": CustomFigure(
        _keep_curves, _draw_progress, _progress_table, _progress_caption, _same_level
    ),
    "starvation-map": CustomFigure(
        _keep_mapped, _draw_map, _map_table, _map_caption, _same_control
    ),
}
