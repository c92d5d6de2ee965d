"""Fixtures for several tests of the harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.errors import UserError
from onionlab.programs.installed import SHADOW, TGEN, Tool, find_tool


def make_shadow_engine() -> ShadowEngine:
    """Return a Shadow engine with fake programs. It can configure simulations, but not run them."""
    engine = ShadowEngine.__new__(ShadowEngine)
    engine._shadow = Tool(Path("/nonexistent/shadow"), "3.3.0", "f1b2cacf2", "00")
    engine._tgen = Tool(Path("/nonexistent/tgen"), "1.1.2", None, "01")
    return engine


@pytest.fixture
def shadow_engine() -> ShadowEngine:
    return make_shadow_engine()


@pytest.fixture(scope="session")
def real_shadow() -> None:
    """Skip a test if Shadow or TGen is missing."""
    try:
        find_tool(SHADOW)
        find_tool(TGEN)
    except UserError as error:
        pytest.skip(f"needs Shadow and TGen: {error.message}")


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """Return the name of the engine that is the test's parameter.

    If the engine is Shadow, skip the test if Shadow or TGen is missing. The embedded engine's
    kernel is built first if there is none.
    """
    request.getfixturevalue({"shadow": "real_shadow", "uml": "uml_kernel"}[request.param])
    return str(request.param)
