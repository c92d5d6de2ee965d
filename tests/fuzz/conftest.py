"""Fixtures of the fuzz tests: a project and nightly runs, whose files the tests damage.

The modules of tests/analysis are made importable, since these tests use them as helpers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))

from .project import Nights, Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Yield a project. Each example of a test damages some of its files and restores them."""
    made = Project(tmp_path_factory.mktemp("fuzz"))
    with made.at_work():
        yield made


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """Return a folder of nightly runs. Each example of a test damages a file and restores it."""
    return Nights(tmp_path_factory.mktemp("nights"))
