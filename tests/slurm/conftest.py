"""A cluster for the tests of a file, and a checkout that its nodes see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.checkout import REPOSITORY, Checkout

from onionlab.programs.tor.build import ensure_series

from .cluster import Cluster, lacking, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Slurm with two nodes; skips a test, by name, where it cannot be had."""
    why = lacking()
    if why is not None:
        pytest.skip(why)
    with running(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout of the test's own, in which nothing was run."""
    root = tmp_path / "checkout"
    root.mkdir()
    return Checkout(root)


@pytest.fixture(scope="session")
def circuit_policy_build() -> None:
    """The Tor of the variants rr and ewma, built before the test's own time begins."""
    ensure_series(REPOSITORY, ["circuit-policy"], say=print)
