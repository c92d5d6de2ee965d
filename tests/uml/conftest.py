"""What several tests of the embedded engine need."""

from __future__ import annotations

import pytest

from onionlab.engines.uml.engine import UmlEngine
from onionlab.errors import UserError
from onionlab.paths import repository_root


@pytest.fixture(scope="session")
def uml_engine() -> UmlEngine:
    """The engine with its kernel, which is built where that was not done before."""
    from onionlab.engines.uml.kernel import ensure_kernel

    try:
        return UmlEngine(ensure_kernel(repository_root(), say=print))
    except UserError as error:
        pytest.skip(f"needs the engine's kernel: {error.message}")
