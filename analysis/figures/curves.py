"""Curves of variants over networks.

A line is the mean over networks, and its band is the range over networks. In a panel of ratios, a
line is the geometric mean of the ratios to the baseline on the same networks, and its band is a
simultaneous confidence band. The curve of a network is the mean of its repeats' curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analysis.arrays import Floats
from analysis.figures.kind import FigureData
from analysis.inference.bands import Band, simultaneous_band
from analysis.inference.intervals import log_ratios

Lines = Mapping[str, Band]
"""Variant -> mean curve and band in one panel: over networks, or over pairs with the baseline."""


def mean_lines(data: FigureData, panel: int) -> Lines:
    """Return each variant's mean and range over networks.

    A point is NaN if any run of the variant lacks it.
    """
    curves = _network_curves(data, panel)
    return {variant: _range([*own.values()]) for variant, own in curves.items()}


def difference_lines(data: FigureData, panel: int) -> Lines:
    """Return mean and range of paired differences to the baseline for each other variant."""
    pairs = _pairs(data, _network_curves(data, panel))
    return {variant: _range([own - base for own, base in found]) for variant, found in pairs}


def ratio_lines(data: FigureData, panel: int) -> Lines:
    """Return the mean ratio to the baseline, and the band of this mean, for each other variant.

    Variants that have no network in common with the baseline are left out.
    """
    lines = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for variant, pairs in _pairs(data, _network_curves(data, panel, geometric=True)):
            band = simultaneous_band(np.stack([log_ratios(own, base) for own, base in pairs]))
            mean, low, high = (np.exp(one) for one in (band.mean, band.low, band.high))
            lines[variant] = Band(mean, low, high, band.count)
    return lines


def has_pairs(data: FigureData) -> bool:
    """Return whether any other variant has a network in common with the baseline."""
    return any(True for _ in _pairs(data, _network_curves(data, 0)))


def _range(curves: Sequence[Floats]) -> Band:
    values = np.stack(curves)
    return Band(values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(values))


def _network_curves(
    data: FigureData, panel: int, *, geometric: bool = False
) -> dict[str, dict[int, Floats]]:
    """Return the mean of the repeats' curves: variant -> network -> mean curve.

    A point of the mean is NaN if any repeat lacks this point.
    """
    repeats: dict[str, dict[int, list[Floats]]] = {}
    for one in data.samples:
        repeats.setdefault(one.variant, {}).setdefault(one.seed, []).append(one.value[panel])
    return {
        variant: {seed: _mean(own, geometric) for seed, own in by_seed.items()}
        for variant, by_seed in repeats.items()
    }


def _mean(curves: Sequence[Floats], geometric: bool) -> Floats:
    if len(curves) == 1:
        return curves[0]
    values = np.stack(curves)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = np.exp(np.log(values).mean(axis=0)) if geometric else values.mean(axis=0)
    return mean


def _pairs(
    data: FigureData, curves: Mapping[str, Mapping[int, Floats]]
) -> Iterator[tuple[str, list[tuple[Floats, Floats]]]]:
    """Yield each variant that has networks in common with the baseline, and its pairs.

    A pair consists of the variant's curve and the baseline's curve for the same network.
    """
    base = curves.get(data.study.baseline or "", {})
    for variant, own in curves.items():
        pairs = [(curve, base[seed]) for seed, curve in own.items() if seed in base]
        if variant != data.study.baseline and pairs:
            yield variant, pairs
