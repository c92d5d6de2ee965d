"""libtorrent's source: Debian's source package through apt, or a local tarball.

Only the upstream tarball (``libtorrent-rasterbar_VERSION.orig.tar.*``) is built; Debian's packaging
is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from onionlab.errors import UserError
from onionlab.programs.apt import fetch_source_package
from onionlab.programs.building import unpack_tarball
from onionlab.programs.sources import Program, Source, kept_source, own_source

PACKAGE = "libtorrent-rasterbar"
ENVIRONMENT_VARIABLE = "LIBTORRENT_SOURCE"
WAY_OUT = (
    "To build from a source of your own, name a release tarball: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/libtorrent-rasterbar-2.0.x.tar.gz "
    "(releases: https://github.com/arvidn/libtorrent/releases)."
)


LIBTORRENT = Program(name="libtorrent", variable=ENVIRONMENT_VARIABLE, takes=WAY_OUT)


def obtain_source(directory: Path, named: str | None, *, say: Callable[[str], None]) -> Source:
    """The source, fetched when it is not there yet.

    Args:
        directory: Where the fetched one is kept (``build/libtorrent``).
        named: A tarball; None or empty for Debian's source package.
        say: Receives a line for whatever takes time.

    Raises:
        UserError: The source cannot be fetched, or there is no such file.
    """
    if named:
        return own_source(LIBTORRENT, named)
    cache = directory / "source"
    kept = kept_source(LIBTORRENT, cache, say)
    if kept is not None:
        return kept
    tarball, facts = fetch_source_package(cache, PACKAGE, LIBTORRENT.name, say, way_out=WAY_OUT)
    return Source("debian", tarball, facts["version"], facts["sha256"], facts)


def unpack_source(source: Source, destination: Path) -> str:
    """Lay the source out in ``destination`` (which must not exist); returns its version.

    Raises:
        UserError: The tarball is cut or damaged, or holds something else than libtorrent 2.
    """
    destination.mkdir(parents=True)
    unpack_tarball(source.path, destination, hint=WAY_OUT)
    return libtorrent_version(destination, source.path)


def libtorrent_version(tree: Path, origin: Path) -> str:
    """The version according to its header.

    Raises:
        UserError: ``origin``, where the tree comes from, is not libtorrent's source.
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
        raise UserError(f"{origin} is not libtorrent's source: it has no version.hpp", WAY_OUT)
    return ".".join(str(number) for number in numbers)
