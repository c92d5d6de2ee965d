"""What the HTML pages have in common: the template engine and the style sheet."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

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
    """A JSON value for a table's cell."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str | int | float) for v in value):
        return ", ".join(map(str, value))
    return json_text(value)
