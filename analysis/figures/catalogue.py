"""All kinds of figures, by the name that experiments use.

Those of panels with a line for each variant stand in ``panels``, those that draw themselves in
modules of their own.
"""

from __future__ import annotations

from analysis.errors import AnalysisError
from analysis.figures.panels import PANEL_FIGURES, PanelFigure
from analysis.figures.picture import Picture
from analysis.figures.side_by_side import SIDE_BY_SIDE_PICTURES
from analysis.figures.tornettools import TORNET_PICTURES
from analysis.figures.transfers import TRANSFER_PICTURES
from analysis.formats.study import FigureSpec

PICTURES: dict[str, Picture] = {**SIDE_BY_SIDE_PICTURES, **TRANSFER_PICTURES, **TORNET_PICTURES}


def check_kind(spec: FigureSpec) -> None:
    """Whether there is such a kind of figure.

    Raises:
        AnalysisError: there is none of that name.
    """
    if spec.kind not in PICTURES:
        panel_figure(spec)


def panel_figure(spec: FigureSpec) -> PanelFigure:
    """The kind of a figure that is made of panels.

    Raises:
        AnalysisError: there is none of that name.
    """
    try:
        return PANEL_FIGURES[spec.kind]
    except KeyError:
        raise AnalysisError(
            f"figure {spec.id} has the unknown kind {spec.kind}",
            f"kinds: {', '.join([*PANEL_FIGURES, *PICTURES])}",
        ) from None
