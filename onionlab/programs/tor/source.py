"""Tor's source: Debian's source package through apt, or a local tarball or tree.

Only the upstream tarball (``tor_VERSION.orig.tar.*``) is built. Debian's packaging is not used,
because it adds nothing to the program that an experiment runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.apt import fetch_source_package
from onionlab.programs.building import unpack_tarball
from onionlab.programs.sources import Program, Source, fetched_source, user_source
from onionlab.programs.trees import Configured, copy_files, tree_files

PACKAGE = "tor"
CONFIGURED = Configured("config.status", "make distclean")
ENVIRONMENT_VARIABLE = "TOR_SOURCE"
SOURCE_HINT = (
    "To build from your own source, specify a release tarball or an unpacked tree: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/tor-0.4.9.x.tar.gz (releases: https://dist.torproject.org/)."
)


def obtain_source(
    root: Path,
    tor_source: str | None = None,
    *,
    update: bool = False,
    say: Callable[[str], None] = print,
) -> Source:
    """Return Tor's source; fetch it first if necessary.

    Args:
        root: The checkout.
        tor_source: A tarball or a tree; None or empty for Debian's source package.
        update: Fetch Debian's current version even if one was fetched before. By default the first
            version is kept, so that a later build results in the same program.
        say: Receives progress messages.

    Raises:
        UserError: The source cannot be fetched or is not Tor's.
    """
    if tor_source:
        return user_source(TOR, tor_source)
    cache = build_directory(root) / "tor" / "source"
    if not update:
        kept = fetched_source(TOR, cache, say)
        if kept is not None:
            return kept
    tarball, facts = fetch_source_package(cache, PACKAGE, TOR.name, say, hint=SOURCE_HINT)
    return Source("debian", tarball, facts["version"], facts["sha256"], facts)


def existing_source(root: Path, tor_source: str | None = None) -> Source | None:
    """Return the source of :func:`obtain_source` if it need not be fetched, else None.

    Raises:
        UserError: ``tor_source`` is not Tor's source.
    """
    if tor_source:
        return user_source(TOR, tor_source)
    return fetched_source(TOR, build_directory(root) / "tor" / "source", lambda _: None)


def unpack_source(source: Source, destination: Path) -> str:
    """Unpack the source to ``destination``, which must not exist. Return Tor's version.

    Raises:
        UserError: The tarball is truncated or damaged, or is not Tor's source.
    """
    destination.mkdir(parents=True)
    if source.kind == "tree":
        copy_files(source.path, tree_files(source.path, CONFIGURED), destination)
    else:
        unpack_tarball(source.path, destination, hint=SOURCE_HINT)
    return tor_version(destination, source.path)


def tor_version(tree: Path, origin: Path) -> str:
    """Return Tor's version according to ``configure.ac`` in ``tree``.

    Raises:
        UserError: ``origin``, the source of the tree, is not Tor's source.
    """
    try:
        text = (tree / "configure.ac").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^AC_INIT\(\[tor\],\s*\[([^\]]+)\]\)", text, re.MULTILINE)
    if match is None:
        raise UserError(
            f"{origin} is not Tor's source: no configure.ac that names tor", SOURCE_HINT
        )
    return match[1]


TOR = Program(
    name="Tor",
    variable=ENVIRONMENT_VARIABLE,
    accepts="It accepts a release tarball or an unpacked tree; by default Debian's source package "
    "is fetched with apt.",
    tree_version=tor_version,
    tree_files=lambda tree: tree_files(tree, CONFIGURED),
)
