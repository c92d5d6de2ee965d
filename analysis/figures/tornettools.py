"""Figures in tornettools' form: distributions in simulations and in the public Tor.

Each point of a line is the mean of one quantile over simulations, and the band is the t interval of
this mean, as in `tornettools plot` (2.0, plot_common.py). The data are those that tornettools
extracts from the same logs, within the measured span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from analysis.arrays import Floats
from analysis.figures.kind import FigureData, FigureKind
from analysis.figures.style import (
    Page,
    as_drawn,
    draw_legend,
    line_style,
    panel_grid,
    write_in_panel,
)
from analysis.formats.study import STEPS, Level
from analysis.inference.bands import Band, mean_quantiles
from analysis.measures.data import ALL, ClassData
from analysis.measures.perf import SIZES_BYTES, PerfStreams

TAIL_END = 0.99
"""Largest share on an axis that stretches the tail. Above this share, there are too few values."""

POINTS = 300
"""Number of intervals between the points of a line."""

PUBLIC_LABEL = "public Tor"
PUBLIC_STYLE: dict[str, Any] = {"color": "#555555", "linestyle": (0, (1, 1.2)), "linewidth": 1.4}

RELAY_GOODPUT = "relay_goodput"

COLUMNS = ("quantity", "class", "variant", "share", "mean", "low", "high", "simulations")


@dataclass(frozen=True)
class Quantity:
    """The quantity whose distribution a panel shows.

    Attributes:
        name: name in the CSV and in ``PublicTor``, which documents its unit.
        x_label: label of the x axis, with its unit.
        values: a function of the data of one class, or of all classes, of a run. It returns values
            of shape (n,), or of shape (n, 2) if the second column has the resolution of each value
            (the step by which the value can change).
        scale: factor that converts ``values`` to the unit of ``x_label``.
        tail: whether the axis of shares stretches the tail.
    """

    name: str
    title: str
    x_label: str
    values: Callable[[ClassData], Floats]
    scale: float = 1.0
    tail: bool = True

    @property
    def shares(self) -> Floats:
        """The shares at which quantiles are computed."""
        if not self.tail:
            return np.linspace(0.0, 1.0, POINTS + 1)
        return 1.0 - 10.0 ** -np.linspace(0.0, -np.log10(1.0 - TAIL_END), POINTS + 1)


@dataclass(frozen=True)
class Sample:
    """The values of one class of one run, by quantity.

    has_public: whether measurements of the public Tor are comparable with these values.
    """

    has_public: bool
    values: Mapping[str, Floats]


@dataclass(frozen=True)
class TornetFigure(FigureKind):
    """A row of panels for each class, with a panel for each quantity."""

    about: str
    quantities: tuple[Quantity, ...]

    def keep(self, run: Mapping[str, ClassData], level: Level) -> dict[str, Sample]:
        """Return class -> sample for each class of perf clients.

        For relays' goodput, the only key is ``ALL``.
        """
        of_relays = self.quantities[0].name == RELAY_GOODPUT
        return {
            name: Sample(
                # Measurements of the public Tor exclude OnionPerf's downloads from onion services,
                # so they are comparable only with clients that use exits (perfclient1exit).
                data.perf is None or all(one.endswith("exit") for one in data.perf.client),
                {quantity.name: quantity.values(data) for quantity in self.quantities},
            )
            for name, data in run.items()
            if (name == ALL) == of_relays and (of_relays or data.perf is not None)
        }

    def table(self, data: FigureData) -> pd.DataFrame:
        """Return a row per quantity, class, variant and share. Units are s, bit/s or per cent."""
        parts = []
        for quantity in self.quantities:
            for class_name in _classes(data):
                place = {
                    "quantity": quantity.name,
                    "class": class_name,
                    "share": [f"{share:.6g}" for share in quantity.shares],
                }
                for variant, line in _lines(data, quantity, class_name).items():
                    own = {**vars(line), "simulations": line.count}
                    parts.append(pd.DataFrame({**place, "variant": variant, **own}))
                public = _public(data, quantity, class_name)
                if public is not None:
                    parts.append(pd.DataFrame({**place, "variant": PUBLIC_LABEL, "mean": public}))
        return pd.concat(parts).reindex(columns=COLUMNS) if parts else pd.DataFrame(columns=COLUMNS)

    def draw(self, data: FigureData, page: Page) -> Figure:
        panels = [(quantity, name) for name in _classes(data) for quantity in self.quantities]
        across = 1 if page.stacked else len(self.quantities)
        down = max(1, -(-len(panels) // across))
        width_in = page.width_in if across > 1 or page.stacked else page.width_in / 2
        figure, grid = panel_grid(width_in, down * page.panel_height_in, down, across)
        handles: dict[str, Artist] = {}
        for axes, (quantity, class_name) in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, data, quantity, class_name)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        for axes in grid[:, 0]:
            axes.set_ylabel("Share (CDF)")
        if handles:
            draw_legend(figure, list(handles.values()))
        elif not panels:
            write_in_panel(grid[0, 0], "no data")
        return figure

    def caption(self, data: FigureData, page: Page) -> str:
        level, public = data.level, data.study.public_tor
        text = (
            f"{self.about} from {level.measured_start_s:g} s to {level.measured_end_s:g} s of "
            "simulated time. "
        )
        if len({one.seed for one in data.samples}) > 1:
            text += (
                "Lines: mean over simulations of each quantile; bands: its pointwise 95% t "
                "interval, as in tornettools. Simulations without a value are excluded."
            )
        else:
            text += "One simulation of each variant: there are no intervals."
        if any(quantity.tail for quantity in self.quantities):
            text += f" The axis of shares stretches the tail and ends at {TAIL_END:g}."
        drawn = (_public(data, q, name) for q in self.quantities for name in _classes(data))
        if public is not None and any(one is not None for one in drawn):
            text += f" Dotted, the {PUBLIC_LABEL}: {public.source}."
            if public.not_counted:
                text += f" Excluded from it: {'; '.join(public.not_counted)}."
        return text


def _classes(data: FigureData) -> list[str]:
    return sorted({name for one in data.samples for name in one.value})


def _lines(data: FigureData, quantity: Quantity, class_name: str) -> dict[str, Band]:
    """Return the line of each variant that has values, in the study's order."""
    found = {}
    for variant in data.study.variants:
        networks: dict[int, list[Floats]] = {}
        for one in sorted(data.samples, key=lambda one: one.seed):
            if one.variant == variant.name and class_name in one.value:
                values = one.value[class_name].values[quantity.name]
                networks.setdefault(one.seed, []).append(values)
        line = mean_quantiles(list(networks.values()), quantity.shares)
        if line is not None:
            found[variant.name] = line
    return found


def _public(data: FigureData, quantity: Quantity, class_name: str) -> Floats | None:
    """Return the public Tor's values at the quantity's shares.

    Return None if the values are unknown, or not comparable with the values of the class.
    """
    public = data.study.public_tor
    samples = [one.value[class_name] for one in data.samples if class_name in one.value]
    if public is None or not any(sample.has_public for sample in samples):
        return None
    values = public.quantiles.get(quantity.name)
    factor = public.network_scale if quantity.name == RELAY_GOODPUT else 1.0
    if values is None or factor is None:
        return None
    return factor * np.array(values)[(STEPS * quantity.shares).astype(np.int64)]


def _draw_panel(axes: Axes, data: FigureData, quantity: Quantity, class_name: str) -> None:
    shares, ends = quantity.shares, []
    lines = _lines(data, quantity, class_name)
    for place, variant in enumerate(data.study.variants):
        if variant.name not in lines:
            continue
        line = lines[variant.name]
        mean, low, high = (quantity.scale * one for one in (line.mean, line.low, line.high))
        style = line_style(variant, place / len(data.study.variants))
        axes.plot(mean, shares, label=as_drawn(variant.label), **style)
        if line.count > 1:
            axes.fill_betweenx(shares, low, high, color=variant.color, alpha=0.2, linewidth=0)
        ends.append(float(mean[-1]))
    public = _public(data, quantity, class_name)
    if public is not None:
        axes.plot(quantity.scale * public, shares, label=PUBLIC_LABEL, **PUBLIC_STYLE)
        ends.append(float(quantity.scale * public[-1]))
    name = "" if class_name == ALL else f"\n{as_drawn(class_name)}"
    axes.set(title=f"{quantity.title}{name}", xlabel=quantity.x_label)
    if not ends:
        write_in_panel(axes, "no data")
        return
    axes.set_xlim(0.0, 1.05 * max(ends) if max(ends) > 0 else 1.0)
    if quantity.tail:
        _stretch_tail(axes)
    else:
        axes.set_ylim(0.0, 1.0)


def _stretch_tail(axes: Axes) -> None:
    """Scale the axis so that shares from 0.9 to 0.99 have as much room as shares below 0.9."""
    axes.set_yscale(
        "function",
        functions=(
            lambda share: -np.log10(1.0 - np.minimum(share, 0.9999)),
            lambda place: 1.0 - 10.0**-place,
        ),
    )
    axes.set_ylim(0.0, TAIL_END)
    axes.yaxis.set_major_locator(FixedLocator([0.0, 0.5, 0.9, 0.95, TAIL_END]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _perf(values: Callable[..., Floats], **options: Any) -> Callable[[ClassData], Floats]:
    """Return a function that applies ``values`` to the perf clients' downloads in a class's data.

    Only downloads that ended in the measured span are included.
    """

    def class_values(data: ClassData) -> Floats:
        if data.perf is None:
            return np.empty(0)
        return values(data.perf.ended_in(data.begin_s, data.end_s), **options)

    return class_values


def _build_times_s(data: ClassData) -> Floats:
    if data.perf is None or data.circuits is None:
        return np.empty(0)
    return data.circuits.build_times_s(data.begin_s, data.end_s)


def _error_rates(streams: PerfStreams) -> Floats:
    """Return each client's percentage of failed downloads, and a resolution; shape (n, 2).

    The resolution is the percentage that one download makes up. Each client occurs twice, as in
    tornettools' list ALL. Clients without downloads are omitted.
    """
    counts = [streams.select_client(str(client)).counts() for client in np.unique(streams.client)]
    rates = [(100.0 * failed / total, 100.0 / total) for failed, total in counts if total]
    return np.repeat(np.array(rates).reshape(-1, 2), 2, axis=0)


def _goodput_bit_per_s(streams: PerfStreams, low: str, high: str) -> Floats:
    return 8.0 * streams.goodputs_bytes_per_s(low, high)


def _relays_bit_per_s(data: ClassData) -> Floats:
    if data.relay_bytes is None or not data.relay_bytes.watched_until(data.end_s):
        return np.empty(0)
    per_second = data.relay_bytes.per_second(data.begin_s, data.end_s)
    return 8.0 * np.array(list(per_second.values()), dtype=np.float64)


_SIZES = {"50kib": "50 KiB", "1mib": "1 MiB", "5mib": "5 MiB"}
_SPANS = {("500kib", "1mib"): "0.5 MiB to 1 MiB", ("4mib", "5mib"): "4 MiB to 5 MiB"}
_ROUND_TRIPS, _FIRST_BYTES = _perf(PerfStreams.round_trips_s), _perf(PerfStreams.first_bytes_s)

TORNET_FIGURES: Mapping[str, TornetFigure] = {
    "perf-transfer-times": TornetFigure(
        "Downloads of perf clients that completed, timed from the command,",
        tuple(
            Quantity(
                f"last_byte_{size}",
                f"Transfer time, {_SIZES[size]}",
                "Time to last byte (s)",
                _perf(PerfStreams.last_bytes_s, size_bytes=amount),
            )
            for size, amount in SIZES_BYTES.items()
        ),
    ),
    "perf-circuits": TornetFigure(
        "Circuits of perf clients, and their completed downloads, timed from the command,",
        (
            Quantity("circuit_build_time", "Circuit build time", "Build time (s)", _build_times_s),
            Quantity(
                "round_trip_time", "Circuit round-trip time", "Time to response (s)", _ROUND_TRIPS
            ),
            Quantity("first_byte", "Time to first byte", "Time to first byte (s)", _FIRST_BYTES),
        ),
    ),
    "perf-goodput": TornetFigure(
        "Downloads of perf clients that ended",
        (
            *(
                Quantity(
                    f"goodput_{low}_{high}",
                    f"Client goodput, {span}",
                    "Goodput (Mbit/s)",
                    _perf(_goodput_bit_per_s, low=low, high=high),
                    1e-6,
                )
                for (low, high), span in _SPANS.items()
            ),
            Quantity(
                "error_rate",
                "Transfer error rate of a client",
                "Failed downloads (%)",
                _perf(_error_rates),
                tail=False,
            ),
        ),
    ),
    "relay-goodput": TornetFigure(
        "Bytes that all relays and authorities wrote",
        (
            Quantity(
                RELAY_GOODPUT,
                "Goodput of all relays in a second",
                "Sum of relays' goodput (Mbit/s)",
                _relays_bit_per_s,
                1e-6,
                tail=False,
            ),
        ),
    ),
}
