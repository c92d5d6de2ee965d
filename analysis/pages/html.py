"""Common parts of the HTML pages: templates and their filters, and the replacement of files."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.figures.writing import WrittenFigure
from analysis.formats import files
from analysis.formats.durable import put_in_place
from analysis.formats.scratch import scratch_folder
from analysis.inference.intervals import CONFIDENCE
from analysis.judgement.claims.claim import Part
from analysis.judgement.compared import size_in_margins
from analysis.judgement.judging import Judgement
from analysis.judgement.verdicts import Grade
from analysis.pages.claims import part_note
from analysis.pages.numbers import format_effect, format_interval, format_number, readable_unit
from analysis.pages.summary import SummaryRow

TEMPLATES = Path(__file__).with_name("templates")

RANKS = ("worse", "better", *(grade.value for grade in Grade), "")
"""Verdicts in the sort order of tables."""


def render(template: str, **values: object) -> str:
    """Return the page of a template with these values; an undefined name is an error."""
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    """Return the templates. They are compiled only once: compiling takes longer than rendering."""
    templates = Environment(
        autoescape=lambda name: name is not None and name.endswith((".html.j2", ".xml.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
    )
    # A filter has the name of its function, without a leading underscore.
    templates.filters |= {
        "format_number": format_number,
        "format_interval": format_interval,
        "effect": _effect,
        "percent": _percent,
        "unit": lambda unit: readable_unit(unit)[1],
        "plain": _plain,
        "image_uri": _image_uri,
        "part_note": part_note,
        "size": _size,
        "rank": _rank,
    }
    templates.globals["confidence"] = round(100 * CONFIDENCE)
    return templates


def _effect(found: SummaryRow | Part) -> tuple[str, str]:
    """Return the effect of a row of a report, or of a part of a claim, and its interval."""
    return format_effect(found.effect, found.scale, found.metric.unit)


def _percent(share: float, digits: int = 0) -> str:
    return format_number(None) if np.isnan(share) else f"{share:.{digits}%}"


def _plain(value: object) -> str:
    """Format a JSON value for a table."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str | int | float) for v in value):
        return ", ".join(map(str, value))
    return json_text(value)


def _image_uri(figure: WrittenFigure) -> Markup:
    """Return a drawing as a data URI."""
    return Markup("data:image/svg+xml;base64,") + base64.b64encode(figure.svg).decode("ascii")


def _size(judgement: Judgement | None) -> float:
    """Return the number by which tables are sorted: the effect as a multiple of its margin."""
    return 0.0 if judgement is None else round(size_in_margins(judgement.verdict), 6)


def _rank(judgement: Judgement | None) -> int:
    return len(RANKS) if judgement is None else RANKS.index(judgement.verdict.word)


def json_text(value: object) -> str:
    """Format a JSON value for a block of code or a file."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


def write_answer(folder: Path, sentences: Iterable[str]) -> None:
    """Write answer.txt, which has the sentences at the top of the page, for terminals."""
    (folder / files.ANSWER).write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")


@contextmanager
def replaced(out: Path) -> Iterator[Path]:
    """Yield a scratch directory. At the end, move its entries to ``out``, and replace old entries.

    HTML pages are replaced last, so that they never refer to files of an earlier call.
    """
    with scratch_folder(out, ".report-") as scratch:
        yield scratch
        for entry in sorted(scratch.iterdir(), key=lambda path: (path.suffix == ".html", path)):
            old = out / entry.name
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            put_in_place(entry, old)
