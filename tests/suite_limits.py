"""Time limits of tests. Tests of more than ten seconds need the mark ``slow``.

A test without the mark fails if it takes longer. The time of its fixtures, which may build Tor or
the kernel, does not count. pytest-timeout ends a test that exceeds its time limit, which includes
the fixtures. The limits are for an idle machine of 2026. ONIONLAB_TESTS_SLOWER=2 doubles them for a
slower machine. If the CPUs are overloaded, tests without the mark automatically get more time.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

SLOW_S = 15.0
"""A test without the mark ``slow`` fails after this time, which exceeds ten seconds by a margin."""
# In a new clone a fixture of a test with the mark ``tor`` or ``uml`` may have to build Tor or the
# kernel, or to wait for another process that builds it.
BUILD_S = 2400.0
LIMIT_S = {"slow": 900.0, "tor": BUILD_S, "uml": BUILD_S}
"""Time limits of tests with these marks, in seconds. For other tests, pyproject.toml's ``timeout``
is the limit."""


def slower() -> float:
    """Return the factor for slower machines, from the environment."""
    return float(os.environ.get("ONIONLAB_TESTS_SLOWER", "1"))


def crowding() -> float:
    """Return the load average of the last minute, divided by the number of CPUs, but at least 1."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set each test's time limit, unless the test has one or the command line sets one."""
    if config.getoption("timeout") is not None:
        return
    least_s = float(config.getini("timeout"))
    for item in items:
        if item.get_closest_marker("timeout") is None:
            own_s = [limit for mark, limit in LIMIT_S.items() if item.get_closest_marker(mark)]
            item.add_marker(pytest.mark.timeout(slower() * max([least_s, *own_s])))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that takes long without the mark ``slow``."""
    report = yield
    # Overload delays a test twice: its programs wait for CPUs, and the test waits for its programs.
    # So the factor is squared.
    limit_s = SLOW_S * slower() * crowding() ** 2
    if (
        report.when == "call"
        and report.passed
        and report.duration > limit_s
        and item.get_closest_marker("slow") is None
    ):
        report.outcome = "failed"
        report.longrepr = (
            f"It took {report.duration:.1f} s, and may take {limit_s:.1f} s without the mark "
            "`slow` (docs/how-to/test.md)."
        )
    return report
