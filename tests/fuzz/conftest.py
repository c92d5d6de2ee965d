"""What the fuzzers share: the helpers of the analysis's tests, and a project to damage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))

from .costs import COSTS, merge, plain, table
from .nights import Nights
from .project import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project of which each example damages something, and puts it back."""
    made = Project(tmp_path_factory.mktemp("fuzz"))
    with made.at_work():
        yield made


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """Nights whose files are damaged."""
    return Nights(tmp_path_factory.mktemp("nights"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where tests are spread over processes, hand over what this one measured."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["fuzz_costs"] = plain()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what one of the processes measured."""
    merge(getattr(node, "workeroutput", {}).get("fuzz_costs", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the worst of the inputs took."""
    if COSTS:
        terminalreporter.section("damaged inputs")
        for line in table():
            terminalreporter.write_line(line)
