"""All kinds of figures, by the name that experiments use."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.errors import AnalysisError
from analysis.figures.kind import FigureData, FigureKind
from analysis.figures.lines import LINE_FIGURES
from analysis.figures.side_by_side import StarvationMap, StreamProgress
from analysis.figures.tornettools import TORNET_FIGURES
from analysis.figures.transfers import TransferWindow
from analysis.formats.study import FigureSpec, Study

FIGURES: Mapping[str, FigureKind] = {
    **LINE_FIGURES,
    "stream-progress": StreamProgress(),
    "starvation-map": StarvationMap(),
    "transfer-window": TransferWindow(),
    **TORNET_FIGURES,
}


def open_figure(spec: FigureSpec, study: Study) -> FigureData:
    """Return a figure of a study, to which runs can be added.

    Raises:
        AnalysisError: the figure has an unknown kind.
    """
    if spec.kind not in FIGURES:
        raise AnalysisError(
            f"figure {spec.id} has the unknown kind {spec.kind}", f"kinds: {', '.join(FIGURES)}"
        )
    return FigureData(spec, FIGURES[spec.kind], study)
