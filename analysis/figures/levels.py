"""Plot of effects against the baseline over levels: a panel per metric, a row per level."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
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
from analysis.figures.forest import (
    ACROSS,
    RenderedPlot,
    effect_axis,
    effect_columns,
    effects_csv,
    line_label,
    write_plot,
)
from analysis.figures.style import TEXT, Page, as_drawn
from analysis.formats.study import Variant
from analysis.judgement.compared import VariantComparison
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade

ROW_IN = 0.12
"""Height of one variant's line in a level's row."""

TITLE_CHARACTERS = 24
"""Maximum length of a line in a panel's title, for three panels in a row."""

MEDIAN = "_p50_"
"""Part of the names of medians; other quantiles of times are not drawn."""

CAPTION = (
    "Differences of variants from {baseline} by level, with individual 95% "
    "intervals: throughput, timeout rate and medians of times. Filled mark: a difference is "
    "shown, corrected for all endpoints of the level. Grey band: the margin within which "
    "two variants count as equivalent. Arrow: the interval exceeds the axis."
)


def write_levels(
    compared: Sequence[VariantComparison],
    looks: Mapping[str, Variant],
    base: Path,
    page: Page = TEXT,
) -> RenderedPlot | None:
    """Draw ``base``.pdf, .png and .csv; same data, same bytes.

    Args:
        compared: with keys, all against the same baseline, in the order of rows and lines.
        looks: variants by name, with their styles.
        base: path of the files without extension.
        page: format of the page.

    Returns:
        None if there are fewer than two levels, or no comparison with more than one seed.
    """
    several = any(
        j.verdict.effect is not None and j.verdict.count > 1
        for one in compared
        for j in _shown(one)
    )
    if len({one.key[0] for one in compared}) < 2 or not several:
        return None
    caption = CAPTION.format(baseline=compared[0].baseline)
    return write_plot(lambda: draw(compared, looks, page), _csv(compared), base, caption)


def draw(compared: Sequence[VariantComparison], looks: Mapping[str, Variant], page: Page) -> Figure:
    """Draw the panels in rows of three, all with the same levels, each with a separate axis."""
    rows = {one.key[0]: one.place for one in compared}
    lines = [looks[name] for name in dict.fromkeys(one.key[1] for one in compared)]
    panels = list(
        dict.fromkeys(
            line_label(j) for one in compared for j in _shown(one) if j.verdict.effect is not None
        )
    )
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    row_in = ROW_IN * (len(lines) + 1)
    figure = Figure(
        figsize=(page.width_in, down * (row_in * len(rows) + 0.75) + 0.4), layout="constrained"
    )
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.set_visible(False)
            continue
        _draw_panel(axes, panels[place], compared, rows, lines)
    handles = [
        Line2D([], [], color=line.color, lw=1.1, marker=line.marker, mfc="white", mec=line.color,
               ms=4.5, label=as_drawn(line.label))
        for line in lines
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _draw_panel(
    axes: Axes,
    label: str,
    compared: Sequence[VariantComparison],
    rows: Mapping[str, str],
    variants: Sequence[Variant],
) -> None:
    """Draw one metric: a row per level, and in it a line per variant, from the top in order."""
    found = {
        one.key: judgement
        for one in compared
        for judgement in _shown(one)
        if line_label(judgement) == label
    }
    axis = effect_axis(next(iter(found.values())))
    drawn = [j.verdict for j in found.values() if j.verdict.effect and j.verdict.scale == axis]
    half = limit(axis, [v.effect for v in drawn if v.effect], [v.margin for v in drawn if v.margin])
    for row, level in enumerate(rows):
        margins = [j.verdict.margin for (where, _), j in found.items() if where == level]
        if margins and margins[0]:
            margin = position(axis, margins[0])
            axes.fill_between([-margin, margin], row - 0.47, row + 0.47, color=BAND_COLOR, lw=0)
        for line, variant in enumerate(variants):
            one = found.get((level, variant.name))
            if one is not None:
                y = row + ((line + 1) / (len(variants) + 1) - 0.5)
                _draw_mark(axes, y, one, axis, half, variant)
    dress_rows(axes, list(rows.values()), half)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_title(textwrap.fill(as_drawn(label), TITLE_CHARACTERS), loc="left")
    against = as_drawn(compared[0].baseline)
    if axis == "difference":
        axes.set_xlabel(f"points more than {against}")
    else:
        ratio_ticks(axes, half, ACROSS)
        axes.set_xlabel(f"ratio to {against}")


def _draw_mark(
    axes: Axes, y: float, one: Judgement, axis: str, half: float, variant: Variant
) -> None:
    verdict = one.verdict
    if verdict.effect is None or verdict.scale != axis:
        lacks = "no value" if verdict.effect is None else "no ratio: zeros"
        axes.text(0, y, lacks, ha="center", va="center", color=variant.color, fontsize=5.5)
        return
    draw_interval(axes, y, verdict.effect, verdict.scale, half, variant.color)
    at = float(np.clip(position(verdict.scale, verdict.effect.estimate), -half, half))
    face = variant.color if verdict.grade is Grade.SHOWN else "white"
    axes.plot(
        [at], [y], marker=variant.marker, mfc=face, mec=variant.color, mew=0.9, ms=4, zorder=3,
        clip_on=False,
    )  # fmt: skip


def _shown(one: VariantComparison) -> list[Judgement]:
    """Return the judgements to draw: of times only medians, as the forest plot shows the tails."""
    return [j for j in one.judgements if not j.metric.duration or MEDIAN in j.metric.name]


def _csv(compared: Sequence[VariantComparison]) -> str:
    rows = (
        (one.place, one.variant, one.baseline, *effect_columns(j))
        for one in compared
        for j in _shown(one)
    )
    return effects_csv(("level", "variant", "baseline"), rows)
