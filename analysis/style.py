"""How figures look: sizes, fonts, and one colour, marker and line per variant."""

from __future__ import annotations

from typing import Any

from analysis.study import Variant

TEXT_WIDTH_IN = 7.0
"""Width of a page's text in the usual two-column formats; both panels side by side fill it."""

HEIGHT_IN = 2.75

PNG_DPI = 200

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
