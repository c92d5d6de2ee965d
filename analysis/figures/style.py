"""How figures look: sizes, fonts, and one colour, marker and line per variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.lines import Line2D

from analysis.errors import AnalysisError
from analysis.formats.study import Variant


@dataclass(frozen=True)
class Page:
    """Where a figure is to stand. A report or slides of another format are another entry.

    Attributes:
        width_in: of the whole figure.
        panel_height_in: of one row of panels.
        stacked: panels one above the other, otherwise side by side.
    """

    width_in: float
    panel_height_in: float
    stacked: bool

    @property
    def places(self) -> tuple[str, str]:
        """Where the first and the second panel are, for captions."""
        return ("above", "below") if self.stacked else ("left", "right")


TEXT = Page(7.0, 2.75, stacked=False)
"""Across the text of the usual two-column formats, both panels side by side."""

COLUMN = Page(3.5, 2.1, stacked=True)
"""In one column of IEEE's two-column format."""

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.0,
    # TrueType fonts inside the file: printers and publishers refuse Type 3.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    # Without a fixed salt, identifiers in an SVG differ from one drawing to the next.
    "svg.hashsalt": "onionlab",
    "path.simplify": False,
}

OUTSIDE_COLOR = "#ececec"
"""Shade of what is not in the measured span."""


def as_drawn(name: str) -> str:
    """A name as text for Matplotlib, which shows it letter for letter.

    To Matplotlib what stands between two dollars is a formula, and a line whose label begins with
    an underscore is not for the legend.
    """
    plain = name.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{plain}" if plain.startswith("_") else plain


def check_look(variant: Variant) -> None:
    """Whether Matplotlib can draw a variant's lines.

    Raises:
        AnalysisError: its colour, marker or line style is none.
    """
    try:
        Line2D([], [], **line_style(variant, []))
        if not isinstance(variant.linestyle, str):
            # Lengths of dashes are looked at when they are drawn.
            GraphicsContextBase().set_dashes(*variant.linestyle)
    except ValueError as error:
        raise AnalysisError(
            f"lines of {variant.name} cannot be drawn: {' '.join(str(error).split())[:200]}",
            "color: #rrggbb; marker and linestyle: as Matplotlib has them",
        ) from None


def line_style(variant: Variant, marks: list[int]) -> dict[str, Any]:
    """Line properties of a variant: colour, dashes and sparse markers tell it apart, also in grey.

    Args:
        variant: whose line it is.
        marks: indices of the points that carry a marker.
    """
    return {
        "color": variant.color,
        "linestyle": variant.linestyle,
        "marker": variant.marker,
        "markevery": marks,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }
