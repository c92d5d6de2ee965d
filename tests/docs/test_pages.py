"""Pages that are generated from the program are current, and statements of other pages are true."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

import onionlab
from analysis.formats import files
from onionlab.programs.libtorrent.variants import load_peer_variants
from onionlab.programs.tor.variants import load_registry

from .markdown import PAGES, REPOSITORY, Page, load

LONGEST_LINE = 100


def test_the_page_of_variants_names_every_shipped_series_and_variant() -> None:
    made = load("docs/made.py").variants_page(REPOSITORY)
    registry, peers = load_registry(REPOSITORY), load_peer_variants(REPOSITORY)
    assert [name for name in (*registry.variants, *peers) if f"`{name}`" not in made] == []
    page = PAGES["docs/reference/variants.md"].text
    assert [name for name in registry.series if f"`{name}`" not in made + page] == []


def test_the_site_has_a_table_of_every_experiment_key() -> None:
    page = load("docs/made.py").fill_tables(PAGES["docs/reference/experiments.md"].text)
    assert "<!-- table" not in page
    assert "| `network.packet_loss` | fraction | `0 %` | Share of packets lost" in page
    assert '| `traffic.NAME.timeout` | time, or "none" | required | Time after' in page
    assert "| `network.relays.guard` | mapping, as `network.relays.exitguard` |" in page
    assert "full_count" not in page


def test_every_file_format_has_a_section_with_all_its_keys() -> None:
    page = PAGES["docs/reference/formats.md"].text
    names = {
        value
        for value in vars(files).values()
        if isinstance(value, str) and re.fullmatch(r"[a-z._-]+\.(json|jsonl|parquet|yaml)", value)
    }
    not_read_again = {files.CLAIMS_JSON}
    assert names - not_read_again == set(re.findall(r"^### (\S+)$", page, re.MULTILINE))
    filled = load("docs/made.py").fill_tables(page)
    rows = [line.split(" | ") for line in filled.splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row for row in rows if len(row[-1].rstrip(" |")) < 4] == []


def layers(package: str) -> list[set[str]]:
    """Return the layers of a package's modules, lowest first. `make lint` checks these layers."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = (
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == [package]
    )
    return [set(re.split(r"[ |:]+", layer.strip("() "))) for layer in reversed(found)]


@pytest.mark.parametrize("package", ["analysis", "onionlab"])
def test_the_documented_layers_match_the_checked_ones(package: str) -> None:
    page = PAGES["docs/architecture.md"].text
    section = page[page.index(f"## {package}:") :].split("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`[^|]*) \|", section, re.M)]
    assert [set(row) for row in rows] == layers(package)


def test_one_version_everywhere() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+?),", PAGES["CHANGELOG.md"].text, re.MULTILINE)
    assert newest is not None
    # The build reads the version from the same place as the program.
    attribute = settings["tool"]["setuptools"]["dynamic"]["version"]
    assert attribute == {"attr": "onionlab.__version__"}
    assert {citation["version"], newest[1]} == {onionlab.__version__}


def test_hooks_call_tools_of_the_environment() -> None:
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    for repository in config["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert (REPOSITORY / hook["entry"].split()[0]).exists(), hook["entry"]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_lines_are_short(page: Page) -> None:
    """Rows of tables and long links cannot be wrapped, so they may be longer."""
    for line in page.prose.splitlines():
        if line.startswith(("|", "![")) or not re.search(r"\S\s+\S", line[:LONGEST_LINE]):
            continue
        assert len(line) <= LONGEST_LINE, line
