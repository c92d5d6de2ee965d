"""The data of a figure, collected from its runs.

In panels, a line is the mean over networks, and its band their range. In a panel that compares, a
line is the geometric mean of the ratios to the baseline on the same networks, and its band a
simultaneous interval. The curve of a network is the mean of its repeats' curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.arrays import Floats
from analysis.figures.catalogue import CUSTOM_FIGURES, line_figure
from analysis.figures.custom_figure import RunSample
from analysis.figures.panels import Run
from analysis.formats.study import FigureSpec, Level
from analysis.inference.bands import simultaneous_band
from analysis.inference.intervals import log_ratios


@dataclass(frozen=True)
class Lines:
    """The data of one variant in one panel: arrays of the grid's shape, NaN if unknown."""

    mean: Floats
    low: Floats
    high: Floats
    seeds: int


@dataclass
class FigureData:
    """Collected values of a figure: variant -> entry per run -> panel -> array, and its seed."""

    spec: FigureSpec
    level: Level
    baseline: str | None = None
    runs: dict[str, list[list[Floats]]] = field(default_factory=dict)
    seeds: dict[str, list[int]] = field(default_factory=dict)
    samples: list[RunSample] = field(default_factory=list)

    def shows(self, level: Level) -> bool:
        """Return whether the figure shows the runs of a level."""
        picture = CUSTOM_FIGURES.get(self.spec.kind)
        if picture is not None:
            return picture.shows(self.level, level)
        return level.name == self.level.name

    def add(self, variant: str, seed: int, run: Run, level: Level | None = None) -> None:
        """Add one run; ``level``: of the run, if it differs from the figure's."""
        picture = CUSTOM_FIGURES.get(self.spec.kind)
        if picture is not None:
            self.samples.append(RunSample(level or self.level, variant, seed, picture.keep(run)))
            return
        panels = line_figure(self.spec).panels
        values = [panel.values(run, panel.grid(self.level)) for panel in panels]
        self.runs.setdefault(variant, []).append(values)
        self.seeds.setdefault(variant, []).append(seed)

    def _network_curves(self, variant: str, panel: int) -> dict[int, Floats]:
        """Return each network's curve: the mean of its repeats, geometric for ratios."""
        repeats: dict[int, list[Floats]] = {}
        for seed, run in zip(self.seeds[variant], self.runs[variant], strict=True):
            repeats.setdefault(seed, []).append(run[panel])
        compares = line_figure(self.spec).panels[panel].compares
        return {seed: _mean_curve(own, compares) for seed, own in repeats.items()}

    def lines(self, panel: int) -> dict[str, Lines]:
        """Return mean and range over seeds for each variant. A point that any run lacks is unknown.

        For a panel that compares, return ratios to the baseline for each other variant with common
        seeds.
        """
        if line_figure(self.spec).panels[panel].compares:
            return self._ratios(panel)
        lines = {}
        for variant in self.runs:
            values = np.stack([*self._network_curves(variant, panel).values()])
            lines[variant] = Lines(
                values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(values)
            )
        return lines

    def differences(self, panel: int) -> dict[str, Lines]:
        """Return mean and range of paired differences to the baseline for each other variant."""
        lines = {}
        for variant, pairs in self._pairs(panel):
            values = np.stack([own - other for own, other in pairs])
            lines[variant] = Lines(
                values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(pairs)
            )
        return lines

    def _pairs(self, panel: int) -> Iterator[tuple[str, list[tuple[Floats, Floats]]]]:
        """Yield variants with pairs of their curves and the baseline's, for their common seeds."""
        if self.baseline not in self.runs:
            return
        base = self._network_curves(self.baseline, panel)
        for variant in self.runs:
            own = self._network_curves(variant, panel)
            pairs = [(curve, base[seed]) for seed, curve in own.items() if seed in base]
            if variant != self.baseline and pairs:
                yield variant, pairs

    def _ratios(self, panel: int) -> dict[str, Lines]:
        lines = {}
        for variant, pairs in self._pairs(panel):
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.stack([log_ratios(own, other) for own, other in pairs])
            band = simultaneous_band(logs)
            lines[variant] = Lines(
                np.exp(band.mean), np.exp(band.low), np.exp(band.high), len(pairs)
            )
        return lines

    def seeds_text(self, replicate: str = "network") -> str:
        """Return a text on the number of replicates and the meaning of the bands."""
        if any(panel.compares for panel in line_figure(self.spec).panels):
            return (
                "Lines: geometric mean over pairs of runs. Bands: simultaneous 95% intervals; "
                "one pair has none."
            )
        counts = sorted({len(set(seeds)) for seeds in self.seeds.values()})
        if not counts:
            return "No runs."
        if counts == [1]:
            return f"One {replicate} per variant."
        many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        lines = (
            f"Lines: mean over {many} {replicate}s per variant. Bands: smallest to largest "
            f"{replicate}."
        )
        if any(len(seeds) > len(set(seeds)) for seeds in self.seeds.values()):
            lines += " The curve of a network is the mean of its repeats."
        if any(panel.difference for panel in line_figure(self.spec).panels) and self.compared:
            return f"{lines} Below each: the differences between runs of the same {replicate}."
        return lines

    @property
    def compared(self) -> bool:
        """True if there are pairs with the baseline."""
        return any(True for _ in self._pairs(0))


def _mean_curve(repeats: Sequence[Floats], geometric: bool) -> Floats:
    """Return the mean of curves of one network; NaN if any of them is NaN."""
    if len(repeats) == 1:
        return repeats[0]
    values = np.stack(repeats)
    if not geometric:
        return values.mean(axis=0)  # type: ignore[no-any-return]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.exp(np.log(values).mean(axis=0))  # type: ignore[no-any-return]
