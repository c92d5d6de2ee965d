"""What the HTML pages have in common: templates, style sheet, and that they appear whole."""

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
    """Templates by name; a name that a template does not get is an error, not an empty string."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
    )
    made.filters["plain"] = plain
    return made


def json_text(value: object) -> str:
    """A JSON value for a block of code."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def plain(value: object) -> str:
    """A JSON value for a table."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str | int | float) for v in value):
        return ", ".join(map(str, value))
    return json_text(value)


def write_answer(folder: Path, sentences: Iterable[str]) -> None:
    """The sentences at the top of a page as answer.txt beside it, for terminals."""
    (folder / files.ANSWER).write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")


def image_uri(svg: bytes) -> Markup:
    """A drawing as an address that holds it."""
    return Markup("data:image/svg+xml;base64,") + base64.b64encode(svg).decode("ascii")


@contextmanager
def replaced(out: Path, names: Iterable[str]) -> Iterator[Path]:
    """A scratch directory whose entries replace those of the same names in ``out`` at the end."""
    with scratch_folder(out, ".report-") as scratch:
        yield scratch
        for entry in names:
            old = out / entry
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            put_in_place(scratch / entry, old)
