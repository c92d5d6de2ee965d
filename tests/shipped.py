"""Names of the shipped experiments, variants and metrics, from the reference pages.

Tests of shipped files use these names instead of all files in the checkout, where users may have
their own experiments, variants and metrics, which can be incomplete. If the checkout has a name
that no page contains, a test is skipped, and pytest's summary lists the name. If the variable
ONIONLAB_TESTS_STRICT is set, as in .ci/run, the test fails instead, because a change to the project
has to be documented.
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
    """Return the names between backticks in the first column of a page's tables.

    column: the heading of this column.
    """
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    tables = re.findall(rf"^\| {column} \|.*\n\|[ |-]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [line.split("|")[1] for table in tables for line in table.splitlines()]
    return tuple(name for cell in cells for name in re.findall(r"`([^`]+)`", cell))


EXPERIMENTS = _first_cells(EXPERIMENTS_PAGE, "Experiments")
VARIANTS = _first_cells(VARIANTS_PAGE, "Name")
"""Variants of Tor and of libtorrent."""
METRICS = frozenset(re.findall(r"`(\w+)`", (REPOSITORY / METRICS_PAGE).read_text(encoding="utf-8")))
"""All names between backticks on the page. The names of metrics are among them."""


def require_named(there: Iterable[str], named: Iterable[str], page: str) -> None:
    """Skip the test if a name in ``there`` is not in ``named``, the names on ``page``.

    In strict mode, let the test fail instead.
    """
    own = sorted(set(there) - set(named))
    if own:
        words = f"not in {page}: {', '.join(own)}"
        if os.environ.get(STRICT):
            pytest.fail(words)
        pytest.skip(f"{words} (treated as the user's own)")


def is_own_experiment(path: Path) -> bool:
    """Return whether a file is an experiment that a user added to experiments/ of this checkout."""
    inside = path.parent == REPOSITORY / "experiments" and path.suffix == ".yaml"
    return inside and path.stem not in (*EXPERIMENTS, "nightly")
