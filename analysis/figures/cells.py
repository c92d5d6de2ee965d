"""Figures of a study's cell traces: the text's scatter plots, stages, waits, and first bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.arrays import Bools
from analysis.celltrace.statistics import Group, Stage
from analysis.celltrace.summaries import (
    ALL_ROLES,
    POSITIONS,
    STAGES,
    WAITS,
    Points,
    TraceTable,
    mean_times,
    mean_waits,
)
from analysis.figures.png import save_png
from analysis.figures.style import RC, as_drawn
from analysis.formats.study import Study

WIDTH_IN = 7.0
ROW_IN = 1.75
MIN_MS = 1e-3
"""Lower end of the axis of a scatter plot: in virtual time, a cell may pass in no time."""

# These are Paul Tol's palettes. The light and dark colours of a pair are distinct in greyscale.
GREY, ORANGE, BLUE = "#BBBBBB", "#EE7733", "#0077BB"
STAGE_COLORS = {
    Stage.INBUF_QUEUE: "#DDCC77",
    Stage.QUEUE_OUTBUF: "#CC6677",
    Stage.OUTBUF_FLUSH: "#332288",
}

WAIT_COLORS = {
    "circuit queue": STAGE_COLORS[Stage.QUEUE_OUTBUF],
    "outbuf": STAGE_COLORS[Stage.OUTBUF_FLUSH],
    "kernel, to the next relay": "#44AA99",
}


@dataclass(frozen=True)
class TraceFigure:
    """One drawn figure: its files, heading and caption, and the drawing as SVG for the report."""

    id: str
    heading: str
    caption: str
    files: tuple[Path, ...]
    svg: bytes


def draw_all(table: TraceTable, study: Study, directory: Path) -> tuple[TraceFigure, ...]:
    """Draw the figures of a study with traced runs into ``directory``; same data, same bytes."""
    settings: Any = {**mpl.rcParamsDefault, **RC, "backend": "agg"}
    with mpl.rc_context(settings):
        drawn = [
            _save(
                directory,
                f"celltrace-scatter-{role.replace(' ', '-')}",
                f"Time of each RELAY cell inside its relay, {role}",
                _scatter_caption(table, role),
                _scatter(table, study, role),
            )
            for role in _shown_roles(table)
        ]
        drawn.append(
            _save(
                directory,
                "celltrace-stages",
                "Time of cells by stage",
                "Mean time of relayed RELAY cells of the measured span in each stage, by role of "
                "the relay; mean over networks.",
                _stages(table, study),
            )
        )
        if mean_waits(table):
            drawn.append(
                _save(
                    directory,
                    "celltrace-waits",
                    "Waits of cells towards clients",
                    "Mean waits of RELAY cells towards clients that were queued in the measured "
                    "span, by role of the relay that sent them; mean over networks. From the "
                    "kernel to the next relay: minus the minimum on the same channel. "
                    "If most of a relay's cells are not read by a traced relay, such as those that "
                    "go to clients, this part is unknown (?).",
                    _waits(table, study),
                )
            )
        if table.relay_times:
            drawn.append(
                _save(
                    directory,
                    "celltrace-ttfb",
                    "Part of the time to first byte spent inside relays",
                    "Mean over the downloads whose cells could be followed: BEGIN, CONNECTED, the "
                    "request and the first answer, at each position of the circuit. The rest of "
                    "the time to first byte is the network's, the server's and the client's.",
                    _first_bytes(table, study),
                )
            )
    return tuple(drawn)


def _save(directory: Path, name: str, heading: str, caption: str, figure: Figure) -> TraceFigure:
    pdf, png = directory / f"{name}.pdf", directory / f"{name}.png"
    nothing = {"Creator": None, "Producer": None, "CreationDate": None}
    figure.savefig(pdf, format="pdf", metadata=nothing)
    save_png(figure, png)
    # Render the points as an image: as tens of thousands of paths, they would slow the report down.
    image = io.BytesIO()
    figure.savefig(
        image, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    return TraceFigure(name, heading, caption, (pdf, png), image.getvalue())


def _shown_roles(table: TraceTable) -> list[str]:
    """Return the role that the text measured; without it, the first role that relayed cells."""
    roles = [role for role in table.relaying_roles if role != ALL_ROLES]
    if "guard" in roles:
        return ["guard"]
    return roles[:1]


def column_labels(table: TraceTable, study: Study) -> list[tuple[str, str, str]]:
    """Return level, variant and label of each column of a figure."""
    present = {(run.level, run.variant) for run, _ in table.counts}
    several = len(study.variants) > 1
    return [
        (
            level.name,
            variant.name,
            f"{study.label(level)}, {variant.label}" if several else study.label(level),
        )
        for level in study.levels
        for variant in study.variants
        if (level.name, variant.name) in present
    ]


def _canvas(rows: int, columns: int, row_in: float = ROW_IN) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH_IN, rows * row_in + 0.35), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, sharex="col", sharey="row")


def _scatter(table: TraceTable, study: Study, role: str) -> Figure:
    """Draw three rows as in the text: all cells, the busiest circuit, quiet and busy circuits."""
    columns = column_labels(table, study)
    by_key = {(p.level, p.variant): p for p in table.points if p.role == role}
    rows: list[tuple[str, Callable[[Points], list[tuple[Bools, str, str]]]]] = [
        ("all cells", lambda p: [(np.ones(p.time_s.shape, bool), BLUE, "all cells")]),
        ("busiest circuit", lambda p: [(p.groups[Group.BUSIEST], BLUE, "busiest circuit")]),
        (
            "quiet and busy",
            lambda p: [
                (p.groups[Group.BUSY], GREY, "busy circuits"),
                (p.groups[Group.QUIET], ORANGE, "quiet circuits"),
            ],
        ),
    ]
    figure, axes = _canvas(len(rows), len(columns))
    for j, (level, variant, label) in enumerate(columns):
        points = by_key.get((level, variant))
        for i, (_, layers) in enumerate(rows):
            ax: Axes = axes[i][j]
            if points is None or not points.time_s.size:
                ax.text(0.5, 0.5, "no data", ha="center", va="center", transform=ax.transAxes)
                continue
            for mask, color, name in layers(points):
                ax.scatter(
                    points.time_s[mask],
                    np.maximum(points.time_ms[mask], MIN_MS),
                    s=3.0 if color == ORANGE else 0.6,
                    c=color,
                    linewidths=0,
                    rasterized=True,
                    label=name,
                )
            ax.set_yscale("log")
            if i == 0:
                ax.set_title(as_drawn(label))
            if i == len(rows) - 1:
                ax.set_xlabel("Simulated time (s)")
            if j == 0:
                ax.set_ylabel(f"{rows[i][0]}\ninbuf to kernel (ms)")
    figure.legend(
        handles=[
            Line2D([], [], linestyle="", marker="o", markersize=4, color=color, label=label)
            for color, label in (
                (BLUE, "all cells, busiest circuit"),
                (GREY, "busy circuits"),
                (ORANGE, "quiet circuits"),
            )
        ],
        loc="outside upper center",
        ncols=3,
        frameon=False,
    )
    return figure


def _scatter_caption(table: TraceTable, role: str) -> str:
    shown = [p for p in table.points if p.role == role]
    cells = ", ".join(f"{p.cells:,}" for p in shown)
    seeds = sorted({p.seed for p in shown})
    return (
        f"Relays of role {role}, one run each (network {', '.join(map(str, seeds))}); logarithmic. "
        f"Top: all cells ({cells}; every n-th is shown if there are more than 20,000). Middle: the "
        "circuit with the most cells. Bottom: the quiet circuits (at most as many cells as the "
        "first quartile) on top of the busy ones (at least the third). Cells that took less than 1 "
        "microsecond of simulated time are at the lower edge."
    )


def _stages(table: TraceTable, study: Study) -> Figure:
    columns = column_labels(table, study)
    roles = [role for role in table.relaying_roles if role != ALL_ROLES] or table.roles
    means = {
        (row["role"], row["level"], row["variant"], row["stage"]): row
        for row in mean_times(table)
        if row["group"] == Group.ALL
    }
    figure, axes = _canvas(1, len(columns), 2.4)
    for j, (level, variant, label) in enumerate(columns):
        ax: Axes = axes[0][j]
        base = np.zeros(len(roles))
        for stage in STAGES:
            rows = [means.get((role, level, variant, stage)) for role in roles]
            heights = np.array([row["mean_ms"] if row else np.nan for row in rows])
            ax.bar(roles, heights, bottom=base, color=STAGE_COLORS[stage], label=stage.value)
            base = base + np.nan_to_num(heights)
        ax.set_title(as_drawn(label))
        ax.grid(visible=False, axis="x")
        if j == 0:
            ax.set_ylabel("Mean time inside the relay (ms)")
    _stage_legend(figure)
    return figure


def _waits(table: TraceTable, study: Study) -> Figure:
    """Draw a panel for each role, with a bar for each level and variant."""
    runs = column_labels(table, study)
    means = {(row["role"], row["level"], row["variant"]): row for row in mean_waits(table)}
    roles = list(dict.fromkeys(role for role, _, _ in means))
    figure = Figure(
        figsize=(WIDTH_IN, len(roles) * (0.45 + 0.2 * len(runs)) + 0.6), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(roles), 1, squeeze=False, sharex=True)
    for ax, role in zip(axes[:, 0], roles, strict=True):
        for y, (level, variant, _) in enumerate(runs):
            row = means.get((role, level, variant))
            if row is None:
                ax.text(0, y, " no cells", va="center")
                continue
            base_ms = 0.0
            for name, color in zip(WAITS, WAIT_COLORS.values(), strict=True):
                if not np.isnan(row[name]):
                    ax.barh(y, 1000 * row[name], left=base_ms, color=color)
                    base_ms += 1000 * row[name]
            if np.isnan(row[WAITS[-1]]):
                ax.text(base_ms, y, " + ?", va="center")
        ax.set_yticks(range(len(runs)), [as_drawn(label) for _, _, label in runs])
        ax.invert_yaxis()
        ax.set_title(role)
        ax.grid(visible=False, axis="y")
    axes[-1, 0].set_xlabel("Mean wait (ms)")
    figure.legend(
        handles=[Patch(color=color, label=name) for name, color in WAIT_COLORS.items()],
        loc="outside upper center",
        ncols=len(WAIT_COLORS),
        frameon=False,
    )
    return figure


def _first_bytes(table: TraceTable, study: Study) -> Figure:
    columns = column_labels(table, study)
    rows = pd.DataFrame(table.relay_times)
    keys = ["level", "variant", "stage", "class", "position"]
    means_ms = (1000 * rows.groupby(keys)["time_s"].mean()).to_dict()
    classes = rows["class"].unique()
    figure, axes = _canvas(1, len(columns), 2.4)
    for j, (level, variant, label) in enumerate(columns):
        ax: Axes = axes[0][j]
        names = [f"{name}\n{place}" for name in classes for place in POSITIONS]
        base = np.zeros(len(names))
        for stage in STAGES:
            heights = np.array(
                [
                    means_ms.get((level, variant, stage, name, place), 0.0)
                    for name in classes
                    for place in POSITIONS
                ]
            )
            ax.bar(names, heights, bottom=base, color=STAGE_COLORS[stage], label=stage.value)
            base = base + heights
        ax.set_title(as_drawn(label))
        ax.grid(visible=False, axis="x")
        ax.tick_params(axis="x", labelsize=6.5)
        if j == 0:
            ax.set_ylabel("Mean time inside relays\nbefore the first byte (ms)")
    _stage_legend(figure)
    return figure


def _stage_legend(figure: Figure) -> None:
    figure.legend(
        handles=[Patch(color=STAGE_COLORS[stage], label=stage.value) for stage in STAGES],
        loc="outside upper center",
        ncols=len(STAGES),
        frameon=False,
    )
