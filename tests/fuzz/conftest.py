"""Fixtures of the fuzz tests: helpers of the analysis tests, and a project to damage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))

from .nights import Nights
from .project import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Return a project. Each example damages some of its files and restores them."""
    made = Project(tmp_path_factory.mktemp("fuzz"))
    with made.at_work():
        yield made


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """Return nights. Each example damages some of their files and restores them."""
    return Nights(tmp_path_factory.mktemp("nights"))
