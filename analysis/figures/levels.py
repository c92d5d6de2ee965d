"""Plot of effects against the baseline: a panel per metric, a row per level.

A level is one setting of the network.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from analysis.figures.effect_panels import (
    ACROSS,
    Mark,
    MarkStyle,
    draw_effects,
    effect_axis,
    half_width,
    line_label,
    style_axis,
)
from analysis.figures.forest import EFFECT_COLUMNS
from analysis.figures.style import TEXT, as_drawn, draw_legend, panel_grid
from analysis.figures.writing import WrittenFigure, write_drawing
from analysis.formats.csv_tables import csv_text
from analysis.formats.study import Variant
from analysis.judgement.compared import VariantComparison, judgement_record
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade

ROW_IN = 0.12
"""Height of one variant's line in a level's row."""

TITLE_CHARACTERS = 24
"""Maximum length of a line in a panel's title, for three panels in a row."""

MEDIAN = "_p50_"
"""Text in the names of metrics that are medians. Other quantiles of times are not drawn."""

CAPTION = (
    "Differences of variants from {baseline} by level, with individual 95% "
    "intervals: throughput, timeout rate and medians of times. Filled mark: a difference is "
    "shown, corrected for all endpoints of the level. Grey band: the margin within which "
    "two variants count as equivalent. Arrow: the interval exceeds the axis."
)


def write_levels(
    compared: Sequence[VariantComparison], looks: Mapping[str, Variant], base: Path
) -> WrittenFigure | None:
    """Write the plot and its data as ``base``.pdf, .png and .csv.

    Args:
        compared: comparisons with the same baseline, in the order in which levels and variants are
            drawn. The ``key`` of each is (level, variant).
        looks: name of a variant -> the variant, which defines how its effects look.
        base: path of the files, without their extension.

    Returns:
        None if there are fewer than two levels, or if no comparison has more than one network.
    """
    shown = [(one, judgement) for one in compared for judgement in _shown(one)]
    several = any(j.verdict.effect is not None and j.verdict.count > 1 for _, j in shown)
    if len({one.key[0] for one in compared}) < 2 or not several:
        return None
    records = ({"level": one.place, **vars(one), **judgement_record(j)} for one, j in shown)
    table = csv_text(records, ("level", "variant", "baseline", *EFFECT_COLUMNS))
    caption = CAPTION.format(baseline=compared[0].baseline)
    return write_drawing(lambda: draw(compared, looks), base, "Effects by level", caption, table)


def draw(compared: Sequence[VariantComparison], looks: Mapping[str, Variant]) -> Figure:
    """Draw panels in rows of three. All panels have the same levels, but different x axes."""
    rows = {one.key[0]: one.place for one in compared}
    variants = [looks[name] for name in dict.fromkeys(one.key[1] for one in compared)]
    panels: dict[str, dict[tuple[str, str], Judgement]] = {}
    for one in compared:
        for judgement in _shown(one):
            panels.setdefault(line_label(judgement), {})[one.key] = judgement
    panels = {
        label: found
        for label, found in panels.items()
        if any(judgement.verdict.effect for judgement in found.values())
    }
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    row_in = ROW_IN * (len(variants) + 1)
    height_in = down * (row_in * len(rows) + 0.75) + 0.4
    figure, grid = panel_grid(TEXT.width_in, height_in, down, across, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (label, found) in zip(grid.flat, panels.items(), strict=False):
        axis = effect_axis(next(iter(found.values())).metric)
        marks = [
            _mark(found[level, variant.name], row, variant, (line + 1) / (len(variants) + 1) - 0.5)
            for row, level in enumerate(rows)
            for line, variant in enumerate(variants)
            if (level, variant.name) in found
        ]
        half = half_width(axis, marks)
        draw_effects(axes, list(rows.values()), marks, axis, half)
        axes.set_title(textwrap.fill(as_drawn(label), TITLE_CHARACTERS), loc="left")
        style_axis(axes, axis, half, ACROSS, compared[0].baseline)
    draw_legend(figure, [MarkStyle(v.marker, "white", v.color, v.label).handle() for v in variants])
    return figure


def _mark(judgement: Judgement, row: int, variant: Variant, offset: float) -> Mark:
    verdict = judgement.verdict
    face = variant.color if verdict.grade is Grade.SHOWN else "white"
    style = MarkStyle(variant.marker, face, variant.color)
    return Mark(verdict.effect, verdict.scale, verdict.margin, style, row, offset)


def _shown(one: VariantComparison) -> list[Judgement]:
    """Return the judgements to draw.

    Quantiles of times other than medians are left out; the forest plot shows them.
    """
    return [j for j in one.judgements if not j.metric.duration or MEDIAN in j.metric.name]
