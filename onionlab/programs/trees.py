"""Source trees that a user has: which files belong to them, and what identifies them."""

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
    """How to tell that a tree is not as unpacked.

    Attributes:
        mark: A file that only a configured tree has.
        clean: The command that brings it back.
    """

    mark: str
    clean: str


def tree_files(tree: Path, configured: Configured) -> list[Path]:
    """The files that make up a source tree, sorted, relative to it.

    In a git work tree: what git tracks or would track. Otherwise every file; the tree must then be
    as unpacked, because stale objects would otherwise become part of every build.

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
                f"Run `{configured.clean}` there, or unpack the source anew.",
            )
        files = [
            path.relative_to(tree)
            for path in tree.rglob("*")
            if path.is_symlink() or path.is_file()
        ]
    return sorted(files, key=lambda name: name.as_posix())


def copy_files(tree: Path, names: Iterable[Path], destination: Path) -> None:
    """Lay files of ``tree`` out in ``destination``, with their time stamps: make goes by them."""
    for name in names:
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, target, follow_symlinks=False)


def files_sha256(tree: Path, names: Iterable[Path]) -> str:
    """SHA-256 of a list of files: path, whether executable, content."""
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
    """Output of git in ``tree``, or None where ``tree`` is not the top of a work tree."""
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
