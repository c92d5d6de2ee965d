"""Tor's source: Debian's source package through apt, or a local tarball or tree.

Only the upstream tarball (``tor_VERSION.orig.tar.*``) is built. Debian's packaging is left out: it
adds nothing to the program that an experiment runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.apt import fetch_source_package
from onionlab.programs.building import unpack_tarball
from onionlab.programs.sources import Program, Source, kept_source, own_source
from onionlab.programs.trees import Configured, copy_files, tree_files

PACKAGE = "tor"
CONFIGURED = Configured("config.status", "make distclean")
ENVIRONMENT_VARIABLE = "TOR_SOURCE"
WAY_OUT = (
    "To build from a source of your own, name a release tarball or an unpacked tree: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/tor-0.4.9.x.tar.gz (releases: https://dist.torproject.org/)."
)


def obtain_source(
    root: Path,
    tor_source: str | None = None,
    *,
    update: bool = False,
    say: Callable[[str], None] = print,
) -> Source:
    """Tor's source, fetched when it is not there yet.

    Args:
        root: The checkout.
        tor_source: A tarball or a tree; None or empty for Debian's source package.
        update: Ask Debian for its current version although one was fetched before. Without it the
            first version stays, so that a later build gives the same program.
        say: Receives a line for whatever takes time.

    Raises:
        UserError: The source cannot be fetched or is not Tor's.
    """
    if tor_source:
        return own_source(TOR, tor_source)
    cache = build_directory(root) / "tor" / "source"
    if not update:
        kept = kept_source(TOR, cache, say)
        if kept is not None:
            return kept
    tarball, facts = fetch_source_package(cache, PACKAGE, TOR.name, say, way_out=WAY_OUT)
    return Source("debian", tarball, facts["version"], facts["sha256"], facts)


def source_at_hand(root: Path, tor_source: str | None = None) -> Source | None:
    """The source that :func:`obtain_source` would give, if it need not be fetched.

    Raises:
        UserError: ``tor_source`` is not Tor's source.
    """
    if tor_source:
        return own_source(TOR, tor_source)
    return kept_source(TOR, build_directory(root) / "tor" / "source", lambda _: None)


def unpack_source(source: Source, destination: Path) -> str:
    """Lay the source out in ``destination`` (which must not exist); returns Tor's version.

    Raises:
        UserError: The tarball is cut or damaged, or holds something else than Tor.
    """
    destination.mkdir(parents=True)
    if source.kind == "tree":
        copy_files(source.path, tree_files(source.path, CONFIGURED), destination)
    else:
        unpack_tarball(source.path, destination, hint=WAY_OUT)
    return tor_version(destination, source.path)


def tor_version(tree: Path, origin: Path) -> str:
    """Tor's version according to ``configure.ac`` in ``tree``.

    Raises:
        UserError: ``origin``, where the tree comes from, is not Tor's source.
    """
    try:
        text = (tree / "configure.ac").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^AC_INIT\(\[tor\],\s*\[([^\]]+)\]\)", text, re.MULTILINE)
    if match is None:
        raise UserError(f"{origin} is not Tor's source: no configure.ac that names tor", WAY_OUT)
    return match[1]


TOR = Program(
    name="Tor",
    variable=ENVIRONMENT_VARIABLE,
    takes="It takes a release tarball or an unpacked tree; without it Debian's source package is "
    "fetched with apt.",
    tree_version=tor_version,
    tree_files=lambda tree: tree_files(tree, CONFIGURED),
)
