"""A separate folder of CPU locks, so that the tests' runs do not wait for other runs.

Long runs can lock all CPUs for hours, and a test that waits for a CPU would exceed its time limit.
All workers of one pytest call share the folder, whose path is in the environment.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

from onionlab.runs.cpus import FOLDER_VARIABLE

MADE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Create the folder, unless a parent process has done so."""
    if FOLDER_VARIABLE not in os.environ:
        config.stash[MADE] = tempfile.mkdtemp(prefix="onionlab-test-cpus-")
        os.environ[FOLDER_VARIABLE] = config.stash[MADE]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder if this process created it."""
    if MADE in config.stash:
        del os.environ[FOLDER_VARIABLE]
        shutil.rmtree(config.stash[MADE], ignore_errors=True)
