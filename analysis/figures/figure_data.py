"""What a figure collects of the runs that it shows.

Of panels, a line is the mean over networks, its band their range. In a panel that compares, a line
is the geometric mean of the ratios to the baseline on the same networks, its band a simultaneous
interval. The curve of a network is the mean of its repeats' curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Collects a figure's values: variant -> one entry per run -> panel -> array, and its seed."""

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

    def _of_networks(self, variant: str, panel: int) -> dict[int, Floats]:
        """Return each network's curve: the mean of its repeats, of ratios the geometric one."""
        repeats: dict[int, list[Floats]] = {}
        for seed, run in zip(self.seeds[variant], self.runs[variant], strict=True):
            repeats.setdefault(seed, []).append(run[panel])
        compares = panel_figure(self.spec).panels[panel].compares
        return {seed: _mean_curve(own, compares) for seed, own in repeats.items()}

    def lines(self, panel: int) -> dict[str, Lines]:
        """Mean and range over seeds for each variant. A point that a run lacks is unknown.

        Of a panel that compares: ratios to the baseline, for each other variant that shares seeds.
        """
        if panel_figure(self.spec).panels[panel].compares:
            return self._ratios(panel)
        lines = {}
        for variant in self.runs:
            values = np.stack([*self._of_networks(variant, panel).values()])
            lines[variant] = Lines(
                values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(values)
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
        base = self._of_networks(self.baseline, panel)
        for variant in self.runs:
            own = self._of_networks(variant, panel)
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
        """Return how many replicates stand behind the lines."""
        if any(panel.compares for panel in panel_figure(self.spec).panels):
            return (
                "Lines: geometric mean over pairs of runs. Bands: 95% for a whole line at once; "
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
        if any(panel.difference for panel in panel_figure(self.spec).panels) and self.compared:
            return f"{lines} Below each: the same as differences between runs of one {replicate}."
        return lines

    @property
    def compared(self) -> bool:
        """Whether there are pairs with the baseline."""
        return any(True for _ in self._pairs(0))


def _mean_curve(repeats: Sequence[Floats], geometric: bool) -> Floats:
    """Return the mean of curves of one network; NaN where one of them is."""
    if len(repeats) == 1:
        return repeats[0]
    values = np.stack(repeats)
    if not geometric:
        return values.mean(axis=0)  # type: ignore[no-any-return]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.exp(np.log(values).mean(axis=0))  # type: ignore[no-any-return]
