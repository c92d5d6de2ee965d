"""Small git repositories that look like Tor's."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

CONFIGURE_AC = "AC_INIT([tor],[{version}])\n"


def git(path: Path, *arguments: str) -> str:
    """Run git in ``path`` and return its output."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(path), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def make_repository(path: Path, versions: Sequence[str]) -> list[str]:
    """Make a repository with the branch ``main``; return the commits, one for each version."""
    path.mkdir()
    git(path, "init", "-qb", "main")
    return [add_commit(path, f"change {n}", version) for n, version in enumerate(versions)]


def add_commit(path: Path, subject: str, version: str) -> str:
    """Commit a changed file and Tor's version to the current branch; return the commit's hash."""
    (path / "configure.ac").write_text(CONFIGURE_AC.format(version=version))
    (path / "file").write_text(subject)
    git(path, "add", ".")
    git(path, "commit", "-qm", subject)
    return git(path, "rev-parse", "HEAD")
