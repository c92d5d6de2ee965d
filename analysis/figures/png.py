"""A figure as a PNG of at most 256 colours; same drawing, same bytes."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

PNG_DPI = 200


def save_png(figure: Figure, path: Path) -> None:
    """Writes ``figure`` at ``PNG_DPI`` dots an inch.

    A palette makes a third of the bytes of full colour. Curves and bands of up to five variants
    have fewer shades than the eye tells apart; where every shade counts there are PDF and SVG.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=PNG_DPI)
    with Image.open(drawn) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(path, format="PNG", optimize=True, dpi=(PNG_DPI, PNG_DPI))
