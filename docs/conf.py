"""Sphinx's configuration: `make docs` builds the site into build/docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE.parent),
    str(HERE),
]  # so that the packages of this checkout, and made.py in this folder, can be imported

from made import fill_tables, site_links, write_api_pages, write_outside_pages, write_pages  # noqa: E402

import onionlab  # noqa: E402

project = "onionlab"
author = "The onionlab contributors"
project_copyright = author
release = version = onionlab.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["runs"]

# The table of contents lists only headings. With all 1,500 documented names, it would make every
# page large.
toc_object_entries = False

# This theme loads nothing from other hosts, so the site can be read from a folder while offline.
html_theme = "furo"
html_title = f"onionlab {release}"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["site.css"]
html_css_files = ["site.css"]

# Pages have headings of up to four levels, and links can refer to all of them.
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
# Show the section "Attributes" of a docstring as a plain list, because autodoc documents each field
# once more.
napoleon_use_ivar = True
napoleon_attr_annotations = False
autodoc_type_aliases = {name: name for name in ("Floats", "Ints", "Bools")}

# Do not warn of ambiguous names: several packages have a class named `Variant`. A docstring that
# mentions `Variant` means the class of its own package.
suppress_warnings = ["ref.python"]


# Docstrings are plain text, except for ``literals``, :roles:`of Sphinx` and blocks after a `::`.
# Outside of these, characters that would mark emphasis, a substitution or a link are escaped.
LITERAL = re.compile(r"(``.*?``|`[^`]*`)")
MARKUP = re.compile(r"\*|\||(?<=\w)_(?!\w)")


class QuickPythonDomain(PythonDomain):
    """A faster version of Sphinx's Python domain, which finds the same objects.

    Sphinx compares a name with the names of all documented objects. This class skips the comparison
    if a name, such as `str`, is not the last part of any documented name.
    """

    _last_parts: tuple[int, frozenset[str]] = (0, frozenset())

    def find_obj(self, env: Any, modname: str, classname: str, name: str, *how: Any) -> Any:
        if self._last_parts[0] != len(self.objects):
            parts = frozenset(one.rpartition(".")[2] for one in self.objects)
            self._last_parts = len(self.objects), parts
        if name.removesuffix("()").rpartition(".")[2] not in self._last_parts[1]:
            return []
        return super().find_obj(env, modname, classname, name, *how)


def setup(app: Sphinx) -> None:
    """Connect the functions below to Sphinx's events."""
    app.add_domain(QuickPythonDomain, override=True)
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _complete_page)
    app.connect("autodoc-process-docstring", _take_as_text, priority=100)
    app.connect("autodoc-skip-member", _skip_parametrized)


def _skip_parametrized(
    app: Sphinx, what: str, name: str, member: object, skip: bool, options: object
) -> bool | None:
    """Skip the classes that pydantic adds to a module for each use of a generic model."""
    return True if "[" in name else None


def _write_pages(app: Sphinx) -> None:
    write_pages()
    write_api_pages(HERE / "reference" / "api")
    write_outside_pages(HERE / "site")


def _complete_page(app: Sphinx, name: str, source: list[str]) -> None:
    page = HERE / f"{name}.md"
    if page.is_file():
        source[0] = site_links(fill_tables(source[0]), page, page)


def _take_as_text(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    block = False
    taken: list[str] = []
    for line in lines:
        if what == "module" and not block and line.startswith("    ") and not taken[-1]:
            taken += ["::", ""]  # an indented block in a module's docstring is literal text
            block = True
        block = line.endswith("::") or (block and (not line or line.startswith(" ")))
        parts = LITERAL.split(line)
        parts[::2] = [MARKUP.sub(r"\\\g<0>", part) for part in parts[::2]]
        taken.append(line if block else "".join(parts))
    lines[:] = taken
