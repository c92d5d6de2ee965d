"""Fixtures: a checkout in which tests run onionlab, and a build of Tor for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.checkout import REPOSITORY, Checkout

from onionlab.programs.tor.build import ensure_series


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Return a new checkout without runs."""
    root = tmp_path / "checkout"
    root.mkdir()
    return Checkout(root)


@pytest.fixture(scope="session")
def circuit_policy_build() -> None:
    """Build the Tor that the variants rr, ewma and swrr share, so that no command has to."""
    ensure_series(REPOSITORY, ["circuit-policy"])
