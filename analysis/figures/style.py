"""Style of figures: sizes, fonts, grids of panels, legends, and the lines of each variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.errors import AnalysisError
from analysis.formats.study import Variant


@dataclass(frozen=True)
class Page:
    """The format of a page with figures. For another format, such as slides, add an instance.

    ``width_in`` is the width of the whole figure, and ``panel_height_in`` the height of one row of
    panels. If ``stacked`` is set, panels are in a column instead of a row.
    """

    width_in: float
    panel_height_in: float
    stacked: bool

    @property
    def places(self) -> tuple[str, str]:
        """Positions of the first and the second panel, for captions."""
        return ("above", "below") if self.stacked else ("left", "right")


TEXT = Page(7.0, 2.75, stacked=False)
"""The full text width of the usual two-column formats. The panels are in a row."""

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
    # Embed TrueType fonts, because printers and publishers reject Type 3.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    # Without a fixed salt, identifiers in an SVG differ between drawings.
    "svg.hashsalt": "onionlab",
    "path.simplify": False,
}

MARKER_DISTANCE = 0.15
"""Distance between the markers of a line, as a share of the panel's diagonal."""

OUTSIDE_COLOR = "#ececec"
"""Shade of the time outside of the measured span."""

LINE_OF_INTEREST: dict[str, Any] = {
    "color": "#555555", "linewidth": 0.8, "linestyle": (0, (1, 1.5)), "zorder": 1,
}  # fmt: skip
"""Style of a reference line, for example at a timeout or at a difference of zero."""


def panel_grid(
    width_in: float, height_in: float, rows: int, columns: int, **options: Any
) -> tuple[Figure, Any]:
    """Return a figure and its panels, shape (rows, columns).

    options: further arguments of ``Figure.subplots``.
    """
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def variant_panels(page: Page, count: int) -> tuple[Figure, Any]:
    """Return a figure and ``count`` panels with common axes.

    The panels are in a row or, if ``page`` is narrow, in a column.
    """
    shape = (max(1, count), 1) if page.stacked else (1, max(1, count))
    height_in = shape[0] * page.panel_height_in
    return panel_grid(page.width_in, height_in, *shape, sharex=True, sharey=True)


def write_in_panel(axes: Axes, text: str, height: float = 0.5) -> None:
    """Write a text instead of data, centred at ``height``, a share of the panel's height."""
    axes.text(
        0.5, height, text, ha="center", va="center", transform=axes.transAxes, color="#555555"
    )


def draw_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw a legend of labelled lines above the panels, with as many columns as fit."""
    for columns in range(min(len(handles), 6), 0, -1):
        legend = figure.legend(
            handles=handles,
            loc="outside upper center",
            ncols=columns,
            frameon=False,
            handlelength=2.8,
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


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
        Line2D([], [], **line_style(variant))
        if not isinstance(variant.linestyle, str):
            # Matplotlib checks the lengths of dashes only when it draws them.
            GraphicsContextBase().set_dashes(*variant.linestyle)
    except ValueError as error:
        raise AnalysisError(
            f"lines of {variant.name} cannot be drawn: {' '.join(str(error).split())[:200]}",
            "color: #rrggbb; marker and linestyle: as in Matplotlib",
        ) from None


def line_style(variant: Variant, phase: float = 0.0) -> dict[str, Any]:
    """Return the line properties of a variant.

    Dashes and sparse markers make the lines of different variants distinct in greyscale.

    phase: offset of the markers along the line, in [0, 1). Different offsets keep the markers of
        different lines apart.
    """
    return {
        "color": variant.color,
        "linestyle": variant.linestyle,
        "marker": variant.marker,
        "markevery": (phase * MARKER_DISTANCE, MARKER_DISTANCE),
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }
