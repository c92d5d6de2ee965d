"""What is written of a figure shows all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from analysis.figures.forest import Mark, Panel, write_panels
from analysis.inference.intervals import Interval

WHITE = 250


def test_long_labels_are_not_cut(tmp_path: Path) -> None:
    marks = tuple(
        Mark(
            label=f"Time to last byte of {size}, median (perf-onion)",
            axis="ratio",
            looks="open",
            effect=Interval(1.1, 0.9, 1.3),
            scale="ratio",
            margin=1.05,
        )
        for size in ("50 KiB", "1 MiB", "5 MiB")
    )
    panels = [Panel(title, "EWMA", marks) for title in ("RR", "SWRR linear")]
    drawn = write_panels(panels, "", tmp_path / "plot", "")
    with Image.open(drawn.png) as image:
        grey = np.asarray(image.convert("L"))
    for edge in (grey[:, :2], grey[:, -2:], grey[:2], grey[-2:]):
        assert (edge > WHITE).all()
    assert (grey < WHITE).any()
