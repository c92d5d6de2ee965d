"""libtorrent's source: Debian's source package through apt, or a local tarball.

Only the upstream tarball (``libtorrent-rasterbar_VERSION.orig.tar.*``) is built; Debian's packaging
is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.debian import fetch_source_package, read_kept
from onionlab.errors import UserError
from onionlab.workshop import file_sha256, unpack_tarball

__all__ = ["ENVIRONMENT_VARIABLE", "LibtorrentSource", "obtain_source", "unpack_source"]

PACKAGE = "libtorrent-rasterbar"
ENVIRONMENT_VARIABLE = "LIBTORRENT_SOURCE"
WAY_OUT = (
    "To build from a source of your own, name a release tarball: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/libtorrent-rasterbar-2.0.x.tar.gz "
    "(releases: https://github.com/arvidn/libtorrent/releases)."
)


@dataclass(frozen=True)
class LibtorrentSource:
    """One source of libtorrent, unmistakably.

    Attributes:
        path: The tarball.
        sha256: Of its bytes.
        facts: What a manifest should record of it; JSON.
    """

    path: Path
    sha256: str
    facts: dict[str, Any]


def obtain_source(
    directory: Path, named: str | None, *, say: Callable[[str], None]
) -> LibtorrentSource:
    """The source, fetched when it is not there yet.

    Args:
        directory: Where the fetched one is kept (``build/libtorrent``).
        named: A tarball; None or empty for Debian's source package.
        say: Receives a line for whatever takes time.

    Raises:
        UserError: The source cannot be fetched, or there is no such file.
    """
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise UserError(f"{ENVIRONMENT_VARIABLE}: there is no file {path}", WAY_OUT)
        sha256 = file_sha256(path)
        facts = {"kind": "tarball", "file": path.name, "sha256": sha256}
        return LibtorrentSource(path.resolve(), sha256, facts)
    cache = directory / "source"
    kept = read_kept(cache, "libtorrent's source", say)
    if kept is None:
        kept = fetch_source_package(cache, PACKAGE, "libtorrent", say, way_out=WAY_OUT)
    tarball, facts = kept
    return LibtorrentSource(tarball, facts["sha256"], facts)


def unpack_source(source: LibtorrentSource, destination: Path) -> str:
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
