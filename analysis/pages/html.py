"""Common parts of the HTML pages: templates, style sheet, and atomic replacement."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.formats import files
from analysis.formats.durable import put_in_place
from analysis.formats.scratch import scratch_folder

TEMPLATES = Path(__file__).with_name("templates")


def environment() -> Environment:
    """Return the template environment; an undefined name in a template is an error."""
    templates = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
    )
    templates.filters["plain"] = plain
    return templates


def json_text(value: object) -> str:
    """Format a JSON value for a block of code."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def plain(value: object) -> str:
    """Format a JSON value for a table."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str | int | float) for v in value):
        return ", ".join(map(str, value))
    return json_text(value)


def write_answer(folder: Path, sentences: Iterable[str]) -> None:
    """Write the sentences at the top of a page as answer.txt, for terminals."""
    (folder / files.ANSWER).write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")


def image_uri(svg: bytes) -> Markup:
    """Return a drawing as a data URI."""
    return Markup("data:image/svg+xml;base64,") + base64.b64encode(svg).decode("ascii")


@contextmanager
def replaced(out: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield a scratch directory whose entries replace entries of the same names in ``out``."""
    with scratch_folder(out, ".report-") as scratch:
        yield scratch
        for entry in names:
            old = out / entry
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            put_in_place(scratch / entry, old)
