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
    """Build the Tor of the variants rr, ewma and swrr before the commands under test need it."""
    ensure_series(REPOSITORY, ["circuit-policy"])
