"""What a figure collects of the runs that it shows.

Of panels, a line is the mean over seeds, its band their range. In a panel that compares, a line is
the geometric mean of the ratios to the baseline's runs of the same seeds, its band a simultaneous
interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from analysis.arrays import Floats
from analysis.figures.catalogue import PICTURES, panel_figure
from analysis.figures.panels import Run
from analysis.figures.picture import Kept
from analysis.formats.study import FigureSpec, Level
from analysis.inference.bands import simultaneous_band
from analysis.inference.intervals import log_ratios


@dataclass(frozen=True)
class Lines:
    """What one panel shows of one variant: arrays of the grid's shape, NaN where not known."""

    mean: Floats
    low: Floats
    high: Floats
    seeds: int


@dataclass
class FigureData:
    """Collects a figure's values run by run: variant -> one entry per seed -> panel -> array."""

    spec: FigureSpec
    level: Level
    baseline: str | None = None
    runs: dict[str, list[list[Floats]]] = field(default_factory=dict)
    seeds: dict[str, list[int]] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)

    def takes(self, level: Level) -> bool:
        """Whether the figure shows runs of a level."""
        picture = PICTURES.get(self.spec.kind)
        if picture is not None:
            return picture.takes(self.level, level)
        return level.name == self.level.name

    def add(self, variant: str, seed: int, run: Run, level: Level | None = None) -> None:
        """Takes one run; ``level``: of the run, if it is not the figure's own."""
        picture = PICTURES.get(self.spec.kind)
        if picture is not None:
            self.kept.append(Kept(level or self.level, variant, seed, picture.keep(run)))
            return
        panels = panel_figure(self.spec).panels
        values = [panel.values(run, panel.grid(self.level)) for panel in panels]
        self.runs.setdefault(variant, []).append(values)
        self.seeds.setdefault(variant, []).append(seed)

    def lines(self, panel: int) -> dict[str, Lines]:
        """Mean and range over seeds for each variant. A point that a run lacks is unknown.

        Of a panel that compares: ratios to the baseline, for each other variant that shares seeds.
        """
        if panel_figure(self.spec).panels[panel].compares:
            return self._ratios(panel)
        lines = {}
        for variant, runs in self.runs.items():
            values = np.stack([run[panel] for run in runs])
            lines[variant] = Lines(
                values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(runs)
            )
        return lines

    def differences(self, panel: int) -> dict[str, Lines]:
        """Mean and range of the pairs' differences to the baseline, for each other variant."""
        lines = {}
        for variant, pairs in self._pairs(panel):
            values = np.stack([own - other for own, other in pairs])
            lines[variant] = Lines(
                values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(pairs)
            )
        return lines

    def _pairs(self, panel: int) -> Iterator[tuple[str, list[tuple[Floats, Floats]]]]:
        """Variants with what they and the baseline have of the seeds that both have."""
        if self.baseline not in self.runs:
            return
        base = dict(zip(self.seeds[self.baseline], self.runs[self.baseline], strict=True))
        for variant, runs in self.runs.items():
            pairs = [
                (run[panel], base[seed][panel])
                for seed, run in zip(self.seeds[variant], runs, strict=True)
                if seed in base
            ]
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

    def seeds_text(self) -> str:
        """How many seeds stand behind the lines."""
        if any(panel.compares for panel in panel_figure(self.spec).panels):
            return (
                "Lines: geometric mean over pairs of runs. Bands: 95% for a whole line at once; "
                "one pair has none."
            )
        counts = sorted({len(runs) for runs in self.runs.values()})
        if not counts:
            return "No runs."
        if counts == [1]:
            return "One seed per variant."
        many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        lines = f"Lines: mean over {many} seeds per variant. Bands: smallest to largest seed."
        if any(panel.difference for panel in panel_figure(self.spec).panels) and self.compared:
            return f"{lines} Below each: the same as differences between runs of one seed."
        return lines

    @property
    def compared(self) -> bool:
        """Whether there are pairs with the baseline."""
        return any(True for _ in self._pairs(0))
