"""How effects change from level to level: against the baseline, a panel a metric, a row a level."""

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
    Drawn,
    axis_of,
    effect_columns,
    effects_csv,
    label_of,
    write_plot,
)
from analysis.figures.style import TEXT, Page, as_drawn
from analysis.formats.study import Variant
from analysis.judgement.compared import Compared
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade

ROW_IN = 0.12
"""Height of one variant's line in a level's row."""

TITLE_CHARACTERS = 24
"""A line of a panel's title, of three side by side beside the names of levels."""

MEDIAN = "_p50_"
"""In the names of metrics that are medians; other quantiles of times are not drawn."""

CAPTION = (
    "How variants differ from {baseline} from level to level, with 95% intervals, each for its own "
    "row: throughput, timeout rate and medians of times. A mark that is filled: a difference is "
    "shown, by all the level's endpoints together. The grey band is the margin within which "
    "two count as alike; an arrow: the interval goes further than is drawn."
)


def write_levels(
    compared: Sequence[Compared], looks: Mapping[str, Variant], base: Path, page: Page = TEXT
) -> Drawn | None:
    """Draws ``base``.pdf, .png and .csv; same data, same bytes.

    Args:
        compared: with keys, all against the same baseline, in the order of rows and lines.
        looks: variants by name, as figures show them.
        base: path of the files without their ending.
        page: where the plot is to stand.

    Returns:
        None: fewer than two levels, or by one seed each, which has no interval.
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


def draw(compared: Sequence[Compared], looks: Mapping[str, Variant], page: Page) -> Figure:
    """The panels in rows of three, all with the same levels, each with an axis of its own."""
    rows = {one.key[0]: one.place for one in compared}
    lines = [looks[name] for name in dict.fromkeys(one.key[1] for one in compared)]
    panels = list(
        dict.fromkeys(
            label_of(j) for one in compared for j in _shown(one) if j.verdict.effect is not None
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
    compared: Sequence[Compared],
    rows: Mapping[str, str],
    variants: Sequence[Variant],
) -> None:
    """One metric: a row a level, and in it a line a variant, from above in their order."""
    found = {
        one.key: judgement
        for one in compared
        for judgement in _shown(one)
        if label_of(judgement) == label
    }
    axis = axis_of(next(iter(found.values())))
    drawn = [j.verdict for j in found.values() if j.verdict.effect and j.verdict.scale == axis]
    half = limit(axis, [v.effect for v in drawn if v.effect], [v.margin for v in drawn if v.margin])
    for row, level in enumerate(rows):
        margins = [j.verdict.margin for (of, _), j in found.items() if of == level]
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


def _shown(one: Compared) -> list[Judgement]:
    """Of times the medians: their tails are in the plot of all endpoints."""
    return [j for j in one.judgements if not j.metric.duration or MEDIAN in j.metric.name]


def _csv(compared: Sequence[Compared]) -> str:
    rows = (
        (one.place, one.variant, one.baseline, *effect_columns(j))
        for one in compared
        for j in _shown(one)
    )
    return effects_csv(("level", "variant", "baseline"), rows)
