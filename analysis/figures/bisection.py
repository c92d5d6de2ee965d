"""Plot of a bisection: the change of an endpoint from the good commit to each tested commit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis.figures.effect_panels import MarkStyle
from analysis.figures.forest import GREEN, GREY, RED
from analysis.figures.style import (
    LINE_OF_INTEREST,
    OUTSIDE_COLOR,
    TEXT,
    as_drawn,
    draw_legend,
    panel_grid,
)
from analysis.figures.writing import WrittenFigure, write_drawing
from analysis.judgement.bisection import Decision, Examination, Search
from analysis.measures.metric import Quantity

STYLES = {
    Decision.BAD: MarkStyle("v", RED, RED, "bad"),
    Decision.GOOD: MarkStyle("^", GREEN, GREEN, "good"),
    Decision.OPEN: MarkStyle("o", "white", GREY, "not decided"),
    Decision.SKIPPED: MarkStyle("X", "white", GREY, "skipped"),
}
HASH_DIGITS = 8
"""Number of digits of a commit's hash in the labels of the x axis."""

CAPTION = (
    "Effect of each tested commit against GOOD (commit 0) on the same networks, with its own 95% "
    "interval. Commits are in the order of the history. Grey band: a commit that can be the first "
    "bad one."
)


def write_bisection(
    commits: Sequence[str], search: Search, metric: Quantity, base: Path, table: str
) -> WrittenFigure:
    """Write the plot and ``table`` as ``base``.pdf, .png and .csv.

    commits: all commits, the good one first and parents before children.
    """
    return write_drawing(
        lambda: draw(commits, search, metric), base, "The endpoint by commit", CAPTION, table
    )


def draw(commits: Sequence[str], search: Search, metric: Quantity) -> Figure:
    """Draw the good commit and the effect of each tested commit, in the order of ``commits``."""
    place = {commit: number for number, commit in enumerate(commits)}
    tested = sorted(search.examinations, key=lambda one: place[one.commit])
    figure, grid = panel_grid(TEXT.width_in, TEXT.panel_height_in, 1, 1)
    axes = grid[0, 0]
    scales = [one.against_good.scale for one in tested if one.against_good]
    # If a value is zero, the effect is a difference instead of a ratio. Use the scale that most
    # commits have.
    scale = max(scales, key=scales.count, default="")
    no_effect = 1.0 if scale == "ratio" else 0.0
    axes.axhline(no_effect, **LINE_OF_INTEREST)
    if scales:
        axes.plot([0], [no_effect], "o", color="black", ms=5)
    for x, one in enumerate(tested, start=1):
        if one.commit in search.left:
            axes.axvspan(x - 0.5, x + 0.5, color=OUTSIDE_COLOR, zorder=0)
        _draw_examination(axes, x, one, metric, scale)
    shown = [commits[0], *(one.commit for one in tested)]
    labels = [f"{place[commit]}: {commit[:HASH_DIGITS]}" for commit in shown]
    axes.set_xticks(range(len(shown)), labels, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(shown) - 0.5)
    axes.grid(axis="x", visible=False)
    if scale == "ratio":
        axes.set_yscale("log")
        for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            which(FuncFormatter(lambda y, _: f"{y:.3g}"))
        axes.set_ylabel(f"{as_drawn(metric.label)},\nratio to GOOD")
    else:
        unit = "points" if metric.unit == "1" else metric.unit
        axes.set_ylabel(f"{as_drawn(metric.label)},\n{unit} more than GOOD")
    found = {one.decision for one in tested}
    draw_legend(figure, [style.handle() for one, style in STYLES.items() if one in found])
    return figure


def _draw_examination(axes: Axes, x: int, one: Examination, metric: Quantity, scale: str) -> None:
    """Draw the effect of a commit, or only a marker at the bottom if it has none on this scale."""
    style, verdict = STYLES[one.decision], one.against_good
    marker = {**style.marker_options, "ms": 5}
    if verdict is None or verdict.effect is None or verdict.scale != scale:
        axes.plot([x], [0.04], transform=axes.get_xaxis_transform(), **marker)
        return
    factor = 100.0 if verdict.scale == "difference" and metric.unit == "1" else 1.0
    effect = verdict.effect
    if effect.low is not None and effect.high is not None:
        axes.plot([x, x], [factor * effect.low, factor * effect.high], color=style.edge, lw=1.1)
    axes.plot([x], [factor * effect.estimate], **marker)
