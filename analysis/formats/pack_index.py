"""index.json: the first member of a pack of runs, which names all others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from analysis.formats.format_model import FormatModel


class PackIndex(FormatModel):
    """index.json: the first member of a pack of runs, which names all others."""

    format: Literal[1, 2] = Field(
        default=1,
        description="version; 2: of a published pack, whose runs have what figures and claims read "
        "and no more",
    )
    files: dict[str, str] = Field(
        description="name of a member -> its SHA-256; <run id>/<path>, or studies/<experiment>.json"
    )
