"""Checkouts to run the program in, and the builds that it takes there."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.checkout import REPOSITORY, Checkout

from onionlab.programs.tor.build import ensure_series


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout of the test's own, in which nothing was run."""
    root = tmp_path / "checkout"
    root.mkdir()
    return Checkout(root)


@pytest.fixture(scope="session")
def circuit_policy_build() -> None:
    """The Tor of the variants rr, ewma and swrr, built before the test's own time begins."""
    ensure_series(REPOSITORY, ["circuit-policy"])
