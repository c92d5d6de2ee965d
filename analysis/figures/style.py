"""Style of figures: sizes, fonts, and a colour, marker and line style per variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.lines import Line2D

from analysis.errors import AnalysisError
from analysis.formats.study import Variant


@dataclass(frozen=True)
class Page:
    """The format of a page with figures. Another format, such as slides, is another entry.

    Attributes:
        width_in: width of the whole figure.
        panel_height_in: height of one row of panels.
        stacked: whether panels are in a column instead of a row.
    """

    width_in: float
    panel_height_in: float
    stacked: bool

    @property
    def places(self) -> tuple[str, str]:
        """Positions of the first and the second panel, for captions."""
        return ("above", "below") if self.stacked else ("left", "right")


TEXT = Page(7.0, 2.75, stacked=False)
"""The text width of the usual two-column formats, with both panels in a row."""

COLUMN = Page(3.5, 2.1, stacked=True)
"""One column of IEEE's two-column format."""

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
    # Embed TrueType fonts, as printers and publishers reject Type 3.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    # Without a fixed salt, identifiers in an SVG differ between drawings.
    "svg.hashsalt": "onionlab",
    "path.simplify": False,
}

OUTSIDE_COLOR = "#ececec"
"""Shade of the time outside of the measured span."""


def as_drawn(name: str) -> str:
    """Escape a name, so that Matplotlib shows it literally.

    Matplotlib interprets text between dollar signs as a formula, and omits lines from the legend if
    their label begins with an underscore.
    """
    plain = name.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{plain}" if plain.startswith("_") else plain


def check_look(variant: Variant) -> None:
    """Check that Matplotlib can draw a variant's lines.

    Raises:
        AnalysisError: its colour, marker or line style is invalid.
    """
    try:
        Line2D([], [], **line_style(variant, []))
        if not isinstance(variant.linestyle, str):
            # Matplotlib checks the lengths of dashes only when it draws them.
            GraphicsContextBase().set_dashes(*variant.linestyle)
    except ValueError as error:
        raise AnalysisError(
            f"lines of {variant.name} cannot be drawn: {' '.join(str(error).split())[:200]}",
            "color: #rrggbb; marker and linestyle: as in Matplotlib",
        ) from None


def line_style(variant: Variant, marks: list[int]) -> dict[str, Any]:
    """Return the line properties of a variant. Dashes and sparse markers are distinct in greyscale.

    Args:
        variant: the variant.
        marks: indices of the points with a marker.
    """
    return {
        "color": variant.color,
        "linestyle": variant.linestyle,
        "marker": variant.marker,
        "markevery": marks,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }
