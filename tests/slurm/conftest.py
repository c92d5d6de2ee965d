"""Fixtures: a cluster for the tests of a file, and a workflow whose jobs do not simulate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import Cluster, lacking, running
from .fake_jobs import FakeWorkflow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a Slurm cluster with two nodes. Skip the tests if Slurm cannot be started."""
    why = lacking()
    if why is not None:
        pytest.skip(why)
    with running(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWorkflow:
    return FakeWorkflow(tmp_path, monkeypatch)
