"""What all tests start from."""

import os
import signal

import pytest
from hypothesis import settings

from onionlab.engines.uml.kernel import BuiltKernel, ensure_kernel
from onionlab.paths import working_root

pytest_plugins = [
    "pytester",
    "suite_limits",
    "suite_order",
    "suite_roots",
    "suite_checkouts",
    "suite_cpu_locks",
]

# Whoever runs the tests in the background of a shell has Ctrl-C ignored, and so have all programs
# that they start: tests of an interrupt would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells of the machine's load, not of the code. A change is judged
# by the same examples each time, as in Hypothesis's own profile for CI; at a desk, by new ones.
settings.register_profile("onionlab", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("onionlab")


@pytest.fixture(scope="session")
def uml_kernel() -> BuiltKernel:
    """The kernel of the embedded engine, which is built where that was not done before."""
    return ensure_kernel(working_root())
