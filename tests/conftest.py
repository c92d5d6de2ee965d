"""Settings and fixtures of all tests."""

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
    "suite_figures",
]

# A shell starts background jobs with SIGINT ignored, and their child processes inherit this. Tests
# of interrupts would then hang.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of an example depends on the machine's load, so there is no deadline. In CI the examples
# are the same in every run, as in Hypothesis's CI profile. Elsewhere they are random.
settings.register_profile("onionlab", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("onionlab")


@pytest.fixture(scope="session")
def uml_kernel() -> BuiltKernel:
    """Return the kernel of the embedded engine. It is built first if there is none."""
    return ensure_kernel(working_root())
