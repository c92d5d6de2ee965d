"""The pages of results contain the tables computed from the published runs."""

from __future__ import annotations

import re

import pytest

from .markdown import REPOSITORY, load

RESULTS = load("docs/results.py")
BLOCKS = [(page, name) for page, blocks in RESULTS.PAGES.items() for name in blocks]


def plain_text(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("page", "name"), BLOCKS)
def test_a_block_has_the_published_results(page: str, name: str) -> None:
    block = RESULTS.PAGES[page][name]()
    current = RESULTS.replace_block(plain_text(page), name, block)
    assert current == plain_text(page), "run `.venv/bin/python docs/results.py`"


def test_a_block_is_replaced_between_its_marks() -> None:
    page = "<!-- results: a -->\n<!-- end -->\n<!-- results: b -->\nold\n<!-- end -->\n"
    filled = "<!-- results: a -->\nnew\n<!-- end -->\n<!-- results: b -->\nold\n<!-- end -->\n"
    assert RESULTS.replace_block(page, "a", "new") == filled
    with pytest.raises(ValueError, match="0 blocks are named 'load'"):
        RESULTS.replace_block(page, "load", "")


@pytest.mark.parametrize("page", ["docs/explanation/swrr-answers.md", "docs/explanation/arti.md"])
def test_each_effect_in_the_text_is_in_a_block_of_results(page: str) -> None:
    """An effect is a number with its interval. It may be in a block of any page."""
    marked = re.compile(r"<!-- results: .*?<!-- end -->", re.DOTALL)
    blocks = " ".join(block for name in RESULTS.PAGES for block in marked.findall(plain_text(name)))
    text = " ".join(marked.sub("", plain_text(page)).split())
    effects = re.findall(r"[\u00d7+\u2212]\d[\d.]*(?: points)? \[[^]]*\]", text)
    assert [effect for effect in effects if effect not in blocks] == []
