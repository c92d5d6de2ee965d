"""Figures of a study's cell traces: scatter plots, stages, waits, and times to first byte.

The scatter plots are like those of D. Goulet (see ``analysis.celltrace.statistics``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.arrays import Bools
from analysis.celltrace.statistics import Group, Stage
from analysis.celltrace.summaries import (
    ALL_ROLES,
    POSITIONS,
    RELAY_TIME_COLUMNS,
    STAGES,
    WAITS,
    Points,
    TraceTable,
    mean_times,
    mean_waits,
)
from analysis.figures.style import TEXT, as_drawn, draw_legend, panel_grid, write_in_panel
from analysis.figures.writing import WrittenFigure, write_drawing
from analysis.formats.study import Study

ROW_IN = 1.75
MIN_MS = 1e-3
"""Lower end of a scatter plot's logarithmic axis, at which shorter times are drawn.

In simulated time, a cell may pass a relay in zero time.
"""

# These colours are from Paul Tol's palettes. Adjacent ones are distinct in greyscale.
GREY, ORANGE, BLUE = "#BBBBBB", "#EE7733", "#0077BB"
STAGE_COLORS = {
    Stage.INBUF_QUEUE.value: "#DDCC77",
    Stage.QUEUE_OUTBUF.value: "#CC6677",
    Stage.OUTBUF_FLUSH.value: "#332288",
}
WAIT_COLORS = {
    "circuit queue": "#CC6677",
    "outbuf": "#332288",
    "kernel, to the next relay": "#44AA99",
}

LAYERS: Mapping[str, Sequence[tuple[str, Callable[[Points], Bools]]]] = {
    "all cells": [(BLUE, lambda p: np.ones(p.time_s.shape, bool))],
    "busiest circuit": [(BLUE, lambda p: p.groups[Group.BUSIEST])],
    "quiet and busy": [
        (GREY, lambda p: p.groups[Group.BUSY]),
        (ORANGE, lambda p: p.groups[Group.QUIET]),
    ],
}
"""Label of a row of panels in a scatter plot -> its layers, from back to front.

A layer is a colour, and a function that selects the cells.
"""

LAYER_COLORS = {"all cells, busiest circuit": BLUE, "busy circuits": GREY, "quiet circuits": ORANGE}

SCATTER_CAPTION = (
    "Relays of role {role}, one run each (network {seeds}); logarithmic. Top: all cells ({cells}; "
    "every n-th is shown if there are more than 20,000). Middle: the circuit with the most cells. "
    "Bottom: the quiet circuits (at most as many cells as the first quartile) on top of the busy "
    "ones (at least the third). Cells that took less than 1 microsecond of simulated time are at "
    "the lower edge."
)
STAGES_CAPTION = (
    "Mean time of relayed RELAY cells of the measured span in each stage, by role of the relay; "
    "mean over networks."
)
WAITS_CAPTION = (
    "Mean waits of RELAY cells towards clients that were queued in the measured span, by role of "
    "the relay that sent them; mean over networks. From the kernel to the next relay: minus the "
    "minimum on the same channel. If most of a relay's cells are not read by a traced relay, such "
    "as those that go to clients, this part is unknown (?)."
)
TTFB_CAPTION = (
    "Mean over the downloads whose cells could be followed: BEGIN, CONNECTED, the request and the "
    "first answer, at each position of the circuit. The rest of the time to first byte is the "
    "network's, the server's and the client's."
)


def draw_all(table: TraceTable, study: Study, directory: Path) -> tuple[WrittenFigure, ...]:
    """Draw the figures of a study with traced runs into ``directory``.

    Equal data give byte-identical files.
    """
    columns = column_labels(table, study)
    drawn = []

    def write(name: str, heading: str, caption: str, draw: Callable[[], Figure]) -> None:
        drawn.append(write_drawing(draw, directory / f"celltrace-{name}", heading, caption, None))

    # Draw the scatter plot for guards, as Goulet did. If no guard relayed cells, draw it for the
    # first role that did.
    roles = [role for role in table.relaying_roles if role != ALL_ROLES]
    for role in ["guard"] if "guard" in roles else roles[:1]:
        shown = {(p.level, p.variant): p for p in table.points if p.role == role}
        caption = SCATTER_CAPTION.format(
            role=role,
            seeds=", ".join(map(str, sorted({p.seed for p in shown.values()}))),
            cells=", ".join(f"{p.cells:,}" for p in shown.values()),
        )
        write(
            f"scatter-{role.replace(' ', '-')}",
            f"Time of each RELAY cell inside its relay, {role}",
            caption,
            partial(_scatter, columns, shown),
        )
    write("stages", "Time of cells by stage", STAGES_CAPTION, lambda: _stages(table, columns))
    if mean_waits(table):
        heading = "Waits of cells towards clients"
        write("waits", heading, WAITS_CAPTION, lambda: _waits(table, columns))
    if table.relay_times:
        heading = "Part of the time to first byte spent inside relays"
        write("ttfb", heading, TTFB_CAPTION, lambda: _first_bytes(table, columns))
    return tuple(drawn)


Columns = Mapping[tuple[str, str], str]
"""Level and variant -> label of a column."""


def column_labels(table: TraceTable, study: Study) -> Columns:
    """Return the label of each column of a figure: one per level and variant with traced runs."""
    present = {(run.level, run.variant) for run, _ in table.counts}
    several = len(study.variants) > 1
    return {
        (level.name, variant.name): study.label(level) + (f", {variant.label}" if several else "")
        for level in study.levels
        for variant in study.variants
        if (level.name, variant.name) in present
    }


def mean_relay_times_ms(table: TraceTable) -> dict[tuple[str, str, str, str, Stage], float]:
    """Return a download's time inside relays before its first byte, as the mean over runs.

    The keys are (level, variant, class, position of the relay, stage).
    """
    rows = pd.DataFrame(table.relay_times, columns=list(RELAY_TIME_COLUMNS))
    groups = rows.groupby(["level", "variant", "class", "position", "stage"])["time_s"]
    means_ms: dict[Any, float] = (1000 * groups.agg(lambda t: t.to_numpy().mean())).to_dict()
    return means_ms


def _scatter(columns: Columns, shown: Mapping[tuple[str, str], Points]) -> Figure:
    """Draw three rows: all cells, the busiest circuit, and the quiet and busy circuits."""
    figure, grid = panel_grid(
        TEXT.width_in, len(LAYERS) * ROW_IN + 0.35, len(LAYERS), len(columns),
        sharex="col", sharey="row",
    )  # fmt: skip
    for column, (key, label) in zip(grid.T, columns.items(), strict=True):
        points = shown.get(key)
        for axes, layers in zip(column, LAYERS.values(), strict=True):
            if points is None or not points.time_s.size:
                write_in_panel(axes, "no data")
                continue
            for color, select in layers:
                cells = select(points)
                axes.scatter(
                    points.time_s[cells],
                    np.maximum(points.time_ms[cells], MIN_MS),
                    s=3.0 if color == ORANGE else 0.6,
                    c=color,
                    linewidths=0,
                    # Draw points as pixels: tens of thousands of paths would slow the report down.
                    rasterized=True,
                )
            axes.set_yscale("log")
        column[0].set_title(as_drawn(label))
        column[-1].set_xlabel("Simulated time (s)")
    for axes, name in zip(grid[:, 0], LAYERS, strict=True):
        axes.set_ylabel(f"{name}\ninbuf to kernel (ms)")
    draw_legend(
        figure,
        [
            Line2D([], [], linestyle="", marker="o", markersize=4, color=color, label=label)
            for label, color in LAYER_COLORS.items()
        ],
    )
    return figure


def _stages(table: TraceTable, columns: Columns) -> Figure:
    roles = [role for role in table.relaying_roles if role != ALL_ROLES] or table.roles
    means_ms = {
        (row["level"], row["variant"], row["role"], row["stage"]): row["mean_ms"]
        for row in mean_times(table)
        if row["group"] == Group.ALL
    }

    label = "Mean time inside the relay (ms)"
    return _stage_bars(columns, [(role,) for role in roles], means_ms, np.nan, label)


def _first_bytes(table: TraceTable, columns: Columns) -> Figure:
    places = [
        (class_name, position)
        for class_name in dict.fromkeys(row["class"] for row in table.relay_times)
        for position in POSITIONS
    ]
    label = "Mean time inside relays\nbefore the first byte (ms)"
    return _stage_bars(columns, places, mean_relay_times_ms(table), 0.0, label)


def _stage_bars(
    columns: Columns,
    places: Sequence[tuple[str, ...]],
    means_ms: Mapping[Any, float],
    missing: float,
    y_label: str,
) -> Figure:
    """Draw a panel for each column, with a bar for each place, stacked by stage.

    means_ms: (level, variant, parts of the place, stage) -> height, by default ``missing``.
    """
    figure, grid = panel_grid(TEXT.width_in, 2.75, 1, len(columns), sharey="row")
    names = ["\n".join(place) for place in places]
    for axes, (key, label) in zip(grid[0], columns.items(), strict=True):
        base = np.zeros(len(names))
        for stage in STAGES:
            values = np.array([means_ms.get((*key, *place, stage), missing) for place in places])
            axes.bar(names, values, bottom=base, color=STAGE_COLORS[stage.value])
            base = base + np.nan_to_num(values)
        axes.set_title(as_drawn(label))
        axes.grid(visible=False, axis="x")
        axes.tick_params(axis="x", labelsize=6.5)
    grid[0, 0].set_ylabel(y_label)
    draw_legend(figure, _patches(STAGE_COLORS))
    return figure


def _waits(table: TraceTable, columns: Columns) -> Figure:
    """Draw the mean waits: a panel for each role, with a bar for each level and variant."""
    means = {(row["role"], row["level"], row["variant"]): row for row in mean_waits(table)}
    roles = list(dict.fromkeys(role for role, _, _ in means))
    height_in = len(roles) * (0.45 + 0.2 * len(columns)) + 0.6
    figure, grid = panel_grid(TEXT.width_in, height_in, len(roles), 1, sharex=True)
    axes: Axes
    for axes, role in zip(grid[:, 0], roles, strict=True):
        for y, key in enumerate(columns):
            row = means.get((role, *key))
            if row is None:
                axes.text(0, y, " no cells", va="center")
                continue
            base_ms = 0.0
            for name, color in zip(WAITS, WAIT_COLORS.values(), strict=True):
                if not np.isnan(row[name]):
                    axes.barh(y, 1000 * row[name], left=base_ms, color=color)
                    base_ms += 1000 * row[name]
            if np.isnan(row[WAITS[-1]]):
                axes.text(base_ms, y, " + ?", va="center")
        axes.set_yticks(range(len(columns)), [as_drawn(label) for label in columns.values()])
        axes.invert_yaxis()
        axes.set_title(role)
        axes.grid(visible=False, axis="y")
    grid[-1, 0].set_xlabel("Mean wait (ms)")
    draw_legend(figure, _patches(WAIT_COLORS))
    return figure


def _patches(colors: Mapping[str, str]) -> list[Patch]:
    return [Patch(color=color, label=label) for label, color in colors.items()]
