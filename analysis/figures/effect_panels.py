"""Panels of effects, with "no difference" in the centre.

Ratios are on a logarithmic axis, and differences of rates on an axis in percentage points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.figures.style import as_drawn
from analysis.inference.intervals import Interval
from analysis.judgement.judging import Judgement
from analysis.measures.data import ALL
from analysis.measures.metric import Quantity

ACROSS = 3
"""Maximum number of panels in a row."""

WIDEST = 8.0
"""Largest ratio that an axis can show; the smallest is its inverse."""

BAND_COLOR = "#e4e7eb"
"""Colour of the equivalence margin."""

RATIO_TICKS = (
    (0.12, (0.9, 0.95, 1.0, 1.05, 1.1)),
    (0.3, (0.8, 0.9, 1.0, 1.1, 1.25)),
    (0.55, (0.67, 0.8, 1.0, 1.25, 1.5)),
    (0.9, (0.5, 0.67, 1.0, 1.5, 2.0)),
    (np.inf, (0.125, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 8.0)),
)
"""Upper bound of an axis's half-width (logarithm of a ratio) -> ticks of the axis (ratios)."""

FEW_TICKS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Ticks that are used if the ticks of the last row of RATIO_TICKS would overlap."""

WIDEST_WITH_ALL = {2: 3.5, 3: 3.0}
"""Number of adjacent panels -> largest ratio on an axis for which the ticks in the last row of
RATIO_TICKS do not overlap. On axes with larger ratios, FEW_TICKS are used."""

Axis = Literal["ratio", "difference"]


@dataclass(frozen=True)
class MarkStyle:
    """Marker of an effect, colour of its face, colour of its edge and interval, and its label."""

    marker: str
    face: str
    edge: str
    label: str = ""

    @property
    def marker_options(self) -> dict[str, Any]:
        """Matplotlib's options for the marker."""
        return {"marker": self.marker, "mfc": self.face, "mec": self.edge}

    def handle(self) -> Line2D:
        """Return the legend's entry for effects in this style."""
        text, options = as_drawn(self.label), self.marker_options
        return Line2D([], [], color=self.edge, lw=1.1, ms=4.5, label=text, **options)


@dataclass(frozen=True)
class Mark:
    """One effect in a panel.

    Attributes:
        effect: the effect with its interval; None if there is no effect.
        scale: "ratio" or "difference". If a value of the metric is zero, there is no ratio, and
            the effect is a difference. A panel of ratios then shows a text instead of the effect.
        margin: equivalence margin on the scale ``scale``; None if it is unknown.
        style: how the effect is drawn.
        row: number of its row, from 0 at the top.
        offset: vertical place in the row, between -0.5 (top) and 0.5.
        without: text that replaces a missing effect.
    """

    effect: Interval | None
    scale: str
    margin: float | None
    style: MarkStyle
    row: int = 0
    offset: float = 0.0
    without: str = "no value"


def effect_axis(metric: Quantity) -> Axis:
    """Return how effects on a metric are drawn.

    If the metric has no unit, such as a timeout rate or a share, effects are drawn as differences.
    Otherwise, they are drawn as ratios.
    """
    return "difference" if metric.unit == "1" else "ratio"


def line_label(judgement: Judgement) -> str:
    """Return the label of a line: the metric, and its class unless it covers all classes."""
    label = judgement.metric.label
    return label if judgement.class_name == ALL else f"{label} ({judgement.class_name})"


def half_width(axis: Axis, marks: Sequence[Mark]) -> float:
    """Return the half-width of an axis that fits all estimates and most bounds of intervals.

    The result is the logarithm of a ratio (at most the logarithm of ``WIDEST``), or a number of
    percentage points (at most 100).
    """
    drawn = [(mark.effect, mark.margin) for mark in marks if mark.effect and mark.scale == axis]
    estimates = [abs(_position(axis, effect.estimate)) for effect, _ in drawn]
    around = [1.5 * _position(axis, margin) for _, margin in drawn if margin]
    bounds = [
        abs(_position(axis, bound))
        for effect, _ in drawn
        for bound in (effect.low, effect.high)
        if bound is not None and abs(_position(axis, bound)) < np.inf
    ]
    wide = float(np.quantile(bounds, 0.9)) if bounds else 0.0
    widest = float(np.log(WIDEST)) if axis == "ratio" else 100.0
    return min(max(1.15 * max([*estimates, *around, 1e-3]), 1.05 * wide), widest)


def draw_effects(
    axes: Axes, rows: Sequence[str], marks: Sequence[Mark], axis: Axis, half: float
) -> None:
    """Draw the effects of a panel in labelled rows.

    rows: the labels of the rows, from top to bottom.
    half: the half-width of the axis, from ``half_width``.
    """
    for mark in marks:
        y = mark.row + mark.offset
        if mark.effect is None or mark.scale != axis:
            # Give the text a background, because the line of no difference would cross it.
            axes.text(
                0, y, "no ratio: zeros" if mark.effect else mark.without, ha="center", va="center",
                color=mark.style.edge, fontsize=6,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
            continue
        if mark.margin:
            margin = _position(axis, mark.margin)
            span = (mark.row - 0.45, mark.row + 0.45)
            axes.fill_between([-margin, margin], *span, color=BAND_COLOR, lw=0)
        _draw_interval(axes, y, mark.effect, axis, half, mark.style.edge)
        at = float(np.clip(_position(axis, mark.effect.estimate), -half, half))
        marker = mark.style.marker_options
        axes.plot([at], [y], **marker, mew=0.9, ms=4.2, zorder=3, clip_on=False)
    axes.axvline(0, color="#333333", lw=0.7, zorder=1.5)
    axes.set_yticks(range(len(rows)), [as_drawn(label) for label in rows])
    axes.set_xlim(-half, half)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)


def style_axis(axes: Axes, axis: Axis, half: float, across: int, against: str) -> None:
    """Set the label of a panel's x axis, and the ticks of an axis of ratios.

    across: number of panels in a row.
    against: label of the baseline; "" to omit it.
    """
    if axis == "difference":
        axes.set_xlabel(f"points more than {as_drawn(against)}" if against else "points")
        return
    axes.set_xlabel(f"ratio to {as_drawn(against)}" if against else "ratio")
    width_ticks = next(ticks for up_to, ticks in RATIO_TICKS if half < up_to)
    few = half > np.log(WIDEST_WITH_ALL.get(across, np.inf))
    ticks = [t for t in (FEW_TICKS if few else width_ticks) if abs(np.log(t)) <= half]
    axes.xaxis.set_major_locator(FixedLocator([float(np.log(t)) for t in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{np.exp(x):.3g}"))


def _position(axis: Axis, value: float) -> float:
    """Return the position of a value on the axis: a ratio's logarithm, or percentage points."""
    if axis == "ratio":
        return float(np.log(value)) if value > 0 else -np.inf
    return 100 * value


def _draw_interval(
    axes: Axes, y: float, effect: Interval, axis: Axis, half: float, color: str
) -> None:
    """Draw the interval of an effect, with an arrow at an end that is beyond ``half``."""
    if effect.low is None or effect.high is None:
        return
    low, high = _position(axis, effect.low), _position(axis, effect.high)
    axes.plot(np.clip([low, high], -half, half), [y, y], color=color, lw=1.1, zorder=2)
    for end, beyond, arrow in ((-half, low < -half, 4), (half, high > half, 5)):
        if beyond:
            axes.plot([end], [y], marker=arrow, color=color, ms=4, clip_on=False, zorder=2)
