"""The source of a program to build: Debian's package, or the user's tarball, tree or commit."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.programs.apt import fetch_source_package, read_fetched
from onionlab.programs.building import file_sha256
from onionlab.programs.git import git_output, unpack_commit


@dataclass(frozen=True)
class Source:
    """One source, with its identity.

    Attributes:
        kind: ``debian`` (a package's tarball), ``tarball``, ``tree`` or ``git``.
        path: The tarball, or the directory of the tree or the repository.
        version: The program's version; None for a local tarball until it is unpacked.
        sha256: SHA-256 of the tarball's bytes, or of a tree's sorted list of files (path, kind and
            content). For a git repository, it is the commit's hash instead.
        facts: The facts that a manifest records, as JSON.
        id: Suffix for the names of builds from this source; empty for the program's default source.
    """

    kind: str
    path: Path
    version: str | None
    sha256: str
    facts: dict[str, Any]
    id: str = ""

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.path.name} at {self.sha256[:12]}" if self.kind == "git" else self.path.name


@dataclass(frozen=True)
class Program:
    """A program that is built here.

    Attributes:
        name: Its name in messages.
        variable: The environment variable for the user's own source.
        hint: What users can do without the distribution's source.
        version: A function that gets an unpacked tree, and the tree's origin for messages. It
            returns the version. It raises UserError if the tree is not this program's source.
        package: The distribution's source package.
        configured: The name of a file that exists only in a tree that was configured in place, and
            the command that reverts the configuration; empty if unpacked trees are not supported.
        is_needed: A function that returns whether a build needs the file at a path in the tree.
    """

    name: str
    variable: str
    hint: str
    version: Callable[[Path, Path], str]
    package: str = ""
    configured: Sequence[str] = ()
    is_needed: Callable[[Path], bool] = lambda name: True


def read_if_present(path: Path) -> str:
    """Return the text of a file of a source tree; "" if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def obtain_source(
    program: Program,
    cache: Path,
    named: str | None = None,
    *,
    update: bool = False,
    fetch: Callable[[Path], tuple[Path, dict[str, Any]]] | None = None,
) -> Source:
    """Return a program's source; fetch it first if necessary.

    Args:
        program: The program.
        cache: The folder of the fetched source.
        named: A tarball or a tree; by default the program's variable names it.
        update: Fetch the current package even if one was fetched before. By default the old package
            is used, so that a new build results in the same program. No effect on a named source.
        fetch: A function that fetches the package in place of `fetch_source_package`.

    Raises:
        UserError: The source cannot be fetched, or it is the source of another program.
    """
    found = None if update and not _named(program, named) else find_source(program, cache, named)
    if found is not None:
        return found
    if fetch is not None:
        return fetched_source(fetch(cache))
    return fetched_source(
        fetch_source_package(cache, program.package, program.name, hint=program.hint)
    )


def find_source(program: Program, cache: Path, named: str | None = None) -> Source | None:
    """Return the source that `obtain_source` would return, or None if it has to be fetched."""
    if text := _named(program, named):
        return user_source(program, Path(text).expanduser())
    fetched = read_fetched(cache)
    return None if fetched is None else fetched_source(fetched)


def _named(program: Program, named: str | None) -> str | None:
    return os.environ.get(program.variable) if named is None else named


def fetched_source(fetched: tuple[Path, dict[str, Any]]) -> Source:
    """Return the source for a result of `read_fetched` or `fetch_source_package`."""
    tarball, facts = fetched
    return Source("debian", tarball, facts["version"], facts["sha256"], facts)


def user_source(program: Program, path: Path) -> Source:
    """Return the source in ``path``, a tarball or a tree.

    Raises UserError if the path does not exist, or is a tree that was configured in place or that
    belongs to another program.
    """
    if path.is_dir() and program.configured:
        version = program.version(path, path)
        sha256 = _files_sha256(path, _tree_files(program, path))
        facts: dict[str, Any] = {"kind": "tree", "version": version, "sha256": sha256}
        commit = _git_output(path, "describe", "--always", "--dirty", "--abbrev=12")
        if commit is not None:
            facts["commit"] = commit.strip()
        return Source("tree", path.resolve(), version, sha256, facts)
    if not path.is_file():
        problem = "is not a tarball" if path.exists() else "does not exist"
        raise UserError(f"{program.variable}: {path} {problem}", program.hint)
    sha256 = file_sha256(path)
    facts = {"kind": "tarball", "file": path.name, "sha256": sha256}
    return Source("tarball", path.resolve(), None, sha256, facts)


def unpack_source(program: Program, source: Source, destination: Path) -> str:
    """Unpack the needed files to ``destination``, which must not exist. Return the version.

    Files of tarballs and trees keep their time stamps, because make compares these. Raises
    UserError if the tarball is truncated or damaged, if the tree has changed since `user_source`
    hashed it, or if this is the source of another program.
    """
    destination.mkdir(parents=True)
    if source.kind == "tree":
        names = _tree_files(program, source.path)
        for name in names:
            target = destination / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source.path / name, target, follow_symlinks=False)
        # Builds are stored under this hash. It was computed earlier, perhaps minutes ago if other
        # sources were built first, and the user may have edited the tree since then.
        if _files_sha256(destination, names) != source.sha256:
            raise UserError(
                f"{source.path} has changed since this command started",
                "Start it again, and do not edit these files until they are built.",
            )
    elif source.kind == "git":
        unpack_commit(source.path, source.sha256, destination, program.is_needed)
    else:
        try:
            _unpack_tarball(program, source.path, destination)
        except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            # The operating system gives its errors a number, for example for a full disk. Such an
            # error does not mean that the archive is damaged.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise UserError(
                f"{source.path} is truncated or damaged: {error}", program.hint
            ) from error
    return program.version(destination, source.path)


def _unpack_tarball(program: Program, tarball: Path, destination: Path) -> None:
    """Unpack the needed files of an archive, without the top-level folder of their paths."""
    with tarfile.open(tarball) as archive:
        # Python 3.11.2 of Debian 12 has no filters and extracts members to any path. apt has
        # checked the signatures of the archives that it fetched.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        for member in archive:
            name = member.name.removeprefix("./").partition("/")[2]
            if name and not member.isdir() and program.is_needed(Path(name)):
                if member.islnk():
                    member.linkname = member.linkname.partition("/")[2]
                member.name = name
                archive.extract(member, destination)


def _tree_files(program: Program, tree: Path) -> list[Path]:
    """Return the needed files that belong to a source tree, sorted, relative to it.

    In a git work tree these are the files that git tracks or would track. Otherwise they are all
    files, and UserError is raised if the tree has been configured in place, because stale objects
    would become part of every build.
    """
    listed = _git_output(tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = {Path(name) for name in listed.split("\0") if name}
    else:
        mark, command = program.configured
        if (tree / mark).exists():
            raise UserError(
                f"{tree} has been configured in place",
                f"Run `{command}` there, or unpack the source again.",
            )
        # Even here, the tree can be a git work tree, if git is missing or refuses to read it. Its
        # folder .git must not become a part of the build.
        names = {path.relative_to(tree) for path in tree.rglob("*")}
        names = {name for name in names if name.parts[0] != ".git"}
    files = [name for name in names if (tree / name).is_symlink() or (tree / name).is_file()]
    return sorted(filter(program.is_needed, files), key=lambda name: name.as_posix())


def _files_sha256(tree: Path, names: Iterable[Path]) -> str:
    """Return the SHA-256 of files' paths, kinds (link, executable or other) and contents."""
    digest = hashlib.sha256()
    for name in names:
        path = tree / name
        if path.is_symlink():
            mode, content = "link", os.fsencode(path.readlink())
        else:
            mode = "exec" if path.stat().st_mode & 0o100 else "file"
            content = path.read_bytes()
        digest.update(f"{mode} {len(content)} {name.as_posix()}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _git_output(tree: Path, *arguments: str) -> str | None:
    """Return the output of a git command in ``tree``.

    Return None if ``tree`` is not the top of a work tree, git is missing, or the command fails.
    """
    if not (tree / ".git").exists():
        return None
    try:
        return os.fsdecode(git_output(tree, *arguments))
    except (FileNotFoundError, UserError):
        return None
