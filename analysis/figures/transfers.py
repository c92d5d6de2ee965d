"""Figures of transfers between peers: window, bytes in flight and requests of single runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.arrays import Floats
from analysis.figures.custom_figure import CustomFigure, FigureInput, draw_legend
from analysis.figures.style import Page, as_drawn
from analysis.formats.study import Variant
from analysis.measures.data import ClassData
from analysis.measures.peer_transfer import BLOCK_BYTES, PeerTransfer

MIN_SHOWN_S = 2.0
SHOWN_AFTER = 1.25
"""End of a figure, as a multiple of the time to leave slow start."""


@dataclass(frozen=True)
class _Curve:
    name: str
    label: str
    color: str
    linestyle: str


# These colours are from Paul Tol's palettes, with distinct lightness, and match the text's figures.
_CURVES = (
    _Curve("window_bytes", "congestion window", "#44AA77", "-"),
    _Curve("in_flight_bytes", "bytes in flight", "#114433", "-"),
    _Curve("requested_bytes", "requests, as bytes", "#CC3311", "--"),
)


@dataclass(frozen=True)
class _OneRun:
    """The run of a variant that is shown."""

    variant: Variant
    seed: int
    transfer: PeerTransfer


def _keep(run: Mapping[str, ClassData]) -> PeerTransfer | None:
    return next((data.transfer for data in run.values() if data.transfer is not None), None)


def _first_seed_runs(shown: FigureInput) -> list[_OneRun]:
    """Return the run with the lowest seed of each variant, in the study's order."""
    found = []
    for variant in shown.study.variants:
        runs = [
            one for one in shown.samples if one.variant == variant.name and one.value is not None
        ]
        if runs:
            first = min(runs, key=lambda one: one.seed)
            found.append(_OneRun(variant, first.seed, first.value))
    return found


def _end_s(shown_runs: Sequence[_OneRun]) -> float:
    """Return the end of the figure, slightly after the last variant has left slow start."""
    transfers = [one.transfer for one in shown_runs]
    ends_s = [t.end_s if t.left_slow_start_s is None else t.left_slow_start_s for t in transfers]
    last_s = min(max(ends_s) * SHOWN_AFTER, max(t.end_s for t in transfers))
    return max(MIN_SHOWN_S, last_s)


def _points(transfer: PeerTransfer, curve: _Curve, end_s: float) -> tuple[Floats, Floats]:
    if curve.name == "requested_bytes":
        times_s, values = transfer.requests_s, BLOCK_BYTES * transfer.outstanding_requests
    else:
        times_s, values = transfer.utp_s, getattr(transfer, curve.name)
    keep = times_s <= end_s
    return times_s[keep], values[keep]


def _table(shown: FigureInput) -> list[list[str]]:
    """Return variant, seed, curve, time since the connection, and bytes."""
    rows = [["variant", "seed", "series", "x_s", "bytes"]]
    shown_runs = _first_seed_runs(shown)
    for one in shown_runs:
        for curve in _CURVES:
            for x_s, value in zip(*_points(one.transfer, curve, _end_s(shown_runs)), strict=True):
                numbers = [f"{x_s:.6f}", f"{value:.9g}"]
                rows.append([one.variant.name, str(one.seed), curve.name, *numbers])
    return rows


def _draw(shown: FigureInput, page: Page) -> Figure:
    """Draw a panel for each variant, on common axes."""
    shown_runs = _first_seed_runs(shown)
    rows, columns = (len(shown_runs), 1) if page.stacked else (1, len(shown_runs))
    figure = Figure(
        figsize=(page.width_in, max(1, rows) * page.panel_height_in), layout="constrained"
    )
    FigureCanvasAgg(figure)
    if not shown_runs:
        figure.text(0.5, 0.5, "no data", ha="center", va="center")
        return figure
    end_s = _end_s(shown_runs)
    # The requests may exceed the window many times, so the window determines the scale.
    top = max(
        float(np.max(_points(one.transfer, curve, end_s)[1], initial=0.0))
        for one in shown_runs
        for curve in _CURVES[:2]
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for one, axes in zip(shown_runs, grid.flat, strict=True):
        _draw_panel(axes, one, end_s)
        axes.set_ylim(0.0, max(1.0, 1.1 * top / 1000))
    for axes in grid[:, 0]:
        axes.set_ylabel("kB")
    draw_legend(figure, *figure.axes[0].get_legend_handles_labels())
    return figure


def _draw_panel(axes: Axes, one: _OneRun, end_s: float) -> None:
    for curve in _CURVES:
        times_s, values = _points(one.transfer, curve, end_s)
        axes.plot(
            times_s,
            values / 1000,
            label=curve.label,
            color=curve.color,
            linestyle=curve.linestyle,
            linewidth=1.1,
            drawstyle="steps-post",
        )
    left_s = one.transfer.left_slow_start_s
    if left_s is not None:
        late = left_s > end_s / 2
        axes.axvline(left_s, color="#555555", linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
        axes.annotate(
            f"slow start ends: {left_s:.2f} s",
            (left_s, 0.985),
            xycoords=("data", "axes fraction"),
            xytext=(-3, 0) if late else (3, 0),
            textcoords="offset points",
            ha="right" if late else "left",
            va="top",
            fontsize=7,
            color="#555555",
            # Give the text a background, as it may cross several lines.
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
    axes.set(title=as_drawn(one.variant.label), xlabel="Time since the connection (s)")
    axes.set_xlim(0.0, end_s)


def _caption(shown: FigureInput, page: Page) -> str:
    seeds = sorted({one.seed for one in _first_seed_runs(shown)})
    which = f" One run of each variant, of network {', '.join(map(str, seeds))}." if seeds else ""
    return (
        "The seed's congestion window, its maximum bytes in flight (between two lines "
        "of its log), and the downloader's requests in bytes. The dotted line shows when "
        f"the transport leaves slow start. Requests above the frame are not shown.{which}"
    )


TRANSFER_FIGURES = {
    "transfer-window": CustomFigure(
        _keep, _draw, _table, _caption, shows=lambda own, other: own.name == other.name
    )
}
