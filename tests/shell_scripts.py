"""Shell scripts that replace real programs in tests."""

from __future__ import annotations

from pathlib import Path


def write_script(path: Path, body: str) -> Path:
    """Write an executable shell script, and its folder if this is missing. Return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)
    return path
