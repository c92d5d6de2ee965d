"""Figures of parallel downloads: bytes of each stream over time, and a map of starvation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.figures.kind import FigureData, FigureKind
from analysis.figures.style import (
    Page,
    as_drawn,
    draw_legend,
    panel_grid,
    variant_panels,
    write_in_panel,
)
from analysis.formats.study import Level, Variant
from analysis.measures.catalogue import OWN, run_statistics
from analysis.measures.data import ClassData
from analysis.measures.downloads import JAIN_WINDOW_S, LAST, curve_times, jain_over_time

LAST_STYLE: dict[str, Any] = {
    "color": "#CC3311", "linestyle": (0, (4, 1.2)), "linewidth": 1.1, "zorder": 3,
}  # fmt: skip
OTHERS_STYLE: dict[str, Any] = {
    "color": "#4477AA", "linestyle": "-", "linewidth": 0.9, "zorder": 2,
}  # fmt: skip

MAPPED = "starvation"
"""The metric that the map shows."""

RATE, STREAMS, CONTROL = "bottleneck_kib_per_s", "streams", "cc_alg"
"""Names of the coordinates of a level (a setting of the network): the axes of the map, and the
congestion control."""

NO_STREAMS = (
    "it needs parallel downloads and TGen's log level info: streams: 2 or more, and "
    "engine: {tgen: {loglevel: info}}; or records extracted again with `onionlab analyse`"
)


@dataclass(frozen=True)
class Curves:
    """The curves of one run. Times are relative to the start of the first stream.

    Attributes:
        time_s: times of the points of ``received_bytes``, shape (t,).
        received_bytes: bytes that each stream has received, shape (streams, t), oldest stream
            first.
        jain_time_s: centres of the windows of ``jain``, shape (w,).
        jain: Jain's fairness index over the bytes received in each window, shape (w,).
    """

    time_s: Floats
    received_bytes: Floats
    jain_time_s: Floats
    jain: Floats


class StreamProgress(FigureKind):
    """Bytes of a client's streams, and their fairness, in one run of each variant.

    This run is on the variant's network with the lowest seed.
    """

    def keep(self, run: Mapping[str, ClassData], level: Level) -> Curves | None:
        """Return the curves of the first client with parallel downloads; None if there is none."""
        clients = [downloads for data in run.values() for downloads in data.side_by_side]
        if not clients:
            return None
        begin = min(one.start_s for one in clients[0])
        time_s = curve_times(clients[0])
        middles, index = jain_over_time(clients[0])
        received = np.stack([one.received_at(time_s) for one in clients[0]])
        return Curves(time_s - begin, received, middles - begin, index)

    def table(self, data: FigureData) -> pd.DataFrame:
        rows = [
            (panel, variant.name, stream, f"{x:.6g}", y)
            for variant, one in _curves(data)
            for panel, stream, times, values in (
                *(("received_bytes", str(n), one.time_s, received)
                  for n, received in enumerate(one.received_bytes, 1)),
                ("jain_index", "", one.jain_time_s, one.jain),
            )
            for x, y in zip(times, values, strict=True)
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["panel", "variant", "stream", "x_s", "value"])

    def draw(self, data: FigureData, page: Page) -> Figure:
        """Draw a column of panels for each variant.

        On a narrow page, each variant has a row without the fairness index.
        """
        curves = list(_curves(data))
        count = max(1, len(curves))
        if page.stacked:
            size, shape, heights = count * page.panel_height_in, (count, 1), [1] * count
        else:
            # The fairness index is below the bytes and needs less height.
            size, shape, heights = 1.75 * page.panel_height_in, (2, count), [2, 1]
        figure, grid = panel_grid(
            page.width_in, size, *shape, sharex=True, sharey="row", height_ratios=heights
        )
        if not curves:
            write_in_panel(grid[0, 0], "no data")
        panels = grid[:, 0] if page.stacked else grid[0]
        for (variant, one), axes in zip(curves, panels, strict=False):
            _draw_bytes(axes, variant, one)
        for axes in panels if page.stacked else panels[:1]:
            axes.set_ylabel("Received (MB)")
        if not page.stacked:
            for (_, one), axes in zip(curves, grid[1], strict=False):
                axes.plot(one.jain_time_s, one.jain, color="#222222", linewidth=1.0)
                axes.set_ylim(0.0, 1.05)
            grid[1, 0].set_ylabel("Jain's index")
        for axes in grid[-1]:
            axes.set_xlabel("Time since the first start (s)")
        if curves:
            draw_legend(figure, grid[0, 0].get_legend_handles_labels()[0])
        return figure

    def caption(self, data: FigureData, page: Page) -> str:
        seeds = sorted({one.seed for one in data.samples})
        which = f"Network {seeds[0]}. " if seeds else ""
        below = (
            f" Below: Jain's index over the bytes of streams in progress in {JAIN_WINDOW_S:g} s."
        )
        return (
            f"{which}Payload that each of a client's parallel downloads has received, by the order "
            f"in which they started; the last {LAST} are dashed.{'' if page.stacked else below}"
        )


def _curves(data: FigureData) -> Iterator[tuple[Variant, Curves]]:
    for variant, sample in data.first_runs():
        if sample.value is None:
            raise AnalysisError(
                f"figure {data.spec.id}: the records of {variant.name}, seed {sample.seed}, lack "
                "the progress of streams",
                NO_STREAMS,
            )
        yield variant, sample.value


def _draw_bytes(axes: Axes, variant: Variant, one: Curves) -> None:
    count = len(one.received_bytes)
    others = count - LAST if count > LAST else count
    for place, received in enumerate(one.received_bytes):
        last = place >= others
        # Draw older streams lighter. The newest ``LAST`` streams have a different style.
        alpha = 1.0 if last else 0.45 + 0.55 * place / max(1, count - 1)
        label = None
        if place == 0:
            label = f"streams 1 to {others}"
        elif place == others:
            label = f"streams {others + 1} to {count}, the last ones"
        style = LAST_STYLE if last else OTHERS_STYLE
        axes.plot(one.time_s, received * 1e-6, alpha=alpha, label=label, **style)
    axes.set_title(as_drawn(variant.label))
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(left=0.0)


class StarvationMap(FigureKind):
    """A map for each variant: starvation by a level's bottleneck rate and number of streams.

    Starvation is the share of the slowest stream's bytes that are missing when the first stream of
    the client completes.
    """

    def shows(self, own: Level, other: Level) -> bool:
        """Return whether a map that shows ``own`` also shows ``other``.

        This requires that ``other`` has coordinates on the map's axes, and that both levels have
        the same congestion control.
        """
        control = own.coordinates.get(CONTROL)
        return {RATE, STREAMS} <= other.coordinates.keys() and (
            control == other.coordinates.get(CONTROL)
        )

    def keep(self, run: Mapping[str, ClassData], level: Level) -> float | None:
        statistics = run_statistics(run).items()
        values = (statistic.value for (_, name), statistic in statistics if name == MAPPED)
        return next((value for value in values if value is not None), None)

    def table(self, data: FigureData) -> pd.DataFrame:
        """Return mean and range of the starvation over networks, by variant and level.

        Levels in which a run of the variant lacks a value are left out.
        """
        place = ["variant", RATE, STREAMS]
        rows = (
            (one.variant, one.level.coordinates[RATE], one.level.coordinates[STREAMS], one.seed,
             one.value)
            for one in data.samples
        )  # fmt: skip
        values = pd.DataFrame(rows, columns=[*place, "seed", "value"]).astype({"value": float})
        # Without a category, groupby would sort the variants by name.
        values["variant"] = pd.Categorical(values["variant"], values["variant"].unique())
        networks = values.groupby([*place, "seed"], observed=True)["value"].agg(_mean)
        by_level = networks.groupby(place, observed=True)
        return by_level.agg(mean=_mean, low="min", high="max", seeds="size").dropna().reset_index()

    def draw(self, data: FigureData, page: Page) -> Figure:
        table = self.table(data)
        rates, streams = (sorted(table[axis].unique()) for axis in (RATE, STREAMS))
        variants = [
            v for v in data.study.variants if any(v.name == s.variant for s in data.samples)
        ]
        figure, grid = variant_panels(page, len(variants))
        image = None
        for axes, variant in zip(grid.flat, variants, strict=False):
            own = table[table["variant"] == variant.name]
            shares = own.pivot(index=STREAMS, columns=RATE, values="mean").reindex(
                index=streams, columns=rates
            )
            image = axes.imshow(
                shares.to_numpy(float),
                origin="lower", aspect="auto", cmap="cividis_r", vmin=0.0, vmax=1.0,
            )  # fmt: skip
            for (row, column), value in np.ndenumerate(shares.to_numpy(float)):
                text = "\N{EN DASH}" if np.isnan(value) else f"{100 * value:.0f}"
                color = "#555555" if np.isnan(value) else "white" if value > 0.5 else "black"
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
            axes.grid(visible=False)
            axes.set_title(as_drawn(variant.label))
            axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
            axes.set_yticks(range(len(streams)), [f"{number:g}" for number in streams])
        for axes in grid[-1]:
            axes.set_xlabel("Bottleneck (KiB/s)")
        for axes in grid[:, 0]:
            axes.set_ylabel("Streams")
        if image is None:
            write_in_panel(grid[0, 0], "no data")
        else:
            quantity = OWN.quantity(MAPPED)
            assert quantity is not None
            bar = figure.colorbar(image, ax=grid, label=f"{quantity.label} (%)")
            bar.set_ticks([0.0, 0.5, 1.0], labels=["0", "50", "100"])
        return figure

    def caption(self, data: FigureData, page: Page) -> str:
        counts = self.table(data)["seeds"]
        seeds = "no runs"
        if len(counts):
            low, high = counts.min(), counts.max()
            many = f"{low}" if low == high else f"{low} to {high}"
            seeds = "one network" if high == 1 else f"mean over {many} networks"
        return (
            "Share of its file that the slowest stream of a client lacked when the first one was "
            "complete, in per cent, by the rate of the slowest relay and the number of streams; "
            f"{seeds}. A dash: no level, or no completed stream. "
            f"Congestion control: cc_alg={data.level.coordinates[CONTROL]:g}."
        )


def _mean(values: pd.Series[float]) -> float:
    """Return the mean; NaN if any value is NaN."""
    return float(values.mean(skipna=False))
