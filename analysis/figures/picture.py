"""Figures that are not one line per variant: what each of them has to bring.

``panels.PANEL_FIGURES`` has the usual kinds, made of panels with a line for each variant. A picture
draws itself, and keeps of each run what it needs for that.
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
class Kept:
    """What a picture keeps of one run."""

    level: Level
    variant: str
    seed: int
    value: Any


@dataclass(frozen=True)
class Shown:
    """All that a picture is drawn from; ``kept`` in the study's order of runs."""

    spec: FigureSpec
    level: Level
    study: Study
    kept: Sequence[Kept]


@dataclass(frozen=True)
class Picture:
    """One kind of figure that draws itself.

    Attributes:
        keep: what to keep of a run: its classes in, anything out.
        draw: the figure.
        table: rows of the CSV of what is drawn, the head first.
        caption: what it shows, for readers.
        takes: whether a figure of one level shows the runs of another one as well.
    """

    keep: Callable[[Mapping[str, ClassData]], Any]
    draw: Callable[[Shown, Page], Figure]
    table: Callable[[Shown], Sequence[Sequence[str]]]
    caption: Callable[[Shown, Page], str]
    takes: Callable[[Level, Level], bool]


def draw_legend(figure: Figure, handles: list[Artist], labels: list[str]) -> None:
    """The legend above the panels, in as many columns as there is room for."""
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
