"""CPU locks of the tests' own: their runs wait for each other, not for the machine's other runs.

Long runs hold every CPU of a machine for hours; a test that waited for one would end by its time
limit. All workers of one call share the folder, which they find in the environment.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

from onionlab.runs.cpus import FOLDER_VARIABLE

MADE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, unless whoever started this process has done so."""
    if FOLDER_VARIABLE not in os.environ:
        config.stash[MADE] = tempfile.mkdtemp(prefix="onionlab-test-cpus-")
        os.environ[FOLDER_VARIABLE] = config.stash[MADE]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what this process made."""
    if MADE in config.stash:
        del os.environ[FOLDER_VARIABLE]
        shutil.rmtree(config.stash[MADE], ignore_errors=True)
