"""The forest plot: primary metrics as ratios to the baseline, with interval, margin, verdict."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.figures.style import TEXT, Page
from analysis.figures.writing import save
from analysis.judgement.compared import Compared
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import State, Verdict
from analysis.measures.data import ALL

ROW_IN = 0.17
"""Height of one metric's line."""

ACROSS = 3
"""Panels side by side at most."""

WIDEST = 8.0
"""Ratios up to this and down to its inverse are drawn; what goes further ends in an arrow."""

BAND_COLOR = "#e4e7eb"

LOOKS = {
    "worse": ("v", "#b2182b", "#b2182b", "worse"),
    "better": ("^", "#1a7f5a", "#1a7f5a", "better"),
    "": ("D", "#2b5c9e", "#2b5c9e", "different"),
    State.EQUIVALENT.value: ("s", "#4d4d4d", "#4d4d4d", "equivalent: within the margin"),
    State.UNKNOWN.value: ("o", "white", "#767676", "not yet known"),
}
"""Verdict -> marker, its face, its edge and the interval, and words. Shapes tell them in grey."""

RATIO_TICKS = (0.125, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 8.0)

COLUMNS = (
    "comparison", "class", "metric", "scale", "effect", "low", "high", "margin", "verdict",
    "direction",
)  # fmt: skip

CAPTION = (
    "Primary metrics against the baseline, with 95% intervals, each for its own row; the grey band "
    "is the margin within which two variants count as alike. Times and throughput are ratios, "
    "rates are differences in percentage points. An arrow: the interval goes further than is drawn."
)


@dataclass(frozen=True)
class Drawn:
    """Files of the plot, and the same drawing as SVG."""

    pdf: Path
    png: Path
    csv: Path
    svg: bytes


def write_forest(compared: Sequence[Compared], base: Path, page: Page = TEXT) -> Drawn | None:
    """Draws ``base``.pdf, .png and .csv; same data, same bytes. None: nothing is compared."""
    shown = [one for one in compared if one.judgements]
    if not shown:
        return None
    paths = {ending: base.with_name(f"{base.name}.{ending}") for ending in ("pdf", "png", "csv")}
    paths["csv"].write_text(_csv(shown), encoding="utf-8")
    svg = save(lambda: draw(shown, page), paths["pdf"], paths["png"])
    return Drawn(paths["pdf"], paths["png"], paths["csv"], svg)


def draw(compared: Sequence[Compared], page: Page) -> Figure:
    """A panel for each comparison, all with the same lines and the same axes."""
    lines = {
        scale: list(
            dict.fromkeys(
                (j.class_name, j.metric.name, _label(j))
                for one in compared
                for j in one.judgements
                if _scale(j) == scale
            )
        )
        for scale in ("ratio", "difference")
    }
    scales = [scale for scale, of in lines.items() if of]
    across = min(ACROSS, len(compared))
    down = -(-len(compared) // across)
    # Axis labels, ticks and the space between take as much as some lines.
    heights = [len(lines[scale]) + 1.2 for scale in scales]
    height_in = down * (ROW_IN * sum(heights) + 0.42 * len(scales) + 0.2) + 0.4
    figure = Figure(figsize=(page.width_in, height_in), layout="constrained")
    grid = figure.subplots(
        down * len(scales), across, squeeze=False, height_ratios=heights * down, sharey="row"
    )
    limits = {scale: _limit(compared, scale) for scale in scales}
    for place in range(down * across):
        for at, scale in enumerate(scales):
            axes = grid[place // across * len(scales) + at, place % across]
            if place >= len(compared):
                axes.set_visible(False)
                continue
            if at == 0 and (len(compared) > 1 or compared[place].name):
                axes.set_title(compared[place].name, loc="left")
            _panel(axes, compared[place], lines[scale], scale, limits[scale])
    _legend(figure, compared)
    return figure


def _panel(
    axes: Axes,
    one: Compared,
    lines: Sequence[tuple[str, str, str]],
    scale: str,
    limit: float,
) -> None:
    """One comparison's metrics of a scale; positions are logarithms of ratios, or points."""
    by_name = {(j.class_name, j.metric.name): j for j in one.judgements}
    for row, (class_name, metric, _) in enumerate(lines):
        judgement = by_name.get((class_name, metric))
        verdict = judgement.verdict if judgement else None
        if verdict is None or verdict.effect is None or verdict.scale != scale:
            lacks = "no value" if verdict is None or verdict.effect is None else "no ratio: zeros"
            axes.text(0, row, lacks, ha="center", va="center", color="#767676", fontsize=6.5)
            continue
        if verdict.margin:
            half = float(_position(verdict, verdict.margin))
            axes.fill_between([-half, half], row - 0.42, row + 0.42, color=BAND_COLOR, lw=0)
        _mark(axes, row, verdict, limit)
    axes.axvline(0, color="#333333", lw=0.7, zorder=1.5)
    axes.set_yticks(range(len(lines)), [label for _, _, label in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(-limit, limit)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    if scale == "ratio":
        ticks = [t for t in RATIO_TICKS if abs(np.log(t)) <= limit]
        axes.xaxis.set_major_locator(FixedLocator([float(np.log(t)) for t in ticks]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{np.exp(x):.3g}"))
        axes.set_xlabel(f"ratio to {one.baseline}")
    else:
        axes.set_xlabel(f"points more than {one.baseline}")


def _mark(axes: Axes, row: int, verdict: Verdict, limit: float) -> None:
    assert verdict.effect is not None
    marker, face, edge, _ = LOOKS[_kind(verdict)]
    at = float(np.clip(_position(verdict, verdict.effect.estimate), -limit, limit))
    low, high = (
        None if bound is None else float(_position(verdict, bound))
        for bound in (verdict.effect.low, verdict.effect.high)
    )
    if low is not None and high is not None:
        axes.plot(np.clip([low, high], -limit, limit), [row, row], color=edge, lw=1.1, zorder=2)
        for bound, beyond, arrow in ((low, low < -limit, 4), (high, high > limit, 5)):
            if beyond:
                end = float(np.clip(bound, -limit, limit))
                axes.plot([end], [row], marker=arrow, color=edge, ms=4, clip_on=False, zorder=2)
    axes.plot(
        [at], [row], marker=marker, mfc=face, mec=edge, mew=0.9, ms=4.5, zorder=3, clip_on=False
    )


def _position(verdict: Verdict, value: float) -> float:
    """Where on the axis a value stands: a ratio's logarithm, or a rate's percentage points."""
    if verdict.scale == "ratio":
        return float(np.log(value)) if value > 0 else -np.inf
    return 100 * value


def _scale(judgement: Judgement) -> str:
    """Where a metric stands: rates as differences, all others as ratios, if they have one."""
    return "difference" if judgement.metric.unit == "1" else "ratio"


def _kind(verdict: Verdict) -> str:
    return verdict.direction if verdict.state is State.DIFFERENT else verdict.state.value


def _limit(compared: Sequence[Compared], scale: str) -> float:
    """Half of an axis: all estimates and most bounds fit, and nothing very far off rules it."""
    verdicts = [j.verdict for one in compared for j in one.judgements if j.verdict.effect]
    verdicts = [v for v in verdicts if v.scale == scale]
    estimates = [abs(_position(v, v.effect.estimate)) for v in verdicts if v.effect]
    margins = [_position(v, v.margin) for v in verdicts if v.margin]
    bounds = [
        abs(_position(v, bound))
        for v in verdicts
        if v.effect
        for bound in (v.effect.low, v.effect.high)
        if bound is not None and abs(_position(v, bound)) < np.inf
    ]
    wide = float(np.quantile(bounds, 0.9)) if bounds else 0.0
    inner = 1.15 * max([*estimates, *(1.5 * m for m in margins), 1e-3])
    widest = float(np.log(WIDEST)) if scale == "ratio" else 100.0
    return min(max(inner, 1.05 * wide), widest)


def _label(judgement: Judgement) -> str:
    label = judgement.metric.label
    return label if judgement.class_name == ALL else f"{label} ({judgement.class_name})"


def _legend(figure: Figure, compared: Sequence[Compared]) -> None:
    there = {_kind(j.verdict) for one in compared for j in one.judgements if j.verdict.effect}
    handles = [
        Line2D([], [], color=edge, lw=1.1, marker=marker, mfc=face, mec=edge, ms=4.5, label=words)
        for kind, (marker, face, edge, words) in LOOKS.items()
        if kind in there
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside upper center", ncols=len(handles), frameon=False
        )


def _csv(compared: Sequence[Compared]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in compared:
        for j in one.judgements:
            v = j.verdict
            effect = (v.effect.estimate, v.effect.low, v.effect.high) if v.effect else (None,) * 3
            numbers = ["" if x is None else f"{x:.9g}" for x in (*effect, v.margin)]
            writer.writerow(
                [one.name, j.class_name, j.metric.name, v.scale, *numbers, v.state.value,
                 v.direction]
            )  # fmt: skip
    return text.getvalue()
