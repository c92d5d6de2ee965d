"""Where things stand in a checkout.

The harness works from its own checkout: experiments, patches and results are files beside the
code, so there is one root and every other place follows from it.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["build_directory", "repository_root"]


def repository_root() -> Path:
    """The checkout that this package is run from."""
    return Path(__file__).resolve().parents[1]


def build_directory(root: Path) -> Path:
    """Everything that can be made again: Tor's source and binaries, caches. Git ignores it."""
    return root / "build"
