"""Pages that load nothing, made from templates; and files that appear together or not at all."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")


def render_page(template: str, values: Mapping[str, Any], **filters: Callable[..., str]) -> str:
    """A template of this package filled in; a name that it misses is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(template).render(values)


def image_uri(svg: bytes) -> Markup:
    """A drawing as an address that holds it."""
    return Markup("data:image/svg+xml;base64,") + base64.b64encode(svg).decode("ascii")


@contextmanager
def replaced(out: Path, names: Iterable[str]) -> Iterator[Path]:
    """A scratch directory whose entries replace those of the same names in ``out`` at the end."""
    with tempfile.TemporaryDirectory(prefix=".report-", dir=out) as name:
        scratch = Path(name)
        yield scratch
        for entry in names:
            old = out / entry
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            (scratch / entry).replace(old)
