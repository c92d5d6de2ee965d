"""The source of a variant of Tor: a Debian version, a tarball, or a commit of a git repository."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from onionlab.errors import UserError
from onionlab.paths import is_file
from onionlab.programs.apt import fetch_source_package, read_fetched
from onionlab.programs.git import find_commit, read_committed
from onionlab.programs.sources import (
    Program,
    Source,
    fetched_source,
    find_source,
    obtain_source,
    read_if_present,
    user_source,
)
from onionlab.yamlfile.field_types import ExactText
from onionlab.yamlfile.model import Model, key

_FORMS = (("debian",), ("tarball", "sha256"), ("git", "ref"))
FORMS_TEXT = "{debian: VERSION}, {tarball: PATH, sha256: HASH} or {git: PATH, ref: REF}"

ID_LENGTH = 12
"""Number of digits of a commit or a hash in the names of builds. Names of equal length keep the
layout of a process's memory independent of the source."""

SOURCE_HINT = (
    "To build from your own source, specify a release tarball or an unpacked tree: "
    "TOR_SOURCE=/path/to/tor-0.4.9.x.tar.gz (releases: https://dist.torproject.org/)."
)


def tor_version(tree: Path, origin: Path) -> str:
    """Return Tor's version according to ``configure.ac`` in ``tree``.

    Raises UserError if the tree, which comes from ``origin``, is not Tor's source.
    """
    return parse_version(read_if_present(tree / "configure.ac"), str(origin))


def parse_version(configure_ac: str, origin: str, hint: str = SOURCE_HINT) -> str:
    """Return Tor's version according to the text of its configure.ac.

    Raises UserError if this is not the text of Tor's configure.ac.
    """
    match = re.search(r"^AC_INIT\(\[tor\],\s*\[([^\]]+)\]\)", configure_ac, re.MULTILINE)
    if match is None:
        raise UserError(f"{origin} is not Tor's source: no configure.ac that names tor", hint)
    return match[1]


TOR = Program(
    name="Tor",
    variable="TOR_SOURCE",
    hint=SOURCE_HINT,
    version=tor_version,
    package="tor",
    configured=("config.status", "make distclean"),
)


class TorSource(Model):
    """Where the source of a variant comes from, in one of the forms of ``FORMS_TEXT``."""

    debian: ExactText | None = key(None, description="version of Debian's source package")
    tarball: ExactText | None = key(None, description="path of a release")
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = key(
        None, description="SHA-256 of the tarball"
    )
    git: ExactText | None = key(None, description="path of a local git repository")
    ref: ExactText | None = key(None, description="branch, tag or commit of that repository")

    @property
    def is_complete(self) -> bool:
        """True if the keys that are set are exactly those of one form."""
        given = tuple(name for name in TorSource.model_fields if getattr(self, name) is not None)
        return given in _FORMS

    def seen_from(self, folder: Path) -> TorSource:
        """Return the same source with an absolute path; a relative path starts at ``folder``."""
        # Path.expanduser is not used because it raises an error for an unknown user.
        paths = {
            name: str(folder / os.path.expanduser(path))  # noqa: PTH111
            for name in ("tarball", "git")
            if (path := getattr(self, name)) is not None
        }
        return self.model_copy(update=paths)


def find_tor_source(
    directory: Path, source: TorSource | None, named: str | None = None
) -> Source | None:
    """Return the source of a variant, or None if it has to be fetched.

    directory: the folder of Tor's sources and builds. source: None for the default source. named: a
    tarball or a tree in place of the default source. Raises UserError if a tarball, a repository or
    a commit is missing or is not Tor's, or if a tarball has another SHA-256 than ``source`` states.
    """
    if source is None:
        return find_source(TOR, directory / "source", named)
    if source.git is not None and source.ref is not None:
        return _git_source(Path(source.git).resolve(), source.ref)
    if source.tarball is not None:
        if not is_file(Path(source.tarball)):
            raise UserError(f"{source.tarball} does not exist or is not a file")
        found = user_source(TOR, Path(source.tarball))
        if found.sha256 != source.sha256:
            raise UserError(
                f"{source.tarball} has SHA-256 {found.sha256}, not {source.sha256}",
                "Correct `sha256` in the variant's source, or name another tarball.",
            )
        return _named(found)
    for cache in (directory / "source", _debian_cache(directory, source)):
        fetched = read_fetched(cache)
        if fetched is not None and fetched[1]["version"] == source.debian:
            return _named(fetched_source(fetched))
    return None


def obtain_tor_source(
    directory: Path, source: TorSource | None, named: str | None = None, *, update: bool = False
) -> Source:
    """Return the same source as `find_tor_source`; fetch it first if necessary.

    update: fetch the current version of the default source. Raises UserError like
    `find_tor_source`, or if the source cannot be fetched.
    """
    if source is None:
        return obtain_source(TOR, directory / "source", named, update=update)
    found = find_tor_source(directory, source)
    if found is not None:
        return found
    cache = _debian_cache(directory, source)
    fetched = fetch_source_package(
        cache, TOR.package, TOR.name, version=source.debian, hint=TOR.hint
    )
    return _named(fetched_source(fetched))


def _debian_cache(directory: Path, source: TorSource) -> Path:
    return directory / f"source-{source.debian}"


def _named(source: Source) -> Source:
    return replace(source, id=source.sha256[:ID_LENGTH])


def _git_source(repository: Path, ref: str) -> Source:
    commit = find_commit(repository, ref)
    facts: dict[str, Any] = {"kind": "git", "commit": commit.hash}
    if commit.changed is not None:
        found = user_source(TOR, commit.changed)
        facts |= {"version": found.version, "changed": found.sha256}
        return _named(replace(found, facts=facts))
    facts["version"] = parse_version(
        read_committed(commit, "configure.ac"),
        f"commit {commit.hash[:ID_LENGTH]} of {repository}",
        "Name a repository and a commit of Tor.",
    )
    return _named(Source("git", repository, facts["version"], commit.hash, facts))
