"""Run the longest test files first, so that all CPUs finish at the same time.

With ``--dist loadfile --no-loadscope-reorder``, pytest-xdist starts the files in this order.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONG_FILES = (
    # The next two files need builds. They come first, so that `make test` builds Tor for one of
    # them and the kernel for the other one in parallel.
    "tor/test_real_tor.py",
    "slurm/test_cluster.py",
    "harness/test_other_systems.py",
    "harness/test_end_to_end.py",
    "harness/test_kills.py",
    "fuzz/test_fuzz.py",
    "docs/test_site.py",
    "analysis/test_paper.py",
    "tor/test_build.py",
    "harness/test_repeatability.py",
    "uml/test_guest_kills.py",
    "analysis/test_nightly.py",
    "harness/test_imported_networks.py",
    "analysis/test_analysis_report.py",
    "slurm/test_generic.py",
    "docs/test_results.py",
    "analysis/test_tornet_figures.py",
    "analysis/test_pages_in_browser.py",
    "uml/test_guest_network.py",
    "uml/test_kernel_real.py",
    "uml/test_guest_engine.py",
    "setup/test_cli.py",
    "experiment/test_mutations.py",
    "harness/test_workflow.py",
)
"""The longest test files, in descending order of time. If a file is missing here, test runs are
only slower."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files before all others."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
