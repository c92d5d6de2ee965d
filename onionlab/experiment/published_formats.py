"""The formats of published packs, as docs/reference/formats.md tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.formats import files
from analysis.formats.published import (
    CODED_STREAMS,
    GAP,
    KEPT,
    PUBLISHED_FORMAT,
    RECEIVED,
    SUMS,
    PublishedRun,
)


@dataclass(frozen=True)
class Described:
    """A format, as its section tells it.

    Attributes:
        name: of the file.
        lies: where it lies.
        writer: who writes it.
        reader: who reads it.
        version: its version, and what another one means.
        model: what writes and reads it: a model, or the columns of a table.
        rows: what a table has a row for; a model's docstring says what it is.
    """

    name: str
    lies: str
    writer: str
    reader: str
    version: str
    model: Any
    rows: str = ""


IN_FILE = "in `format`. Another number means that older programs cannot read it and refuse it."

PUBLISHED_FOLDER = f"`<id>/{files.RECORDS}/` in a published pack"
PUBLISHER = "`onionlab pack --published` (`analysis/measures/publishing.py`)"
OF_PUBLISHED = f"{PUBLISHED_FORMAT}, in the metadata of the table's schema, as `format`."

PUBLISHED_SECTION: tuple[str, str, tuple[Described, ...]] = (
    "A run in a published pack",
    "In place of the tables of streams, heartbeats and arrivals, in the folder of the records. "
    "[What it has and lacks](../how-to/publish-runs.md#a-published-pack). These tables are not "
    "compressed: the pack is. A tick is a quarter of a microsecond.",
    (
        Described(
            files.PUBLISHED,
            PUBLISHED_FOLDER,
            PUBLISHER,
            "`analysis/measures/published.py`, `onionlab compare`",
            f"{PUBLISHED_FORMAT}, {IN_FILE}",
            PublishedRun,
        ),
        Described(
            files.PUBLISHED_STREAMS,
            PUBLISHED_FOLDER,
            PUBLISHER,
            "`analysis/formats/published_streams.py`, `analysis/measures/run_data.py`",
            f"{OF_PUBLISHED} Where ticks would not give each value back exactly, the table has "
            f"these columns of `{files.STREAMS_TABLE}` instead: "
            f"{', '.join(f'`{column.name}`' for column in KEPT)}; and `{GAP.name}`.",
            CODED_STREAMS,
            "each stream that a client started, but for classes that are there for the load alone",
        ),
        Described(
            files.PUBLISHED_GOODPUT,
            PUBLISHED_FOLDER,
            PUBLISHER,
            "`analysis/measures/published.py`",
            OF_PUBLISHED,
            SUMS,
            "each class and each second",
        ),
        Described(
            files.PUBLISHED_PROGRESS,
            f"{PUBLISHED_FOLDER}, where clients have downloads side by side",
            PUBLISHER,
            "`analysis/measures/published.py`",
            OF_PUBLISHED,
            RECEIVED,
            "each such download and each time at which somebody asks",
        ),
    ),
)
