"""`make docs` builds a clean copy's site without warnings; pages load nothing from other hosts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .markdown import REPOSITORY


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for entry in REPOSITORY.iterdir():
        if entry.name in ("build", "docs", "nightly", "results", "runs") or entry.name[0] == ".":
            continue
        (tmp_path / entry.name).symlink_to(entry)
    ignored = shutil.ignore_patterns("runs", "site", "api", "__pycache__")
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs", ignore=ignored)
    options = ["--fail-on-warning", "--keep-going", "--quiet"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", "site"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    for page in ("index", "tutorial/own-variant", "reference/api/analysis.measures"):
        html = (tmp_path / "site" / f"{page}.html").read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|img|link)[^>]*(?:src|href)=\"(?:https?:)?//", html), page
    page = (tmp_path / "site/reference/api/analysis.measures.html").read_text(encoding="utf-8")
    assert "families.streams" in page
