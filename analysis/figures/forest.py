"""Forest plot: endpoints as ratios to the baseline, with interval, margin and verdict."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.effect_axes import (
    BAND_COLOR,
    draw_interval,
    dress_rows,
    limit,
    position,
    ratio_ticks,
)
from analysis.figures.style import TEXT, Page, as_drawn
from analysis.figures.writing import save
from analysis.inference.intervals import Interval
from analysis.judgement.claims.claim import Answer
from analysis.judgement.compared import VariantComparison, size_in_margins
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade
from analysis.measures.data import ALL

ROW_IN = 0.17
"""Height of one metric's line."""

ACROSS = 3
"""Maximum number of panels in a row."""

LOOKS = {
    "worse": ("v", "#b2182b", "#b2182b", "worse"),
    "better": ("^", "#1a7f5a", "#1a7f5a", "better"),
    Grade.SHOWN.value: ("D", "#2b5c9e", "#2b5c9e", "different"),
    Grade.SAME.value: ("s", "#4d4d4d", "#4d4d4d", "the same: within the margin"),
    Grade.SUGGESTED.value: ("d", "white", "#2b5c9e", "suggested"),
    Grade.OPEN.value: ("o", "white", "#767676", "open"),
    "": (".", "#767676", "#767676", "not judged: too few streams"),
    Answer.SUPPORTED.value: ("^", "#1a7f5a", "#1a7f5a", "supported"),
    Answer.OPPOSITE.value: ("v", "#b2182b", "#b2182b", "opposite"),
    Answer.NO_DIFFERENCE.value: ("s", "#4d4d4d", "#4d4d4d", "no relevant difference"),
    Answer.UNTESTABLE.value: ("X", "white", "#8c6d1f", "cannot be tested here"),
}
"""Verdict, or answer to a claim -> marker, its face, colour of its edge and interval, and label.

The shapes differ, so that they are distinct in greyscale.
"""

MAX_PANELS = 6
"""Maximum number of comparisons drawn, selected by their findings."""

EFFECT_COLUMNS = (
    "class", "metric", "scale", "effect", "low", "high", "margin", "grade", "direction",
)  # fmt: skip

CAPTION = (
    "Endpoints against the baseline, with individual 95% intervals; the grey band "
    "is the margin within which two variants count as equivalent. Times and throughput are ratios, "
    "rates are differences in percentage points. An arrow: the interval exceeds the axis."
)


@dataclass(frozen=True)
class Mark:
    """One effect in the plot.

    Attributes:
        label: label of its line.
        axis: axis of its line: "ratio" or "difference".
        looks: a key of ``LOOKS``.
        effect: with its interval; None if it does not exist.
        scale: scale of the effect, which may differ from ``axis``, for ratios with a zero.
        margin: on that scale.
    """

    label: str
    axis: str
    looks: str
    effect: Interval | None
    scale: str
    margin: float | None


@dataclass(frozen=True)
class Panel:
    """A column of effects; against: the label of the baseline."""

    title: str
    against: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class RenderedPlot:
    """Files of the plot, and the same drawing as SVG."""

    pdf: Path
    png: Path
    csv: Path
    svg: bytes
    caption: str


def write_forest(
    compared: Sequence[VariantComparison], base: Path, page: Page = TEXT
) -> RenderedPlot | None:
    """Draw ``base``.pdf, .png and .csv; same data, same bytes.

    Returns None if there are no comparisons with more than one seed, which is needed for an
    interval.
    """
    shown = [one for one in compared if any(j.verdict.count > 1 for j in one.judgements)]
    if not shown:
        return None
    most = sorted(shown, key=_findings)[:MAX_PANELS]
    panels = [make_panel(one) for one in shown if one in most]
    omitted = len(shown) - len(panels)
    more = f" The plot shows the {len(panels)} of {len(shown)} comparisons with the most findings."
    return write_panels(panels, _csv(shown), base, CAPTION + (more if omitted else ""), page)


def _findings(one: VariantComparison) -> tuple[int, float]:
    """Return a sort key for comparisons: many differences first, then large ones."""
    found = one.with_grade(Grade.SHOWN)
    return -len(found), -size_in_margins(found[0].verdict) if found else 0.0


def write_panels(
    panels: Sequence[Panel], table: str, base: Path, caption: str, page: Page = TEXT
) -> RenderedPlot:
    """Draw ``base``.pdf and .png, and write ``base``.csv; same data, same bytes.

    Args:
        panels: at least one.
        table: the drawn data as CSV.
        base: path of the files without extension.
        caption: caption of the plot.
        page: format of the page.
    """
    return write_plot(lambda: draw(panels, page), table, base, caption)


def write_plot(picture: Callable[[], Figure], table: str, base: Path, caption: str) -> RenderedPlot:
    """Write a drawing as ``base``.pdf and .png, and its data as .csv; same data, same bytes."""
    paths = {ending: base.with_name(f"{base.name}.{ending}") for ending in ("pdf", "png", "csv")}
    paths["csv"].write_text(table, encoding="utf-8")
    svg = save(picture, paths["pdf"], paths["png"])
    return RenderedPlot(paths["pdf"], paths["png"], paths["csv"], svg, caption)


def make_panel(one: VariantComparison) -> Panel:
    """Return a comparison as a panel of its endpoints, with rates separate from the others."""
    marks = (
        Mark(line_label(j), effect_axis(j), j.verdict.word, j.verdict.effect, j.verdict.scale,
             j.verdict.margin)
        for j in one.judgements
    )  # fmt: skip
    return Panel("\n".join(filter(None, (one.variant, one.place))), one.baseline, tuple(marks))


def draw(panels: Sequence[Panel], page: Page) -> Figure:
    """Draw the panels in rows, all with the same lines and axes."""
    lines = {
        axis: list(dict.fromkeys(m.label for one in panels for m in one.marks if m.axis == axis))
        for axis in ("ratio", "difference")
    }
    used_axes = [axis for axis, labels in lines.items() if labels]
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    # Axis labels, ticks and spacing need as much height as some lines.
    heights = [len(lines[axis]) + 1.2 for axis in used_axes]
    height_in = down * (ROW_IN * sum(heights) + 0.42 * len(used_axes) + 0.2) + 0.4
    figure = Figure(figsize=(page.width_in, height_in), layout="constrained")
    grid = figure.subplots(
        down * len(used_axes), across, squeeze=False, height_ratios=heights * down, sharey="row"
    )
    limits = {axis: _limit(panels, axis) for axis in used_axes}
    for place in range(down * across):
        for at, axis in enumerate(used_axes):
            axes = grid[place // across * len(used_axes) + at, place % across]
            if place >= len(panels):
                axes.set_visible(False)
                continue
            if at == 0 and (len(panels) > 1 or panels[place].title):
                axes.set_title(as_drawn(panels[place].title), loc="left")
            _draw_panel(axes, panels[place], lines[axis], axis, limits[axis])
            _style_axis(axes, panels[place], axis, limits[axis], across)
    _legend(figure, panels)
    return figure


def _draw_panel(axes: Axes, one: Panel, lines: Sequence[str], axis: str, half: float) -> None:
    """Draw the lines of one panel; positions are logarithms of ratios, or points."""
    by_label = {mark.label: mark for mark in one.marks if mark.axis == axis}
    for row, label in enumerate(lines):
        mark = by_label.get(label)
        if mark is None or mark.effect is None or mark.scale != axis:
            lacks = "no value" if mark is None or mark.effect is None else "no ratio: zeros"
            if mark is not None and mark.looks == Answer.UNTESTABLE:
                lacks = Answer.UNTESTABLE.value
            # Give the text a background, as the line of no difference would cross it.
            axes.text(
                0, row, lacks, ha="center", va="center", color="#767676", fontsize=6.5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
            continue
        if mark.margin:
            margin = position(axis, mark.margin)
            axes.fill_between([-margin, margin], row - 0.42, row + 0.42, color=BAND_COLOR, lw=0)
        _draw_mark(axes, row, mark, half)
    dress_rows(axes, lines, half)
    axes.set_ylim(len(lines) - 0.4, -0.6)


def _style_axis(axes: Axes, one: Panel, axis: str, half: float, across: int) -> None:
    """Set ticks and a label that fits below a panel, one of ``across`` in a row."""
    # Three labels in a row have no room for a name; the caption contains the baseline.
    against = as_drawn(one.against) if across < ACROSS else ""
    if axis == "difference":
        axes.set_xlabel(f"points more than {against}" if against else "points")
        return
    ratio_ticks(axes, half, across)
    axes.set_xlabel(f"ratio to {against}" if against else "ratio")


def _draw_mark(axes: Axes, row: int, mark: Mark, half: float) -> None:
    assert mark.effect is not None
    marker, face, edge, _ = LOOKS[mark.looks]
    draw_interval(axes, row, mark.effect, mark.scale, half, edge)
    at = float(np.clip(position(mark.scale, mark.effect.estimate), -half, half))
    axes.plot(
        [at], [row], marker=marker, mfc=face, mec=edge, mew=0.9, ms=4.5, zorder=3, clip_on=False
    )


def effect_axis(judgement: Judgement) -> str:
    """Return the axis of a metric: rates as differences, all others as ratios."""
    return "difference" if judgement.metric.unit == "1" else "ratio"


def _limit(panels: Sequence[Panel], axis: str) -> float:
    """Return the half-width of an axis, common to its panels."""
    marks = [m for one in panels for m in one.marks if m.scale == axis == m.axis]
    effects = [m.effect for m in marks if m.effect]
    return limit(axis, effects, [m.margin for m in marks if m.effect and m.margin])


def line_label(judgement: Judgement) -> str:
    """Return the label of a line: the metric, and the class if it is of one."""
    label = judgement.metric.label
    return label if judgement.class_name == ALL else f"{label} ({judgement.class_name})"


def _legend(figure: Figure, panels: Sequence[Panel]) -> None:
    used = {mark.looks for one in panels for mark in one.marks if mark.effect}
    handles = [
        Line2D([], [], color=edge, lw=1.1, marker=marker, mfc=face, mec=edge, ms=4.5, label=words)
        for kind, (marker, face, edge, words) in LOOKS.items()
        if kind in used
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside upper center", ncols=len(handles), frameon=False
        )


def _csv(compared: Sequence[VariantComparison]) -> str:
    rows = ((one.name, *effect_columns(j)) for one in compared for j in one.judgements)
    return effects_csv(("comparison",), rows)


def effect_columns(one: Judgement) -> tuple[str, ...]:
    """Return a metric's effect and verdict, in the order of ``EFFECT_COLUMNS``."""
    v = one.verdict
    effect = (v.effect.estimate, v.effect.low, v.effect.high) if v.effect else (None,) * 3
    numbers = ("" if x is None else f"{x:.9g}" for x in (*effect, v.margin))
    return (one.class_name, one.metric.name, v.scale, *numbers, v.grade or "", v.direction)


def effects_csv(which: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return effects as CSV; which: the columns before ``EFFECT_COLUMNS``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*which, *EFFECT_COLUMNS))
    writer.writerows(rows)
    return text.getvalue()
