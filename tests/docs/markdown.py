"""Read the repository's Markdown pages."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).resolve().parents[2]
COMMANDS = "docs/reference/commands.md"
MADE_FOR_THE_SITE = ("docs/site/", "docs/reference/api/", COMMANDS)
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


@dataclass(frozen=True)
class Fence:
    """A fenced block of code, and the number of the line with its opening fence."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page: its path in the repository, and its text."""

    path: str
    text: str

    @property
    def file(self) -> Path:
        return REPOSITORY / self.path

    @property
    def fences(self) -> list[Fence]:
        pattern = re.compile(r"^ *```(\S*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
        return [
            Fence(found[1], found[2], self.text[: found.start()].count("\n") + 1)
            for found in pattern.finditer(self.text)
        ]

    @property
    def prose(self) -> str:
        """Return the text without code blocks, whether fenced or indented by four spaces."""
        text = re.sub(r"^ *```.*?^ *```$", "", self.text, flags=re.MULTILINE | re.DOTALL)
        return re.sub(r"(?<=\n\n)(?: {4}[^\n]*\n)+", "\n", text)

    @property
    def code(self) -> list[str]:
        """Return the texts between single backticks."""
        return re.findall(r"`([^`\n]+)`", self.prose)

    @property
    def anchors(self) -> set[str]:
        """Return the anchors of headings, as GitHub, GitLab and the built site generate them."""
        titles = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {slug(re.sub(r"`|\[([^]]*)\]\([^)]*\)", r"\1", title)) for title in titles}


def slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def pages() -> Iterator[Page]:
    files = [
        *(REPOSITORY / name for name in OUTSIDE),
        *REPOSITORY.glob("*-patches/README.md"),
        *sorted((REPOSITORY / "docs").rglob("*.md")),
    ]
    for file in files:
        path = file.relative_to(REPOSITORY).as_posix()
        if not path.startswith(MADE_FOR_THE_SITE):
            yield Page(path, file.read_text(encoding="utf-8"))


def load(path: str) -> ModuleType:
    """Import a script of the repository and return it as a module."""
    spec = importlib.util.spec_from_file_location("script", REPOSITORY / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commands_page() -> Page:
    """Return the page of commands, which `make docs` generates and git ignores."""
    return Page(COMMANDS, load("docs/made.py").commands_page(REPOSITORY))


PAGES = {page.path: page for page in (*pages(), commands_page())}
