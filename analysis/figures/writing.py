"""Writing of a figure as PDF, PNG and the CSV of its data; same data, same bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.figures.catalogue import CUSTOM_FIGURES, line_figure
from analysis.figures.custom_figure import FigureInput
from analysis.figures.figure_data import FigureData
from analysis.figures.lines import draw_lines, lines_csv
from analysis.figures.png import save_png
from analysis.figures.style import RC, TEXT, Page
from analysis.formats.study import FigureSpec, Study


@dataclass(frozen=True)
class FigurePaths:
    """Files of one figure, its caption, and the same drawing as SVG for the report."""

    spec: FigureSpec
    pdf: Path
    png: Path
    csv: Path
    svg: bytes
    caption: str

    def moved_to(self, directory: Path) -> FigurePaths:
        """Return the same files in another directory."""
        pdf, png, csv_path = (directory / path.name for path in (self.pdf, self.png, self.csv))
        return FigurePaths(self.spec, pdf, png, csv_path, self.svg, self.caption)


def write_figure(data: FigureData, study: Study, directory: Path, page: Page = TEXT) -> FigurePaths:
    """Draw a figure as <id>.pdf, .png and .csv in ``directory``; same data, same bytes."""
    picture = CUSTOM_FIGURES.get(data.spec.kind)
    shown = FigureInput(data.spec, data.level, study, tuple(data.samples))
    base = directory / data.spec.id
    paths = {name: base.with_name(f"{data.spec.id}.{name}") for name in ("pdf", "png", "csv")}
    table = lines_csv(data, study) if picture is None else _as_csv(picture.table(shown))
    paths["csv"].write_text(table, encoding="utf-8")
    svg = save(
        lambda: draw_lines(data, study, page) if picture is None else picture.draw(shown, page),
        paths["pdf"],
        paths["png"],
    )
    if picture is None:
        replicates = data.seeds_text(study.replicate_unit)
        caption = f"{line_figure(data.spec).caption(data.level, page)} {replicates}"
    else:
        caption = picture.caption(shown, page)
    return FigurePaths(data.spec, paths["pdf"], paths["png"], paths["csv"], svg, caption)


def save(draw: Callable[[], Figure], pdf: Path, png: Path) -> bytes:
    """Draw a figure, write it as PDF and PNG, and return it as SVG; same data, same bytes."""
    settings: Any = {**mpl.rcParamsDefault, **RC, "backend": "agg"}
    with mpl.rc_context(settings):
        figure = draw()
        # The letters of a PNG are fitted to its pixels, which makes words wider, so the PNG has a
        # separate layout. PDF and SVG measure words alike, so they share one.
        save_png(figure, png)
        nothing = {"Creator": None, "Producer": None, "CreationDate": None}
        figure.savefig(pdf, format="pdf", metadata=nothing)
        figure.set_layout_engine(None)
        svg = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=nothing)
    return svg.getvalue()


def _as_csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
