"""The HTML pages in headless Chromium: layout, printing and accessibility."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import test_paper
from analysis_synthetic import known, write_store
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright
from runset_synthetic import make_set
from suite_figures import only_svg

from analysis.comparison.comparing import compare_sets
from analysis.figures.forest import write_forest
from analysis.pages import comparison, night, paper, report

CHROMIUM = shutil.which("chromium")
DESK = {"width": 1200, "height": 800}
PHONE = {"width": 390, "height": 844}
KINDS = ("report", "comparison", "night", "paper")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's sandbox needs user namespaces, which containers and root lack. Our own pages do
        # not need it.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one page of each kind, as kind -> file."""
    root = tmp_path_factory.mktemp("pages")
    with only_svg():  # The pages contain their figures as SVG.
        return dict(_written(root))


def _written(root: Path) -> Iterator[tuple[str, Path]]:
    store = write_store(root / "store")
    yield "report", report.build(store / "study.json", store, root / "report")
    worse = compare_sets(make_set(), make_set(effect=1.3, noise_seed=2), ("variant",))
    yield "comparison", comparison.write(worse, root / "comparison")
    yield "night", _night(worse, root / "night")
    runs = test_paper.write_paper_store(root / "runs")
    yield "paper", paper.build(test_paper.PAPER, runs, root / "paper").html


def _night(worse: Any, out: Path) -> Path:
    out.mkdir()
    result = night.NightResult("quick", worse, False, worse)
    forest = known(write_forest(result.compared, out / "forest"))
    of = night.Night(str(datetime(2026, 1, 1, tzinfo=UTC)), "0.1", 1.0, 365, 1.0, (result,))
    (out / "night.html").write_text(night.html(of, {"quick": forest}))
    return out / "night.html"


@pytest.fixture
def opened(request: pytest.FixtureRequest, browser: Browser, pages: dict[str, Path]) -> Any:
    """Return a function that opens a page of a kind. It passes options on to ``new_page``.

    The page must not load other files.
    """
    tabs = []

    def open_page(kind: str, **how: Any) -> Page:
        tab = browser.new_page(**{"viewport": DESK, **how})
        tabs.append(tab)
        loaded: list[str] = []
        tab.on("request", lambda one: loaded.append(one.url))
        tab.goto(pages[kind].as_uri())
        assert [url for url in loaded if not url.startswith("data:")] == [pages[kind].as_uri()]
        return tab

    yield open_page
    for tab in tabs:
        tab.close()


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_on_the_first_screen(opened: Any, kind: str) -> None:
    page = opened(kind)
    sentences = page.locator(".answer")
    assert sentences.count() > 0
    box = known(sentences.last.bounding_box())
    assert box["y"] + box["height"] <= DESK["height"]
    # The beginning of the plot is visible, too.
    box = known(page.locator("figure").first.bounding_box())
    assert box["y"] < DESK["height"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_does_not_scroll_sideways(opened: Any, kind: str) -> None:
    page = opened(kind, viewport=PHONE)
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(opened: Any, kind: str, scheme: str) -> None:
    page = opened(kind, color_scheme=scheme)
    unfold(page)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_dark_screen_gets_a_dark_page(opened: Any) -> None:
    def paper_of(scheme: str) -> str:
        page = opened("report", color_scheme=scheme)
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert paper_of("light") == "rgb(255, 255, 255)"
    assert paper_of("dark") == "rgb(22, 24, 27)"


def test_a_printed_report_is_complete(opened: Any) -> None:
    page = opened("report")
    page.emulate_media(media="print")
    folded = page.locator("details:not([open]) table").first
    assert folded.evaluate("one => one.checkVisibility({contentVisibilityAuto: true})")
    assert not page.locator("nav").first.is_visible()
    torn = page.evaluate(
        "[...document.querySelectorAll('figure, tbody, tr')]"
        ".filter((one) => getComputedStyle(one).breakInside !== 'avoid').length"
    )
    assert torn == 0
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_rows_are_found_and_sorted(opened: Any) -> None:
    page = opened("report")
    section = page.locator("#tables")
    rows = section.locator("[data-row]")
    before = rows.count()
    section.locator("input").fill("web ttfb_p50")
    shown = section.locator("[data-row]:not([hidden])")
    assert 0 < shown.count() < before
    # Matching rows are shown even if their section was collapsed.
    assert shown.first.is_visible()
    assert all("ttfb_p50" in (one.get_attribute("data-row") or "") for one in shown.all())
    section.locator("input").fill("")
    section.locator("select").select_option("size")
    table = section.locator("table").filter(has=page.locator("[data-row]")).first
    sizes = [
        float(one.get_attribute("data-size") or 0) for one in table.locator("[data-row]").all()
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1
    section.locator("select").select_option("")
    assert rows.count() == before


def test_tables_need_no_scripts(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["report"].as_uri())
    assert page.locator("#effects table").first.is_visible()
    assert not page.locator(".tools").first.is_visible()
    context.close()
