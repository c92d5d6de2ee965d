"""Generate documentation pages from the program's commands, variants and packages.

``make docs`` writes the pages before it builds the site. Git ignores the pages about commands and
packages.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import analysis
import onionlab
from onionlab.cli import STATUSES, build_parser, command_modules, load_command, own_statuses
from onionlab.experiment.reference import describe, key_table
from onionlab.programs.libtorrent.variants import load_peer_variants
from onionlab.programs.tor.variants import load_registry

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
NOTE = "<!-- made by `make docs`: do not edit -->"


def commands_page(root: Path = ROOT) -> str:
    """Return the text of docs/reference/commands.md: make's targets, and commands with options."""
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*? ## (.*)$", makefile, re.MULTILINE)
    variables = re.findall(r"^#   ([A-Z_]+) +(.*)$", makefile, re.MULTILINE)
    parts = [
        "# Commands",
        NOTE,
        _paragraph(
            "`make` sets up what is missing and then calls the program, `.venv/bin/onionlab`. "
            "The option `--help` of a command explains it: `.venv/bin/onionlab run --help`."
        ),
        "## Targets of make",
        "Variables follow the target: `make experiment NAME=quick NETWORKS=3`.",
        _table(("Target", "What it does"), ((f"`{name}`", what) for name, what in targets)),
        _table(("Variable", "What it is"), ((f"`{name}`", what) for name, what in variables)),
        "Other variables are shown with their targets and count on the command line only.",
        "## Exit status",
        _paragraph(
            "The exit status of some commands is an answer. It does not change if the reader of "
            "the output closes it early. If standard output cannot be written for another reason, "
            "such as a full disk, the status is 2."
        ),
        _table(
            ("Status", "Meaning"),
            (
                *((str(number), meaning) for number, meaning in STATUSES.items()),
                ("137, 143", "killed: by SIGKILL, or by SIGTERM while the program still started"),
            ),
        ),
        _paragraph("The exit status of these commands is an answer:"),
        _table(("Command", "Status", "Meaning"), _statuses()),
        _paragraph(
            "`make` ends with 2 for every status but 0, and prints the status, its meaning and the "
            "command that ends with it. Scripts call that command, such as "
            "`.venv/bin/onionlab compare quick:ewma quick:rr` "
            "([in a script](../how-to/compare.md#in-a-script))."
        ),
        "## Commands of the program",
    ]
    for verb in command_modules():
        parser = build_parser(verb)
        parts += _verb(verb, _subparser(parser, verb))
    return "\n\n".join(parts) + "\n"


def _statuses() -> Iterator[tuple[str, str, str]]:
    """Yield (command, exit status, meaning) for each exit status that a command itself defines."""
    for verb, module in command_modules().items():
        for number, meaning in sorted(own_statuses(load_command(module)).items()):
            yield f"`{verb}`", str(int(number)), meaning


def _subparser(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    (verbs,) = (
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    found = verbs[verb]
    assert isinstance(found, argparse.ArgumentParser)
    return found


def _verb(verb: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"### onionlab {verb}"
    yield _sentence(parser.description or "")
    rows = [
        (_spelling(action), _help(action))
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    ]
    if rows:
        yield _table(("Argument", "Meaning"), rows)


def _spelling(action: argparse.Action) -> str:
    """Return an argument as a usage message shows it."""
    value = "" if action.nargs == 0 else str(action.metavar or _choices(action) or action.dest)
    if not action.option_strings:
        value = value if action.nargs != "?" else f"[{value}]"
        return f"`{value} ...`" if action.nargs in ("*", "+") else f"`{value}`"
    value = value.upper() if value == action.dest else value
    name = next(name for name in action.option_strings if name.startswith("--"))
    return f"`{name} {value}".rstrip() + "`"


def _choices(action: argparse.Action) -> str:
    return ",".join(map(str, action.choices)) if action.choices else ""


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": "onionlab"}


def variants_page(root: Path = ROOT) -> str:
    """Return the text of docs/reference/variants.md: the variants of Tor and of libtorrent."""
    registry = load_registry(root)
    series = (
        (f"`{name}`", entry.description, f"`{entry.proof_from}`")
        for name, entry in registry.series.items()
    )
    variants = (
        (
            f"`{variant.name}`",
            variant.label,
            variant.description,
            f"`{variant.series}`" if variant.series else "none",
            _lines(variant.torrc),
        )
        for variant in registry.variants.values()
    )
    libtorrent = (
        (f"`{variant.name}`", variant.label, variant.description)
        for variant in load_peer_variants(root).values()
    )
    parts = (
        "# Variants",
        NOTE,
        _paragraph(
            "What an experiment can compare. `make list` shows the same; "
            "[add a variant](../how-to/add-a-variant.md) says how one is added."
        ),
        "## Of Tor",
        _paragraph(
            "A variant is a build of Tor (a series of patches, or none) with options in torrc. The "
            "file `tor-patches/variants.yaml` explains its keys."
        ),
        _table(("Name", "In figures", "What it is", "Series", "torrc"), variants),
        _paragraph(
            "A run counts only if its relays logged the variant's proof: every relay, or at least "
            "one exit where relays without streams have nothing to log."
        ),
        _table(("Series", "What it adds", "Proof from"), series),
        "## Of libtorrent",
        _paragraph(
            "For experiments of kind `peers` and for clients that fetch in pieces, from "
            "`libtorrent-patches/variants.yaml`."
        ),
        _table(("Name", "In figures", "What it is"), libtorrent),
    )
    return "\n\n".join(parts) + "\n"


def _lines(torrc: Mapping[str, str]) -> str:
    return "<br>".join(f"`{name} {value}`" for name, value in torrc.items())


def fill_tables(page: str) -> str:
    """Return a Markdown page in which a table replaces each ``<!-- table of module:name -->``.

    ``module:name`` is the model of a file or the columns of a Parquet file. The table lists the
    keys or the columns.
    """

    def table(found: re.Match[str]) -> str:
        value = pkgutil.resolve_name(found[1])
        if not isinstance(value, tuple):
            return key_table(value).rstrip("\n")
        rows = (
            (
                f"`{column.name}`",
                re.sub(r"dictionary<.*>", "string", str(column.type)).replace("<", "&lt;"),
                describe(column.meaning or column.description),
            )
            for column in value
        )
        return _table(("Column", "Type", "Meaning"), rows)

    return re.sub(r"^<!-- table of (\S+) -->$", table, page, flags=re.MULTILINE)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


PAGES: Mapping[str, Callable[[Path], str]] = {
    "docs/reference/commands.md": commands_page,
    "docs/reference/variants.md": variants_page,
}
"""Path in the checkout -> function that returns the page's text."""


OUTSIDE: Mapping[str, str] = {
    "README.md": "docs/site/readme.md",
    "CONTRIBUTING.md": "docs/site/contributing.md",
    "CHANGELOG.md": "docs/site/changelog.md",
    "tor-patches/README.md": "docs/site/tor-patches.md",
    "libtorrent-patches/README.md": "docs/site/libtorrent-patches.md",
}
"""Page outside of docs/ -> path of its copy for the site."""


def write_pages() -> None:
    """Write the generated pages that are not up to date."""
    for path, make in PAGES.items():
        page, text = ROOT / path, make(ROOT)
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def write_outside_pages(folder: Path) -> None:
    """Write copies of the pages outside of docs/ (``OUTSIDE``) for the site.

    Args:
        folder: The folder docs/site, which is replaced. Git ignores it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        place = ROOT / page
        place.write_text(site_links(text, ROOT / name, place), encoding="utf-8")


def site_links(text: str, written_at: Path, shown_at: Path) -> str:
    """Return Markdown with relative links that work on the site.

    Args:
        text: the page.
        written_at: the page's file, to which its links are relative.
        shown_at: the file that the site shows, to which the returned links are relative.
    """

    def link(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = os.path.relpath(os.path.normpath(written_at.parent / target), ROOT)
        place = os.path.relpath(ROOT / OUTSIDE.get(path, path), shown_at.parent)
        return f"]({place}{anchor})"

    return re.sub(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def write_api_pages(folder: Path) -> None:
    """Write a page for each subpackage of analysis and onionlab, and an index of these pages.

    Args:
        folder: The folder of the pages, which is replaced. Git ignores it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subpackages = [
        subpackage
        for package in (analysis, onionlab)
        for subpackage in _subpackages(package.__name__)
    ]
    for subpackage in subpackages:
        (folder / f"{subpackage}.rst").write_text(_api_page(subpackage), encoding="utf-8")
    index = "API\n===\n\nA page for each subpackage, from the docstrings.\n\n.. toctree::\n"
    index += "   :maxdepth: 1\n\n" + "".join(f"   {subpackage}\n" for subpackage in subpackages)
    (folder / "index.rst").write_text(index, encoding="utf-8")


def _subpackages(package: str) -> list[str]:
    paths = {"analysis": analysis.__path__, "onionlab": onionlab.__path__}[package]
    names = sorted(info.name for info in pkgutil.iter_modules(paths))
    return [f"{package}.{name}" for name in names if not name.startswith("_")]


def _api_page(subpackage: str) -> str:
    parts = []
    for name, is_package in _modules(subpackage):
        title = name if name == subpackage else name.removeprefix(f"{subpackage}.")
        underline = "=" if name == subpackage else "-"
        # Names that a package re-exports are documented with the module that defines them.
        members = "   :no-members:\n" if is_package else ""
        parts.append(f"{title}\n{underline * len(title)}\n\n.. automodule:: {name}\n{members}")
    return "\n".join(parts)


def _modules(name: str) -> Iterator[tuple[str, bool]]:
    """Yield (module, whether it is a package) for a module and for all modules below it."""
    path = ROOT.joinpath(*name.split("."))
    yield name, path.is_dir()
    if path.is_dir():
        for info in sorted(pkgutil.iter_modules([str(path)]), key=lambda info: info.name):
            if not info.name.startswith("_"):
                yield from _modules(f"{name}.{info.name}")
