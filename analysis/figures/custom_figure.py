"""Interface of figures with their own drawing code.

``panels.LINE_FIGURES`` has the common kinds, made of panels with a line for each variant. Other
kinds store the data that they need from each run, and draw themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from analysis.figures.style import Page
from analysis.formats.study import FigureSpec, Level, Study
from analysis.measures.data import ClassData


@dataclass(frozen=True)
class RunSample:
    """The data of one run that a figure needs."""

    level: Level
    variant: str
    seed: int
    value: Any


@dataclass(frozen=True)
class FigureInput:
    """The input of a figure; ``samples`` is in the study's order of runs."""

    spec: FigureSpec
    level: Level
    study: Study
    samples: Sequence[RunSample]


@dataclass(frozen=True)
class CustomFigure:
    """One kind of figure with its own drawing code.

    Attributes:
        keep: extracts the needed data from a run's classes.
        draw: draws the figure.
        table: returns the rows of the CSV with the drawn data, including the header.
        caption: returns the caption.
        shows: whether a figure of one level also shows the runs of another level.
    """

    keep: Callable[[Mapping[str, ClassData]], Any]
    draw: Callable[[FigureInput, Page], Figure]
    table: Callable[[FigureInput], Sequence[Sequence[str]]]
    caption: Callable[[FigureInput, Page], str]
    shows: Callable[[Level, Level], bool]


def draw_legend(figure: Figure, handles: list[Artist], labels: list[str]) -> None:
    """Draw the legend above the panels, with as many columns as fit."""
    for columns in range(min(len(handles), 5), 0, -1):
        legend = figure.legend(
            handles,
            labels,
            loc="outside upper center",
            ncols=columns,
            frameon=False,
            handlelength=3.2,
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
