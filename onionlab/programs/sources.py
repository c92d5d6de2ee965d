"""A program's source as builds need it: kept from the distribution, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.programs.apt import read_kept
from onionlab.programs.building import file_sha256
from onionlab.programs.trees import files_sha256, git_output


@dataclass(frozen=True)
class Source:
    """One source, unmistakably.

    Attributes:
        kind: ``debian`` (a package's tarball), ``tarball`` or ``tree``.
        path: The tarball, or the tree's directory.
        version: The program's version; None until it is unpacked, for a local tarball.
        sha256: Of the tarball's bytes; for a tree of the sorted list of its files (path, whether
            executable, content).
        facts: What a manifest should record of it; JSON.
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
        name: For messages.
        variable: The environment variable that names a source of the user's own.
        takes: What that may name, and what is done without it; a sentence.
        tree_version: The version of an unpacked tree (first argument; the second is where it comes
            from), or a UserError where it is something else; None: unpacked trees are not taken.
        tree_files: The files that make up an unpacked tree, sorted, relative to it.
    """

    name: str
    variable: str
    takes: str
    tree_version: Callable[[Path, Path], str] | None = None
    tree_files: Callable[[Path], Iterable[Path]] = lambda tree: ()


def own_source(program: Program, named: str) -> Source:
    """The tarball or the tree that a user names.

    Raises:
        UserError: There is no such thing, or it is not the program's source.
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
        raise UserError(f"{program.variable}: there is no file {path}", program.takes)
    sha256 = file_sha256(path)
    facts = {"kind": "tarball", "file": path.name, "sha256": sha256}
    return Source("tarball", path.resolve(), None, sha256, facts)


def kept_source(program: Program, cache: Path, say: Callable[[str], None]) -> Source | None:
    """The source that was fetched from the distribution before, if it is intact."""
    kept = read_kept(cache, f"{program.name}'s source", say)
    if kept is None:
        return None
    tarball, facts = kept
    return Source("debian", tarball, facts["version"], facts["sha256"], facts)
