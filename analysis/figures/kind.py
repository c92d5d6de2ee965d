"""Interface of the kinds of figures, and the data of one figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import Page
from analysis.formats.study import FigureSpec, Level, Study, Variant
from analysis.measures.data import ClassData


@dataclass(frozen=True)
class RunSample:
    """One run, with the data that a figure needs from it."""

    level: Level
    variant: str
    seed: int
    value: Any


class FigureKind(ABC):
    """A kind of figure, which extracts data from each run, and draws the data of all runs."""

    @abstractmethod
    def keep(self, run: Mapping[str, ClassData], level: Level) -> Any:
        """Return the data that a figure of ``level`` needs from a run.

        run: class of clients -> its data.
        """

    @abstractmethod
    def draw(self, data: FigureData, page: Page) -> Figure:
        """Draw the figure."""

    @abstractmethod
    def table(self, data: FigureData) -> pd.DataFrame:
        """Return the drawn data."""

    @abstractmethod
    def caption(self, data: FigureData, page: Page) -> str:
        """Return the caption, which may refer to the places of panels on the page."""

    def shows(self, own: Level, other: Level) -> bool:
        """Return whether a figure of the level ``own`` shows the runs of the level ``other``."""
        return own.name == other.name


@dataclass
class FigureData:
    """A figure of a study, with the samples of the runs that it shows, in the study's order."""

    spec: FigureSpec
    kind: FigureKind
    study: Study
    samples: list[RunSample] = field(default_factory=list)

    @cached_property
    def level(self) -> Level:
        """The level of the figure."""
        return self.study.level(self.spec.level)

    def shows(self, level: Level) -> bool:
        """Return whether the figure shows the runs of a level."""
        return self.kind.shows(self.level, level)

    def add(self, variant: str, seed: int, run: Mapping[str, ClassData], level: Level) -> None:
        """Add one run. ``level`` is the level of the run."""
        self.samples.append(RunSample(level, variant, seed, self.kind.keep(run, self.level)))

    def first_runs(self) -> list[tuple[Variant, RunSample]]:
        """Return each variant's run with the lowest seed, in the study's order of variants."""
        found = []
        for variant in self.study.variants:
            runs = [sample for sample in self.samples if sample.variant == variant.name]
            if runs:
                found.append((variant, min(runs, key=lambda sample: sample.seed)))
        return found
