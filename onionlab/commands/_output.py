"""Print reports, tables and the cost of runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.formats.files import ANSWER
from analysis.formats.plan_file import Request
from onionlab.runs.costs.estimate import Estimator, cost_text
from onionlab.runs.workflow.executor import Executor, Where

WIDTH = 100


def print_report(report: Path) -> None:
    """Print the summary that a report begins with, and on the last line the report's path."""
    answer = report.with_name(ANSWER)
    lines = answer.read_text(encoding="utf-8").splitlines() if answer.is_file() else []
    for line in lines:
        # Names and paths are not wrapped, so that they can be copied.
        wrapper = textwrap.TextWrapper(
            WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        print(wrapper.fill(line))
    print(report)


def print_table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print a title, then names and texts in two columns."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    print(title)
    for name, text in rows:
        print(f"  {name:<{width}}  {text}")


def print_cost(root: Path, requests: Sequence[Request], where: Where, title: str = "") -> None:
    """Print the estimated cost of the missing runs of all requests together.

    Raises:
        UserError: The runs of a request cannot be planned.
    """
    here, elsewhere = (None, where.max_jobs) if isinstance(where, Executor) else (where, None)
    text = cost_text(Estimator(root, max_jobs=elsewhere).estimate(requests, here))
    print(f"cost: {text} ({title})" if title else f"cost: {text}")
