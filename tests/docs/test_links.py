"""Every link in the pages has a target, and every path named in pages or code exists."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from shipped import is_own_experiment

from .markdown import PAGES, REPOSITORY, Page

CODE = ("analysis", "configs", "experiments", "onionlab", "tests", "tools")
TEXTS = (".cfg", ".json", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ".j2")
PLACES = tuple(f"{place}/" for place in (*CODE, "docs", "tor-patches"))
# Files that readers write when they follow a page, and folders that a command generates.
OF_READERS = {
    *(f"experiments/{n}.yaml" for n in ("exhaustive", "claims/exhaustive", "foo", "small-window")),
    *("docs/reference/api/", "docs/site/"),
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_links_lead_somewhere(page: Page) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", page.prose):
        if "://" in target or target.startswith("mailto:"):
            continue
        place = os.path.normpath(Path(page.path).parent / target) if target else page.path
        assert place in PAGES or (REPOSITORY / place).exists(), target
        if anchor:
            assert anchor[1:] in PAGES[place].anchors, f"{target}{anchor}"


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_paths_exist(page: Page) -> None:
    for path in page.code:
        if not path.startswith(PLACES) or re.search(r"[<>*…\s{]|NAME|KEY|\.\.\.", path):
            continue
        path = path.partition(":")[0]
        assert path in OF_READERS or (REPOSITORY / path).exists(), path


def texts() -> list[Path]:
    files = [file for place in CODE for file in sorted((REPOSITORY / place).rglob("*"))]
    files += [REPOSITORY / "Makefile", *REPOSITORY.glob("*.toml"), *REPOSITORY.glob("*.in")]
    of_kind = [file for file in files if file.suffix in (*TEXTS, "", ".in") and file.is_file()]
    return [file for file in of_kind if not is_own_experiment(file)]


def test_pages_that_the_code_names_exist() -> None:
    for file in texts():
        path = file.relative_to(REPOSITORY).as_posix()
        if path.startswith("tests/docs/") or "/data/" in path:
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        for name in re.findall(r"(?<![\w./-])docs/[\w./-]+\.(?:md|patch|svg|xz)\b", text):
            assert (REPOSITORY / name).exists(), f"{path} names {name}"


def test_every_page_is_in_the_index() -> None:
    index = PAGES["docs/index.md"].text
    linked = set(re.findall(r"\]\(([^)#]+)", index))
    for path in PAGES:
        name = path.removeprefix("docs/")
        if path.startswith("docs/") and name != "index.md":
            assert name in linked, name
