"""Writing of a figure as a PNG with at most 256 colours; same drawing, same bytes."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

PNG_DPI = 200


def save_png(figure: Figure, path: Path) -> None:
    """Write ``figure`` at ``PNG_DPI`` dots per inch.

    A palette needs a third of the bytes of full colour. Curves and bands of up to five variants
    have fewer shades than visible. PDF and SVG contain all shades.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PNG_DPI)
    with Image.open(buffer) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(path, format="PNG", optimize=True, dpi=(PNG_DPI, PNG_DPI))
