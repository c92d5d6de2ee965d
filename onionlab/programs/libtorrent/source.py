"""libtorrent's source: Debian's source package through apt, or a local tarball.

Only the upstream tarball (``libtorrent-rasterbar_VERSION.orig.tar.*``) is built; Debian's packaging
is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from onionlab.errors import UserError
from onionlab.programs.apt import fetch_source_package
from onionlab.programs.building import unpack_tarball
from onionlab.programs.sources import Program, Source, fetched_source, user_source

PACKAGE = "libtorrent-rasterbar"
ENVIRONMENT_VARIABLE = "LIBTORRENT_SOURCE"
SOURCE_HINT = (
    "To build from your own source, specify a release tarball: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/libtorrent-rasterbar-2.0.x.tar.gz "
    "(releases: https://github.com/arvidn/libtorrent/releases)."
)


LIBTORRENT = Program(name="libtorrent", variable=ENVIRONMENT_VARIABLE, accepts=SOURCE_HINT)


def obtain_source(directory: Path, named: str | None, *, say: Callable[[str], None]) -> Source:
    """Return the source; fetch it first if necessary.

    Args:
        directory: The parent of the fetched source (``build/libtorrent``).
        named: A tarball; None or empty for Debian's source package.
        say: Receives progress messages.

    Raises:
        UserError: The source cannot be fetched, or the file does not exist.
    """
    if named:
        return user_source(LIBTORRENT, named)
    cache = directory / "source"
    kept = fetched_source(LIBTORRENT, cache, say)
    if kept is not None:
        return kept
    tarball, facts = fetch_source_package(cache, PACKAGE, LIBTORRENT.name, say, hint=SOURCE_HINT)
    return Source("debian", tarball, facts["version"], facts["sha256"], facts)


def unpack_source(source: Source, destination: Path) -> str:
    """Unpack the source to ``destination``, which must not exist. Return its version.

    Raises:
        UserError: The tarball is truncated or damaged, or is not libtorrent 2.
    """
    destination.mkdir(parents=True)
    unpack_tarball(source.path, destination, hint=SOURCE_HINT)
    return libtorrent_version(destination, source.path)


def libtorrent_version(tree: Path, origin: Path) -> str:
    """Return the version according to libtorrent's header.

    Raises:
        UserError: ``origin``, the source of the tree, is not libtorrent's source.
    """
    try:
        text = (tree / "include/libtorrent/version.hpp").read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    numbers = [
        match[1] if (match := re.search(rf"LIBTORRENT_VERSION_{part} (\d+)", text)) else None
        for part in ("MAJOR", "MINOR", "TINY")
    ]
    if None in numbers:
        raise UserError(f"{origin} is not libtorrent's source: it has no version.hpp", SOURCE_HINT)
    return ".".join(str(number) for number in numbers)
