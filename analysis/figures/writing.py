"""Writing of a figure as PDF and PNG, and of its data as CSV.

Equal data give byte-identical files.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from analysis.figures.kind import FigureData
from analysis.figures.style import RC, TEXT, Page
from analysis.formats.csv_tables import csv_text

PNG_DPI = 200


@dataclass(frozen=True)
class WrittenFigure:
    """The files of a figure, its heading and caption, and the figure as SVG to embed in a page."""

    base: Path
    heading: str
    caption: str
    svg: bytes

    @property
    def name(self) -> str:
        """Name of the files without extension."""
        return self.base.name

    def path(self, extension: str) -> Path:
        """Return the path of a file: pdf, png or csv."""
        return self.base.with_name(f"{self.name}.{extension}")


def write_figure(data: FigureData, directory: Path, page: Page = TEXT) -> WrittenFigure:
    """Write <id>.pdf, .png and .csv of a figure into ``directory``."""
    return write_drawing(
        lambda: data.kind.draw(data, page),
        directory / data.spec.id,
        data.study.figure_title(data.spec),
        data.kind.caption(data, page),
        csv_text(data.kind.table(data)),
    )


def write_drawing(
    draw: Callable[[], Figure], base: Path, heading: str, caption: str, table: str | None
) -> WrittenFigure:
    """Write a drawing as ``base``.pdf and .png, and its data as .csv unless ``table`` is None."""
    written = WrittenFigure(base, heading, caption, b"")
    if table is not None:
        written.path("csv").write_text(table, encoding="utf-8")
    settings: Any = {**mpl.rcParamsDefault, **RC, "backend": "agg"}
    with mpl.rc_context(settings):
        figure = draw()
        _draw_empty_lines_without_markers(figure)
        # In a PNG, letters are aligned to pixels. This makes words wider, so the PNG has a separate
        # layout. Words have the same width in PDF and SVG, so these two share a layout.
        _save_png(figure, written.path("png"))
        nothing = {"Creator": None, "Producer": None, "CreationDate": None}
        figure.savefig(written.path("pdf"), format="pdf", metadata=nothing)
        figure.set_layout_engine(None)
        svg = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=nothing)
    return replace(written, svg=svg.getvalue())


def _draw_empty_lines_without_markers(figure: Figure) -> None:
    """Remove the marker spacing of lines without points, because it makes Matplotlib fail."""
    for axes in figure.axes:
        for line in axes.lines:
            if not np.isfinite(line.get_xydata()).all(axis=1).any():
                line.set_markevery(None)


def _save_png(figure: Figure, path: Path) -> None:
    """Write a PNG with at most 256 colours.

    A palette needs a third of the bytes of full colour. With up to five variants, the difference is
    not visible. PDF and SVG contain all shades.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PNG_DPI)
    with Image.open(buffer) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(path, format="PNG", optimize=True, dpi=(PNG_DPI, PNG_DPI))
