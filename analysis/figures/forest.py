"""Forest plot: effects on the endpoints, with interval, equivalence margin and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from analysis.figures.effect_panels import (
    ACROSS,
    Axis,
    Mark,
    MarkStyle,
    draw_effects,
    effect_axis,
    half_width,
    line_label,
    style_axis,
)
from analysis.figures.style import TEXT, as_drawn, draw_legend, panel_grid
from analysis.figures.writing import WrittenFigure, write_drawing
from analysis.formats.csv_tables import csv_text
from analysis.judgement.claims.claim import Answer
from analysis.judgement.compared import VariantComparison, judgement_record, size_in_margins
from analysis.judgement.verdicts import Grade, Verdict

ROW_IN = 0.17
"""Height of one metric's line."""

RED, GREEN, BLUE, GREY = "#b2182b", "#1a7f5a", "#2b5c9e", "#767676"

LOOKS = {
    "worse": MarkStyle("v", RED, RED, "worse"),
    "better": MarkStyle("^", GREEN, GREEN, "better"),
    Grade.SHOWN.value: MarkStyle("D", BLUE, BLUE, "different"),
    Grade.SAME.value: MarkStyle("s", "#4d4d4d", "#4d4d4d", "the same: within the margin"),
    Grade.SUGGESTED.value: MarkStyle("d", "white", BLUE, "suggested"),
    Grade.OPEN.value: MarkStyle("o", "white", GREY, "open"),
    "": MarkStyle(".", GREY, GREY, "not judged: too few streams"),
    Answer.SUPPORTED.value: MarkStyle("^", GREEN, GREEN, "supported"),
    Answer.OPPOSITE.value: MarkStyle("v", RED, RED, "opposite"),
    Answer.NO_DIFFERENCE.value: MarkStyle("s", "#4d4d4d", "#4d4d4d", "no relevant difference"),
    Answer.UNTESTABLE.value: MarkStyle("X", "white", "#8c6d1f", "cannot be tested here"),
}
"""Verdict, or answer to a claim -> style. The shapes are distinct in greyscale."""

ABSENT = Mark(None, "", None, LOOKS[""])

MAX_PANELS = 6
"""Maximum number of comparisons to draw: the comparisons with the most shown differences."""

EFFECT_COLUMNS = (
    "class", "metric", "scale", "effect", "low", "high", "margin", "grade", "direction",
)  # fmt: skip

CAPTION = (
    "Endpoints against {baseline}, with individual 95% intervals; the grey band "
    "is the margin within which two variants count as equivalent. Times and throughput are ratios, "
    "rates are differences in percentage points. An arrow: the interval exceeds the axis."
)


@dataclass(frozen=True)
class EffectPanel:
    """A column of effects.

    ``against`` is the label of the baseline, or "" to omit it. ``marks`` maps the kind of axis and
    the label of a row to the effect.
    """

    title: str
    against: str
    marks: Mapping[tuple[Axis, str], Mark]


def effect_mark(verdict: Verdict, looks: str) -> Mark:
    """Return the mark of a verdict. looks: the key of its style in ``LOOKS``."""
    without = looks if looks == Answer.UNTESTABLE else "no value"
    return Mark(verdict.effect, verdict.scale, verdict.margin, LOOKS[looks], without=without)


def write_forest(compared: Sequence[VariantComparison], base: Path) -> WrittenFigure | None:
    """Write the plot and its data as ``base``.pdf, .png and .csv.

    All comparisons have the same baseline. Returns None if no comparison has more than one network,
    because one network gives no interval.
    """
    shown = [one for one in compared if any(j.verdict.count > 1 for j in one.judgements)]
    if not shown:
        return None
    panels = [make_panel(one) for one in _select(shown)]
    caption = CAPTION.format(baseline=shown[0].baseline)
    if len(panels) < len(shown):
        caption += (
            f" The plot shows the {len(panels)} of {len(shown)} comparisons with the most findings."
        )
    records = (
        {"comparison": one.name, **judgement_record(j)} for one in shown for j in one.judgements
    )
    table = csv_text(records, ("comparison", *EFFECT_COLUMNS))
    return write_drawing(lambda: draw(panels), base, "Answer", caption, table)


def _select(compared: Sequence[VariantComparison]) -> list[VariantComparison]:
    """Return at most ``MAX_PANELS`` comparisons to draw, in the order of ``compared``.

    Comparisons with more shown differences are preferred. If two comparisons have equally many, the
    comparison with the largest shown difference, in units of its margin, is preferred.
    """

    def findings(one: VariantComparison) -> tuple[int, float]:
        verdicts = [judgement.verdict for judgement in one.judgements]
        sizes = [size_in_margins(found) for found in verdicts if found.grade is Grade.SHOWN]
        return -len(sizes), -max(sizes, default=0.0)

    most = sorted(compared, key=findings)[:MAX_PANELS]
    return [one for one in compared if one in most]


def make_panel(one: VariantComparison) -> EffectPanel:
    """Return a panel with the effects on the endpoints of a comparison."""
    marks = {
        (effect_axis(j.metric), line_label(j)): effect_mark(j.verdict, j.verdict.word)
        for j in one.judgements
    }
    return EffectPanel("\n".join(filter(None, (one.variant, one.place))), one.baseline, marks)


def draw(panels: Sequence[EffectPanel]) -> Figure:
    """Draw the panels in rows, all with the same metrics and axes.

    If there are ratios and differences, each panel has two parts, with the differences at the
    bottom.
    """
    lines = dict.fromkeys(line for panel in panels for line in panel.marks)
    axis_rows: dict[Axis, list[str]] = {"ratio": [], "difference": []}
    for axis, label in lines:
        axis_rows[axis].append(label)
    used = {axis: labels for axis, labels in axis_rows.items() if labels}
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    # Axis labels, ticks and spacing need additional height.
    heights = [len(labels) + 1.2 for labels in used.values()]
    height_in = down * (ROW_IN * sum(heights) + 0.42 * len(used) + 0.2) + 0.4
    figure, grid = panel_grid(
        TEXT.width_in, height_in, down * len(used), across,
        height_ratios=heights * down, sharey="row",
    )  # fmt: skip
    for at, (axis, labels) in enumerate(used.items()):
        # A row shows "no value" in a panel that lacks the effect.
        marks = [
            [
                replace(panel.marks.get((axis, label), ABSENT), row=n)
                for n, label in enumerate(labels)
            ]
            for panel in panels
        ]
        half = half_width(axis, [mark for own in marks for mark in own])
        for place in range(down * across):
            axes = grid[place // across * len(used) + at, place % across]
            if place >= len(panels):
                axes.set_visible(False)
                continue
            panel = panels[place]
            if at == 0 and (len(panels) > 1 or panel.title):
                axes.set_title(as_drawn(panel.title), loc="left")
            draw_effects(axes, labels, marks[place], axis, half)
            # With three panels in a row, axis labels have no room for the name of the baseline. The
            # caption contains it.
            style_axis(axes, axis, half, across, panel.against if across < ACROSS else "")
    styles = {mark.style for panel in panels for mark in panel.marks.values() if mark.effect}
    draw_legend(figure, [style.handle() for style in LOOKS.values() if style in styles])
    return figure
