"""What all tests start from."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Whoever runs the tests in the background of a shell has Ctrl-C ignored, and so have all programs
# that they start: tests of an interrupt would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells of the machine's load, not of the code.
settings.register_profile("onionlab", deadline=None)
settings.load_profile("onionlab")

# They run experiments in the checkout, whose runs and results they share.
SHARE_THE_CHECKOUT = {
    "test_end_to_end.py",
    "test_kills.py",
    "test_other_systems.py",
}


# Before pytest-xdist's own hook, which is where it reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` runs files side by side (pytest-xdist): each file, or group, in one process."""
    for item in items:
        path = Path(item.path)
        group = "checkout" if path.name in SHARE_THE_CHECKOUT else path.name
        item.add_marker(pytest.mark.xdist_group(group))
