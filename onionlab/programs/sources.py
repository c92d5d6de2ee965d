"""The source of a program to build: fetched from the distribution, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.programs.apt import read_fetched
from onionlab.programs.building import file_sha256
from onionlab.programs.trees import files_sha256, git_output


@dataclass(frozen=True)
class Source:
    """One source, with its identity.

    Attributes:
        kind: ``debian`` (a package's tarball), ``tarball`` or ``tree``.
        path: The tarball, or the tree's directory.
        version: The program's version; None for a local tarball until it is unpacked.
        sha256: SHA-256 of the tarball's bytes, or of a tree's sorted list of files (path,
            executable
            or not, content).
        facts: The facts that a manifest records, as JSON.
    """

    kind: str
    path: Path
    version: str | None
    sha256: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A program that is built here.

    Attributes:
        name: Its name in messages.
        variable: The environment variable for the user's own source.
        accepts: A sentence on the values of the variable and on the default.
        tree_version: Returns the version of an unpacked tree (first argument; the second is its
            origin) or raises UserError if it is something else; None if unpacked trees are not
            supported.
        tree_files: Returns the files that belong to an unpacked tree, sorted, relative to it.
    """

    name: str
    variable: str
    accepts: str
    tree_version: Callable[[Path, Path], str] | None = None
    tree_files: Callable[[Path], Iterable[Path]] = lambda tree: ()


def user_source(program: Program, named: str) -> Source:
    """Return the tarball or the tree that a user specified.

    Raises:
        UserError: It does not exist, or it is not the program's source.
    """
    path = Path(named).expanduser()
    if path.is_dir() and program.tree_version is not None:
        version = program.tree_version(path, path)
        sha256 = files_sha256(path, program.tree_files(path))
        facts: dict[str, Any] = {"kind": "tree", "version": version, "sha256": sha256}
        commit = git_output(path, "describe", "--always", "--dirty", "--abbrev=12")
        if commit is not None:
            facts["commit"] = commit.strip()
        return Source("tree", path.resolve(), version, sha256, facts)
    if not path.is_file():
        raise UserError(f"{program.variable}: {path} does not exist", program.accepts)
    sha256 = file_sha256(path)
    facts = {"kind": "tarball", "file": path.name, "sha256": sha256}
    return Source("tarball", path.resolve(), None, sha256, facts)


def fetched_source(program: Program, cache: Path, say: Callable[[str], None]) -> Source | None:
    """Return the source that was fetched from the distribution earlier, if it is intact."""
    kept = read_fetched(cache, f"{program.name}'s source", say)
    if kept is None:
        return None
    tarball, facts = kept
    return Source("debian", tarball, facts["version"], facts["sha256"], facts)
