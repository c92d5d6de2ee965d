"""A cluster for the tests of a file, and a checkout that its nodes see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import Cluster, lacking, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Slurm with two nodes; skips a test, by name, where it cannot be had."""
    why = lacking()
    if why is not None:
        pytest.skip(why)
    with running(tmp_path_factory.mktemp("slurm")) as found:
        yield found
