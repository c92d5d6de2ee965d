"""Tor's source: Debian's source package through apt, or a local tarball or tree.

Only the upstream tarball (``tor_VERSION.orig.tar.*``) is built. Debian's packaging is left out: it
adds nothing to the program that an experiment runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.debian import fetch_source_package, read_kept
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.trees import Configured, copy_files, files_sha256, git_output, tree_files
from onionlab.workshop import file_sha256, unpack_tarball

__all__ = ["TorSource", "obtain_source", "unpack_source"]

PACKAGE = "tor"
CONFIGURED = Configured("config.status", "make distclean")
ENVIRONMENT_VARIABLE = "TOR_SOURCE"
WAY_OUT = (
    "To build from a source of your own, name a release tarball or an unpacked tree: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/tor-0.4.9.x.tar.gz (releases: https://dist.torproject.org/)."
)


@dataclass(frozen=True)
class TorSource:
    """One Tor source, unmistakably.

    Attributes:
        kind: ``debian`` (source package), ``tarball`` or ``tree``.
        path: The tarball, or the tree's directory.
        version: Tor's version, e.g. ``0.4.9.11``; None until it is unpacked, for a local tarball.
        sha256: Of the tarball's bytes; for a tree of the sorted list of its files (path, whether
            executable, content).
        facts: What a manifest should record of it; JSON.
    """

    kind: str
    path: Path
    version: str | None
    sha256: str
    facts: dict[str, Any]


def obtain_source(
    root: Path,
    tor_source: str | None = None,
    *,
    update: bool = False,
    say: Callable[[str], None] = print,
) -> TorSource:
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
        return _local_source(Path(tor_source).expanduser())
    cache = build_directory(root) / "tor" / "source"
    if not update:
        cached = _cached_source(cache, say)
        if cached is not None:
            return cached
    return _fetch_debian_source(cache, say)


def source_at_hand(root: Path, tor_source: str | None = None) -> TorSource | None:
    """The source that :func:`obtain_source` would give, if it need not be fetched.

    Raises:
        UserError: ``tor_source`` is not Tor's source.
    """
    if tor_source:
        return _local_source(Path(tor_source).expanduser())
    return _cached_source(build_directory(root) / "tor" / "source", lambda _: None)


def unpack_source(source: TorSource, destination: Path) -> str:
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


# A local tarball or tree


def _local_source(path: Path) -> TorSource:
    if path.is_dir():
        version = tor_version(path, path)
        sha256 = files_sha256(path, tree_files(path, CONFIGURED))
        facts: dict[str, Any] = {"kind": "tree", "version": version, "sha256": sha256}
        commit = git_output(path, "describe", "--always", "--dirty", "--abbrev=12")
        if commit is not None:
            facts["commit"] = commit.strip()
        return TorSource("tree", path.resolve(), version, sha256, facts)
    if not path.is_file():
        raise UserError(
            f"{ENVIRONMENT_VARIABLE}: there is no {path}",
            "It takes a release tarball or an unpacked tree; without it Debian's source package "
            "is fetched with apt.",
        )
    sha256 = file_sha256(path)
    facts = {"kind": "tarball", "file": path.name, "sha256": sha256}
    return TorSource("tarball", path.resolve(), None, sha256, facts)


# Debian's source package


def _cached_source(cache: Path, say: Callable[[str], None]) -> TorSource | None:
    kept = read_kept(cache, "Tor's source", say)
    if kept is None:
        return None
    tarball, facts = kept
    return TorSource("debian", tarball, facts["version"], facts["sha256"], facts)


def _fetch_debian_source(cache: Path, say: Callable[[str], None]) -> TorSource:
    tarball, facts = fetch_source_package(cache, PACKAGE, "Tor", say, way_out=WAY_OUT)
    return TorSource("debian", tarball, facts["version"], facts["sha256"], facts)
