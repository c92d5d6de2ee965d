"""Read local git repositories with the program git."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onionlab.errors import UserError
from onionlab.paths import is_folder
from onionlab.programs.building import build_environment, ensure_building_allowed, install_packages
from onionlab.yamlfile.units import nearest, show

FILE_TIME_UNIX_S = 946_684_800
"""The modification time of all files that `unpack_commit` writes: 2000-01-01."""


@dataclass(frozen=True)
class Commit:
    """A commit of a local repository, which is a work tree or bare.

    changed: usually None. If `find_commit` got HEAD or the branch that is checked out, and the work
    tree has uncommitted changes, this is the top of the work tree, whose files have to be used
    instead of the commit.
    """

    repository: Path
    hash: str
    changed: Path | None = None


def find_commit(repository: Path, ref: str) -> Commit:
    """Return the commit of a branch, a tag or a hash.

    HEAD and the branch that is checked out mean the files of the work tree, which can differ from
    the commit. A tag and a hash always mean the commit. Raises UserError if there is no repository
    or no such commit, or if git is missing and cannot be installed.
    """
    if shutil.which("git") is None:
        ensure_building_allowed("the program `git` is missing")
        install_packages("git")
    if not is_folder(repository):
        raise UserError(f"{repository} is not a folder, and thus no git repository")
    try:
        _output(repository, "rev-parse", "--git-dir")
    except UserError as error:
        raise UserError(error.message, "Name a clone of Tor's repository.") from error
    commit = _answer(repository, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    # git also succeeds for "^main", an expression that excludes commits, and returns "^HASH".
    if commit is None or commit.startswith("^"):
        names = _output(repository, "for-each-ref", "--format=%(refname:short)").split()
        raise UserError(
            f"{repository} has no branch, tag or commit {show(ref)}{nearest(ref, names)}",
            f"`git -C {repository} branch --all` lists branches, and `git tag` tags.",
        )
    top = _answer(repository, "rev-parse", "--show-toplevel")
    name, head = (
        _answer(repository, "rev-parse", "--symbolic-full-name", one) for one in (ref, "HEAD")
    )
    is_changed = top and name == head and _output(repository, "status", "--porcelain")
    return Commit(repository, commit, Path(top) if top and is_changed else None)


def read_committed(commit: Commit, name: str) -> str:
    """Return the text of a file of a commit, or an empty string if it has no such file."""
    try:
        return _output(commit.repository, "cat-file", "blob", f"{commit.hash}:{name}")
    except UserError:
        return ""


_PLAIN = ("--no-color", "--no-show-signature")
"""Options of git log that override the user's settings, which would change its output."""


def commits_between(
    repository: Path, since: str, until: str, most: int = 20
) -> tuple[int, int, tuple[str, ...]] | None:
    """Compare the histories of two commits.

    Return the number of commits that only ``since`` contains, the number of commits that only
    ``until`` contains, and a list of the newest commits that only ``until`` contains. The list has
    the abbreviated hash and the subject of at most ``most`` commits, newest first. Return None if
    the repository does not contain ``since``.
    """
    if _answer(repository, "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}") is None:
        return None
    log = _output(
        repository, "log", "--oneline", "--no-decorate", *_PLAIN, "--abbrev=12",
        f"--max-count={most}", f"{since}..{until}", "--",
    )  # fmt: skip
    counts = _output(repository, "rev-list", "--count", "--left-right", f"{since}...{until}", "--")
    lacking, new = map(int, counts.split())
    return lacking, new, tuple(_lines(log))


def merge_base(repository: Path, one: str, other: str) -> str | None:
    """Return the newest common ancestor of two commits, or None if they have no common ancestor."""
    return _answer(repository, "merge-base", one, other)


def list_commits(repository: Path, good: str, bad: str) -> list[tuple[str, str]]:
    """Return hash and subject of each commit in the history of ``bad`` but not of ``good``.

    Parents come before their children.
    """
    log = _output(
        repository, "log", "--format=%H %s", *_PLAIN, "--topo-order", "--reverse",
        f"{good}..{bad}", "--",
    )  # fmt: skip
    return [(line[:40], line[41:]) for line in _lines(log)]


def first_bad_candidates(repository: Path, bad: str, goods: Sequence[str]) -> list[str]:
    """Return all commits that can be the first bad commit, in the order in which to test them.

    Testing the first commit of the list roughly halves the number of candidates. ``bad`` comes
    last, because it is already known to be bad. goods: commits that are known to be good; all of
    their ancestors count as good too.
    """
    listed = _output(repository, "rev-list", "--bisect-all", bad, "--not", *goods, "--")
    found = [line.split()[0] for line in listed.splitlines()]
    return [commit for commit in found if commit != bad] + [bad]


def unpack_commit(
    repository: Path, commit: str, destination: Path, is_needed: Callable[[Path], bool]
) -> None:
    """Write the needed files of a commit to a folder, as they are in the commit.

    Git attributes and settings have no effect, although they change what `git archive` and a
    checkout write. Submodules are left out. Raises UserError if the repository lacks a part of the
    commit.
    """
    listed = git_output(repository, "ls-tree", "-r", "-z", "--full-tree", commit)
    entries = [entry.split(b"\t", 1) for entry in listed.split(b"\0")[:-1]]
    files = {
        path: facts.split() for facts, name in entries if is_needed(path := Path(os.fsdecode(name)))
    }
    blobs = {path: (mode, blob) for path, (mode, kind, blob) in files.items() if kind == b"blob"}
    wanted = b"".join(blob + b"\n" for _, blob in blobs.values())
    contents = io.BytesIO(_run(repository, "cat-file", "--batch", given=wanted).stdout)
    for path, (mode, blob) in blobs.items():
        # git writes "HASH blob SIZE", the content and a line feed; or "HASH missing".
        size = contents.readline().split()[2:]
        content = contents.read(int(size[0]) + 1) if size else b""
        if not size or len(content) <= int(size[0]):
            raise UserError(
                f"{repository} lacks a part of commit {commit}: {path} ({blob.decode()})",
                "Fetch the missing objects, or clone the repository without a filter.",
            )
        _write(destination / path, mode, content[:-1])


def _write(path: Path, mode: bytes, content: bytes) -> None:
    """Write a file of a commit. All files get the same time, because make compares file times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == b"120000":
        path.symlink_to(os.fsdecode(content))
    else:
        path.write_bytes(content)
        path.chmod(0o755 if mode == b"100755" else 0o644)
        os.utime(path, (FILE_TIME_UNIX_S, FILE_TIME_UNIX_S))


def _lines(log: str) -> list[str]:
    """Split a log at line feeds. `str.splitlines` splits at other characters of subjects, too."""
    return log.split("\n")[:-1]


def git_output(repository: Path, *arguments: str) -> bytes:
    """Return the output of git. Raises UserError with git's message if it fails."""
    done = _run(repository, *arguments)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise UserError(f"git in {repository}: {said}")
    return done.stdout


def _output(repository: Path, *arguments: str) -> str:
    """Return the output of git as a string. Raises UserError as `git_output` does."""
    return git_output(repository, *arguments).decode(errors="replace")


def _answer(repository: Path, *arguments: str) -> str | None:
    """Return the output of git without the line's end, or None if git fails."""
    try:
        return _output(repository, *arguments).strip()
    except UserError:
        return None


def _run(
    repository: Path, *arguments: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    # With the first variable, git does not treat a folder inside of another repository as a
    # repository. With the second one, commands that only read do not write to the index.
    place = {"GIT_CEILING_DIRECTORIES": str(repository.parent), "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(repository), *arguments]
    environment = build_environment() | place
    return subprocess.run(command, input=given, capture_output=True, env=environment, check=False)
