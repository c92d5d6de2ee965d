"""Which commit of this project is running."""

from __future__ import annotations

import subprocess
from pathlib import Path

from onionlab import __version__
from onionlab.paths import code_root


def current_commit() -> str:
    """Return the commit's hash, with "-dirty" if files differ from it; "" outside of git."""
    root = code_root()
    described = _git(root, "rev-parse", "--verify", "HEAD")
    if not described:
        return ""
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{described}-dirty" if changed else described


def project_name() -> str:
    """Version and commit, as manifests have it."""
    return " ".join(part for part in (__version__, current_commit()) if part)


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
