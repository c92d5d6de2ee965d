"""Figures in tornettools' form: distributions over simulations, and the public Tor as a line.

A line is the mean over simulations of each quantile, and its band the t interval of that mean, as
in `tornettools plot` (2.0, plot_common.py). The data are those that tornettools extracts from the
same logs, within the measured span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from analysis.arrays import Floats
from analysis.figures.custom_figure import CustomFigure, FigureInput, draw_legend
from analysis.figures.style import Page, as_drawn, line_style
from analysis.formats.public_tor import STEPS, PublicTor
from analysis.formats.study import Variant
from analysis.inference.mean_quantiles import MeanQuantiles, mean_quantiles
from analysis.measures.data import ALL, ClassData
from analysis.measures.perf import SIZES_BYTES, PerfStreams

TAIL_END = 0.99
"""End of the axis of shares that stretches the tail; beyond it, there are too few values."""

POINTS = 300
"""Number of points of each line."""

PUBLIC_LABEL = "public Tor"
PUBLIC_STYLE: dict[str, Any] = {"color": "#555555", "linestyle": (0, (1, 1.2)), "linewidth": 1.4}

MBIT = 1e6


@dataclass(frozen=True)
class _Quantity:
    """The quantity whose distribution a panel shows.

    Attributes:
        name: name in the CSV and in ``PublicTor``, which documents its unit.
        title: title of the axes.
        x_label: with its unit.
        values: of one class of one run, or of all together; shape (n,), or (n, 2) with resolutions.
        scale: factor from the values' unit to that of ``x_label``.
        tail: whether the axis of shares stretches the tail.
    """

    name: str
    title: str
    x_label: str
    values: Callable[[ClassData], Floats]
    scale: float = 1.0
    tail: bool = True


@dataclass(frozen=True)
class _Sample:
    """The values of one run for a quantity and class."""

    quantity: str
    class_name: str
    has_public: bool
    values: Floats


def _ended(data: ClassData) -> PerfStreams | None:
    return None if data.perf is None else data.perf.ended_in(data.begin_s, data.end_s)


def _perf_values(values: Callable[[PerfStreams], Floats]) -> Callable[[ClassData], Floats]:
    def class_values(data: ClassData) -> Floats:
        ended = _ended(data)
        return np.empty(0) if ended is None else values(ended)

    return class_values


def _build_times_s(data: ClassData) -> Floats:
    if data.perf is None or data.circuits is None:
        return np.empty(0)
    return data.circuits.build_times_s(data.begin_s, data.end_s)


def _error_rates(streams: PerfStreams) -> Floats:
    """Return the percentage of failed downloads of each client, and its resolution; shape (n, 2).

    Each client occurs twice, as in tornettools' list ALL.
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


_SIZE_LABELS = {"50kib": "50 KiB", "1mib": "1 MiB", "5mib": "5 MiB"}

TRANSFERS = tuple(
    _Quantity(
        f"last_byte_{size}",
        f"Transfer time, {_SIZE_LABELS[size]}",
        "Time to last byte (s)",
        _perf_values(partial(PerfStreams.last_bytes_s, size_bytes=amount)),
    )
    for size, amount in SIZES_BYTES.items()
)
CIRCUITS = (
    _Quantity("circuit_build_time", "Circuit build time", "Build time (s)", _build_times_s),
    _Quantity(
        "round_trip_time",
        "Circuit round-trip time",
        "Time to response (s)",
        _perf_values(PerfStreams.round_trips_s),
    ),
    _Quantity(
        "first_byte",
        "Time to first byte",
        "Time to first byte (s)",
        _perf_values(PerfStreams.first_bytes_s),
    ),
)
CLIENTS = (
    _Quantity(
        "goodput_500kib_1mib",
        "Client goodput, 0.5 MiB to 1 MiB",
        "Goodput (Mbit/s)",
        _perf_values(partial(_goodput_bit_per_s, low="500kib", high="1mib")),
        1 / MBIT,
    ),
    _Quantity(
        "goodput_4mib_5mib",
        "Client goodput, 4 MiB to 5 MiB",
        "Goodput (Mbit/s)",
        _perf_values(partial(_goodput_bit_per_s, low="4mib", high="5mib")),
        1 / MBIT,
    ),
    _Quantity(
        "error_rate",
        "Transfer error rate of a client",
        "Failed downloads (%)",
        _perf_values(_error_rates),
        tail=False,
    ),
)
RELAYS = (
    _Quantity(
        "relay_goodput",
        "Goodput of all relays in a second",
        "Sum of relays' goodput (Mbit/s)",
        _relays_bit_per_s,
        1 / MBIT,
        tail=False,
    ),
)


def _keep(quantities: Sequence[_Quantity], run: Mapping[str, ClassData]) -> list[_Sample]:
    samples = []
    for name, data in run.items():
        if (name == ALL) != (quantities is RELAYS) or (name != ALL and data.perf is None):
            continue
        # Measurements of the public Tor exclude OnionPerf's downloads from onion services.
        exits = data.perf is None or all(one.endswith("exit") for one in data.perf.client)
        for quantity in quantities:
            samples.append(_Sample(quantity.name, name, exits, quantity.values(data)))
    return samples


def _shares(quantity: _Quantity) -> Floats:
    if not quantity.tail:
        return np.linspace(0.0, 1.0, POINTS + 1)
    return 1.0 - 10.0 ** -np.linspace(0.0, -np.log10(1.0 - TAIL_END), POINTS + 1)


def _classes(shown: FigureInput) -> list[str]:
    return sorted({sample.class_name for one in shown.samples for sample in one.value})


def _samples(
    shown: FigureInput, quantity: _Quantity, class_name: str, variant: str
) -> list[list[Floats]]:
    """Return for each network, by seed, the values of each simulation of a variant."""
    found: dict[int, list[Floats]] = {}
    for one in sorted(shown.samples, key=lambda one: one.seed):
        for sample in one.value:
            place = one.variant, sample.quantity, sample.class_name
            if place == (variant, quantity.name, class_name):
                found.setdefault(one.seed, []).append(sample.values)
    return list(found.values())


def _line(
    shown: FigureInput, quantity: _Quantity, class_name: str, variant: Variant
) -> MeanQuantiles | None:
    samples = _samples(shown, quantity, class_name, variant.name)
    return mean_quantiles(samples, _shares(quantity))


def _public(shown: FigureInput, quantity: _Quantity, class_name: str) -> Floats | None:
    """Return the public Tor's values at the quantity's shares; None if unknown."""
    public = shown.study.public_tor
    exits = any(
        sample.has_public
        for one in shown.samples
        for sample in one.value
        if sample.class_name == class_name
    )
    if public is None or not exits:
        return None
    values = public.quantiles.get(quantity.name)
    factor = _public_factor(public, quantity)
    if values is None or factor is None:
        return None
    return factor * np.array(values)[(STEPS * _shares(quantity)).astype(np.int64)]


def _public_factor(public: PublicTor, quantity: _Quantity) -> float | None:
    return public.network_scale if quantity.name == "relay_goodput" else 1.0


def _table(quantities: Sequence[_Quantity], shown: FigureInput) -> list[list[str]]:
    """Return a row per quantity, class, variant and share; values in seconds, bit/s or per cent."""
    rows = [["quantity", "class", "variant", "share", "mean", "low", "high", "simulations"]]

    def add(where: list[str], shares: Floats, *columns: Floats, simulations: str) -> None:
        for share, *values in zip(shares, *columns, strict=True):
            numbers = ["" if np.isnan(value) else f"{value:.9g}" for value in values]
            rows.append([*where, f"{share:.6g}", *numbers, simulations])

    for quantity in quantities:
        shares = _shares(quantity)
        for class_name in _classes(shown):
            for variant in shown.study.variants:
                line = _line(shown, quantity, class_name, variant)
                if line is not None:
                    where = [quantity.name, class_name, variant.name]
                    columns = (line.mean, line.low, line.high)
                    add(where, shares, *columns, simulations=str(line.samples))
            public = _public(shown, quantity, class_name)
            if public is not None:
                nothing = np.full(shares.shape, np.nan)
                where = [quantity.name, class_name, PUBLIC_LABEL]
                add(where, shares, public, nothing, nothing, simulations="")
    return rows


def _draw(quantities: Sequence[_Quantity], shown: FigureInput, page: Page) -> Figure:
    """Draw a row of panels for each class, with a panel for each quantity."""
    classes = _classes(shown)
    panels = [(quantity, name) for name in classes for quantity in quantities]
    across = 1 if page.stacked else len(quantities)
    down = max(1, -(-len(panels) // across))
    width_in = page.width_in if across > 1 or page.stacked else page.width_in / 2
    figure = Figure(figsize=(width_in, down * page.panel_height_in), layout="constrained")
    FigureCanvasAgg(figure)
    if not panels:
        figure.text(0.5, 0.5, "no data", ha="center", va="center")
        return figure
    grid = figure.subplots(down, across, squeeze=False)
    handles: dict[str, Artist] = {}
    for axes, (quantity, class_name) in zip(grid.flat, panels, strict=True):
        _draw_panel(axes, shown, quantity, class_name)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for axes in grid[:, 0]:
        axes.set_ylabel("Share (CDF)")
    if handles:
        draw_legend(figure, list(handles.values()), list(handles))
    return figure


def _draw_panel(axes: Axes, shown: FigureInput, quantity: _Quantity, class_name: str) -> None:
    shares, ends = _shares(quantity), []
    for place, variant in enumerate(shown.study.variants):
        line = _line(shown, quantity, class_name, variant)
        if line is None:
            continue
        x = quantity.scale * line.mean
        marks = list(range(20 + 15 * place, shares.size, 60))
        axes.plot(x, shares, label=as_drawn(variant.label), **line_style(variant, marks))
        if line.samples > 1:
            low, high = quantity.scale * line.low, quantity.scale * line.high
            axes.fill_betweenx(shares, low, high, color=variant.color, alpha=0.2, linewidth=0)
        ends.append(float(x[-1]))
    public = _public(shown, quantity, class_name)
    if public is not None:
        axes.plot(quantity.scale * public, shares, label=PUBLIC_LABEL, **PUBLIC_STYLE)
        ends.append(float(quantity.scale * public[-1]))
    name = "" if class_name == ALL else f"\n{as_drawn(class_name)}"
    axes.set(title=f"{quantity.title}{name}", xlabel=quantity.x_label)
    if not ends:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
        return
    axes.set_xlim(0.0, 1.05 * max(ends) if max(ends) > 0 else 1.0)
    if quantity.tail:
        _stretch_tail(axes)
    else:
        axes.set_ylim(0.0, 1.0)


def _stretch_tail(axes: Axes) -> None:
    """Scale the axis so that the shares from 0.9 to 0.99 have as much room as those below 0.9."""
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


def _caption(about: str, quantities: Sequence[_Quantity], shown: FigureInput, page: Page) -> str:
    level, seeds = shown.level, sorted({one.seed for one in shown.samples})
    lines = (
        "Lines: mean over simulations of each quantile; bands: its pointwise 95% t interval, "
        "as in tornettools. Simulations without a value are excluded."
        if len(seeds) > 1
        else "One simulation of each variant: there are no intervals."
    )
    tail = (
        f" The axis of shares stretches the tail and ends at {TAIL_END:g}."
        if any(quantity.tail for quantity in quantities)
        else ""
    )
    public = shown.study.public_tor
    known = (
        f" Dotted, the {PUBLIC_LABEL}: {public.source}."
        if public is not None
        and any(
            _public(shown, quantity, name) is not None
            for quantity in quantities
            for name in _classes(shown)
        )
        else ""
    )
    if public is not None and known and public.not_counted:
        known += f" Excluded from it: {'; '.join(public.not_counted)}."
    return (
        f"{about} from {level.measured_start_s:g} s to {level.measured_end_s:g} s of simulated "
        f"time. {lines}{tail}{known}"
    )


def _custom_figure(about: str, quantities: Sequence[_Quantity]) -> CustomFigure:
    return CustomFigure(
        partial(_keep, quantities),
        partial(_draw, quantities),
        partial(_table, quantities),
        partial(_caption, about, quantities),
        shows=lambda own, other: own.name == other.name,
    )


TORNET_FIGURES = {
    "perf-transfer-times": _custom_figure(
        "Downloads of perf clients that completed, timed from the command,", TRANSFERS
    ),
    "perf-circuits": _custom_figure(
        "Circuits of perf clients, and their completed downloads, timed from the command,",
        CIRCUITS,
    ),
    "perf-goodput": _custom_figure("Downloads of perf clients that ended", CLIENTS),
    "relay-goodput": _custom_figure("Bytes that all relays and authorities wrote", RELAYS),
}
