"""Draw figures as SVG only, in tests that do not examine the files of figures.

A figure takes seconds, and three quarters of this time are for PNG and PDF.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest


@contextlib.contextmanager
def only_svg() -> Iterator[None]:
    """Let each figure's PNG and PDF be empty images while the block lasts."""
    # Sessions without figures need not wait for Matplotlib.
    from matplotlib.figure import Figure
    from PIL import Image

    draw = Figure.savefig

    def save(figure: Figure, target: Any, *, format: str, **options: Any) -> None:
        if format == "svg":
            draw(figure, target, format=format, **options)
            return
        content = io.BytesIO()
        Image.new("RGB", (1, 1)).save(content, format)
        if isinstance(target, io.BytesIO):
            target.write(content.getvalue())
        else:
            target.write_bytes(content.getvalue())

    with mock.patch.object(Figure, "savefig", save):
        yield


@pytest.fixture
def svg_only() -> Iterator[None]:
    """Apply ``only_svg`` to a test. Fixtures of modules and sessions still draw all formats."""
    with only_svg():
        yield
