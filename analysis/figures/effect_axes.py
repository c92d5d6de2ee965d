"""Axes of effects, centred on no difference: ratios by their logarithm, rates in points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.figures.style import as_drawn
from analysis.inference.intervals import Interval

WIDEST = 8.0
"""Largest ratio drawn, and its inverse the smallest; intervals beyond end in an arrow."""

BAND_COLOR = "#e4e7eb"
"""Colour of the equivalence margin."""

RATIO_TICKS = (
    (0.12, (0.9, 0.95, 1.0, 1.05, 1.1)),
    (0.3, (0.8, 0.9, 1.0, 1.1, 1.25)),
    (0.55, (0.67, 0.8, 1.0, 1.25, 1.5)),
    (0.9, (0.5, 0.67, 1.0, 1.5, 2.0)),
    (np.inf, (0.125, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 8.0)),
)
"""Upper bound of the half-width of an axis -> its ticks."""

FEW_TICKS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Used if the last of those would overlap."""

WIDEST_WITH_ALL = {2: 3.5, 3: 3.0}
"""Number of adjacent panels -> the largest ratio up to which they do not."""


def position(scale: str, value: float) -> float:
    """Return the position of a value on the axis: a ratio's logarithm, or percentage points."""
    if scale == "ratio":
        return float(np.log(value)) if value > 0 else -np.inf
    return 100 * value


def limit(scale: str, effects: Sequence[Interval], margins: Sequence[float]) -> float:
    """Return the half-width of an axis that fits all estimates and most bounds."""
    estimates = [abs(position(scale, effect.estimate)) for effect in effects]
    around = [position(scale, margin) for margin in margins]
    bounds = [
        abs(position(scale, bound))
        for effect in effects
        for bound in (effect.low, effect.high)
        if bound is not None and abs(position(scale, bound)) < np.inf
    ]
    wide = float(np.quantile(bounds, 0.9)) if bounds else 0.0
    inner = 1.15 * max([*estimates, *(1.5 * m for m in around), 1e-3])
    widest = float(np.log(WIDEST)) if scale == "ratio" else 100.0
    return min(max(inner, 1.05 * wide), widest)


def ratio_ticks(axes: Axes, half: float, across: int) -> None:
    """Set the ticks of an axis of ratios with half-width ``half``, one of ``across`` in a row."""
    width_ticks = next(ticks for up_to, ticks in RATIO_TICKS if half < up_to)
    few = half > np.log(WIDEST_WITH_ALL.get(across, np.inf))
    ticks = [t for t in (FEW_TICKS if few else width_ticks) if abs(np.log(t)) <= half]
    axes.xaxis.set_major_locator(FixedLocator([float(np.log(t)) for t in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{np.exp(x):.3g}"))


def dress_rows(axes: Axes, labels: Sequence[str], half: float) -> None:
    """Style an axis with labelled rows from the top and half-width ``half``."""
    axes.axvline(0, color="#333333", lw=0.7, zorder=1.5)
    axes.set_yticks(range(len(labels)), [as_drawn(label) for label in labels])
    axes.set_xlim(-half, half)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)


def draw_interval(
    axes: Axes, y: float, effect: Interval, scale: str, half: float, color: str
) -> None:
    """Draw the interval of an effect at ``y``, with an arrow if it exceeds ``half``."""
    if effect.low is None or effect.high is None:
        return
    low, high = position(scale, effect.low), position(scale, effect.high)
    axes.plot(np.clip([low, high], -half, half), [y, y], color=color, lw=1.1, zorder=2)
    for bound, beyond, arrow in ((low, low < -half, 4), (high, high > half, 5)):
        if beyond:
            end = float(np.clip(bound, -half, half))
            axes.plot([end], [y], marker=arrow, color=color, ms=4, clip_on=False, zorder=2)
