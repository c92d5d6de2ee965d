"""Figure of BitTorrent transfers: window, bytes in flight and requests of single runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.arrays import Floats
from analysis.figures.kind import FigureData, FigureKind
from analysis.figures.style import (
    LINE_OF_INTEREST,
    Page,
    as_drawn,
    draw_legend,
    variant_panels,
    write_in_panel,
)
from analysis.formats.study import Level, Variant
from analysis.measures.data import ClassData
from analysis.measures.peer_transfer import BLOCK_BYTES, PeerTransfer

MIN_SHOWN_S = 2.0
SHOWN_AFTER = 1.25
"""End of a figure, as a multiple of the time at which the last variant leaves slow start."""

REQUESTS = "requested_bytes"

# These colours are from Paul Tol's palettes, differ in lightness, and match the figures of Arvid
# Norberg's text (docs/explanation/slowstart.md).
CURVES = {
    "window_bytes": ("congestion window", "#44AA77", "-"),
    "in_flight_bytes": ("bytes in flight", "#114433", "-"),
    REQUESTS: ("requests, as bytes", "#CC3311", "--"),
}
"""Name in the CSV -> label, colour and line style."""


class TransferWindow(FigureKind):
    """A panel for each variant, with one run of the variant. All panels have common axes.

    The run is on the variant's network with the lowest seed.
    """

    def keep(self, run: Mapping[str, ClassData], level: Level) -> PeerTransfer | None:
        return next((data.transfer for data in run.values() if data.transfer is not None), None)

    def table(self, data: FigureData) -> pd.DataFrame:
        """Return the points of the curves; ``x_s`` is the time since the connection."""
        end_s = _end_s(data)
        columns = ["variant", "seed", "series", "x_s", "bytes"]
        rows = [
            (variant.name, seed, name, f"{x_s:.6f}", value)
            for variant, seed, transfer in _runs(data)
            for name in CURVES
            for x_s, value in zip(*_points(transfer, name, end_s), strict=True)
        ]
        return pd.DataFrame(rows, columns=columns)

    def draw(self, data: FigureData, page: Page) -> Figure:
        runs = list(_runs(data))
        figure, grid = variant_panels(page, len(runs))
        if not runs:
            write_in_panel(grid[0, 0], "no data")
            return figure
        end_s = _end_s(data)
        # The requests may be many times as large as the window, so let the other curves determine
        # the scale.
        top = max(
            float(np.max(_points(transfer, name, end_s)[1], initial=0.0))
            for _, _, transfer in runs
            for name in CURVES
            if name != REQUESTS
        )
        for (variant, _, transfer), axes in zip(runs, grid.flat, strict=True):
            _draw_panel(axes, variant, transfer, end_s)
            axes.set_ylim(0.0, max(1.0, 1.1 * top / 1000))
        for axes in grid[:, 0]:
            axes.set_ylabel("kB")
        draw_legend(figure, figure.axes[0].get_legend_handles_labels()[0])
        return figure

    def caption(self, data: FigureData, page: Page) -> str:
        seeds = ", ".join(map(str, sorted({seed for _, seed, _ in _runs(data)})))
        which = f" One run of each variant, of network {seeds}." if seeds else ""
        return (
            "The seed's congestion window, its maximum bytes in flight (between two lines "
            "of its log), and the downloader's requests in bytes. The dotted line shows when "
            f"the transport leaves slow start. Requests above the frame are not shown.{which}"
        )


def _runs(data: FigureData) -> Iterator[tuple[Variant, int, PeerTransfer]]:
    """Yield variant, seed and transfer of each run to show."""
    for variant, sample in data.first_runs():
        if sample.value is not None:
            yield variant, sample.seed, sample.value


def _end_s(data: FigureData) -> float:
    """Return the end of the figure, slightly after the last variant has left slow start.

    A variant that never leaves slow start counts as leaving it at the end of its logs.
    """
    transfers = [transfer for _, _, transfer in _runs(data)]
    if not transfers:
        return MIN_SHOWN_S
    ends_s = [t.end_s if t.left_slow_start_s is None else t.left_slow_start_s for t in transfers]
    last_s = min(max(ends_s) * SHOWN_AFTER, max(t.end_s for t in transfers))
    return max(MIN_SHOWN_S, last_s)


def _points(transfer: PeerTransfer, name: str, end_s: float) -> tuple[Floats, Floats]:
    if name == REQUESTS:
        times_s, values = transfer.requests_s, BLOCK_BYTES * transfer.outstanding_requests
    else:
        times_s, values = transfer.utp_s, getattr(transfer, name)
    keep = times_s <= end_s
    return times_s[keep], values[keep]


def _draw_panel(axes: Axes, variant: Variant, transfer: PeerTransfer, end_s: float) -> None:
    for name, (label, color, linestyle) in CURVES.items():
        times_s, values = _points(transfer, name, end_s)
        style: dict[str, Any] = {"color": color, "linestyle": linestyle, "linewidth": 1.1}
        axes.plot(times_s, values / 1000, label=label, drawstyle="steps-post", **style)
    left_s = transfer.left_slow_start_s
    if left_s is not None:
        late = left_s > end_s / 2
        axes.axvline(left_s, **LINE_OF_INTEREST)
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
            # Give the text a background, because it may cross several lines.
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
    axes.set(title=as_drawn(variant.label), xlabel="Time since the connection (s)")
    axes.set_xlim(0.0, end_s)
