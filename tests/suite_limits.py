"""How long a test may take: above ten seconds it has the mark ``slow``, and nothing hangs for ever.

What counts is the test itself: a fixture that builds Tor or the kernel takes its time before. Both
limits are for an idle machine of today. ONIONLAB_TESTS_SLOWER=2 allows a slower one twice the time,
and a machine with more to do than its CPUs can take is allowed more by itself.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

SLOW_S = 15.0
"""Ten seconds is where the mark belongs; machines and hours differ by half of that."""
# From a fresh clone a fixture may first have to build the kernel, and to wait for who builds Tor.
BUILD_S = 2400.0
LIMIT_S = {"slow": 900.0, "tor": BUILD_S, "uml": BUILD_S}
"""Above pyproject.toml's ``timeout``, which is for tests without any of these marks."""


def slower() -> float:
    """How much longer than on the machine that the limits are for, as its owner says."""
    return float(os.environ.get("ONIONLAB_TESTS_SLOWER", "1"))


def crowding() -> float:
    """How many processes want each CPU, at least 1: the average of the last minute."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its limit, unless it has one of its own or the command line names one."""
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
    """Fail a test that takes long and does not say so."""
    report = yield
    # Squared: where a test starts programs, each of them waits for a CPU, and the test for each.
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
