"""All kinds of figures, by the name that experiments use.

Kinds made of panels with a line for each variant are in ``panels``. Kinds with their own drawing
code are in separate modules.
"""

from __future__ import annotations

from analysis.errors import AnalysisError
from analysis.figures.custom_figure import CustomFigure
from analysis.figures.panels import LINE_FIGURES, LineFigure
from analysis.figures.side_by_side import SIDE_BY_SIDE_FIGURES
from analysis.figures.tornettools import TORNET_FIGURES
from analysis.figures.transfers import TRANSFER_FIGURES
from analysis.formats.study import FigureSpec

CUSTOM_FIGURES: dict[str, CustomFigure] = {
    **SIDE_BY_SIDE_FIGURES,
    **TRANSFER_FIGURES,
    **TORNET_FIGURES,
}


def check_kind(spec: FigureSpec) -> None:
    """Check that the kind of a figure exists.

    Raises:
        AnalysisError: there is no such kind.
    """
    if spec.kind not in CUSTOM_FIGURES:
        line_figure(spec)


def line_figure(spec: FigureSpec) -> LineFigure:
    """Return the kind of a figure that is made of panels.

    Raises:
        AnalysisError: there is no such kind.
    """
    try:
        return LINE_FIGURES[spec.kind]
    except KeyError:
        raise AnalysisError(
            f"figure {spec.id} has the unknown kind {spec.kind}",
            f"kinds: {', '.join([*LINE_FIGURES, *CUSTOM_FIGURES])}",
        ) from None
