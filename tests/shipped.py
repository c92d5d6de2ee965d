"""What comes with the project, by its own pages of reference.

Tests of what is shipped go over these names and not over all that is there: whoever works in a
checkout has experiments, variants and metrics of his own beside the shipped ones, finished or not,
and none of them is a defect of the project. What no page names is skipped, and the summary of the
tests says so. It fails where ONIONLAB_TESTS_STRICT is set, as .ci/run sets it: a change to the
project brings its documentation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
STRICT = "ONIONLAB_TESTS_STRICT"
EXPERIMENTS_PAGE = "docs/reference/experiments.md"
VARIANTS_PAGE = "docs/reference/variants.md"
METRICS_PAGE = "docs/reference/metrics.md"


def _first_cells(page: str, column: str) -> tuple[str, ...]:
    """What stands between backticks in the first cells of a page's tables that begin so."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    tables = re.findall(rf"^\| {column} \|.*\n\|[ |-]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [line.split("|")[1] for table in tables for line in table.splitlines()]
    return tuple(name for cell in cells for name in re.findall(r"`([^`]+)`", cell))


EXPERIMENTS = _first_cells(EXPERIMENTS_PAGE, "Experiments")
VARIANTS = _first_cells(VARIANTS_PAGE, "Name")
"""Of Tor and of libtorrent."""
METRICS = frozenset(re.findall(r"`(\w+)`", (REPOSITORY / METRICS_PAGE).read_text(encoding="utf-8")))
"""All names of the page, those of metrics among them."""


def require_named(there: Iterable[str], named: Iterable[str], page: str) -> None:
    """Skips a test, by name, where something is there that no page names; fails if strict."""
    own = sorted(set(there) - set(named))
    if own:
        words = f"not in {page}: {', '.join(own)}"
        if os.environ.get(STRICT):
            pytest.fail(words)
        pytest.skip(f"{words} (taken for somebody's own)")


def is_own_experiment(path: Path) -> bool:
    """Whether a file is an experiment of somebody's own in this checkout."""
    inside = path.parent == REPOSITORY / "experiments" and path.suffix == ".yaml"
    return inside and path.stem not in (*EXPERIMENTS, "nightly")
