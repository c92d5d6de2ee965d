"""Source trees of users: the files that belong to them, and their identity."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onionlab.errors import UserError


@dataclass(frozen=True)
class Configured:
    """Detects a tree that was configured in place.

    Attributes:
        mark: A file that only a configured tree has.
        clean: The command that reverts the tree.
    """

    mark: str
    clean: str


def tree_files(tree: Path, configured: Configured) -> list[Path]:
    """Return the files that belong to a source tree, sorted, relative to it.

    In a git work tree these are the files that git tracks or would track. Otherwise they are all
    files, and the tree must not have been configured, because stale objects would become part of
    every build.

    Raises:
        UserError: The tree has been configured in place.
    """
    listed = git_output(tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = {Path(name) for name in listed.split("\0") if name}
        files = [name for name in names if (tree / name).is_symlink() or (tree / name).is_file()]
    else:
        if (tree / configured.mark).exists():
            raise UserError(
                f"{tree} has been configured in place",
                f"Run `{configured.clean}` there, or unpack the source again.",
            )
        files = [
            path.relative_to(tree)
            for path in tree.rglob("*")
            if path.is_symlink() or path.is_file()
        ]
    return sorted(files, key=lambda name: name.as_posix())


def copy_files(tree: Path, names: Iterable[Path], destination: Path) -> None:
    """Copy files of ``tree`` to ``destination`` with their time stamps, which make compares."""
    for name in names:
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, target, follow_symlinks=False)


def files_sha256(tree: Path, names: Iterable[Path]) -> str:
    """Return the SHA-256 of a list of files: path, executable or not, content."""
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


def git_output(tree: Path, *arguments: str) -> str | None:
    """Return the output of git in ``tree``, or None if ``tree`` is not the top of a work tree."""
    if not (tree / ".git").exists():
        return None
    try:
        result = subprocess.run(
            ["git", "-C", tree, *arguments],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None
