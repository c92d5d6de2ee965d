"""What the terminal shows of a report: its first sentences, then its path on the last line."""

from __future__ import annotations

import textwrap
from pathlib import Path

from analysis.formats.files import ANSWER

WIDTH = 100


def print_report(report: Path) -> None:
    """Print the answer that stands at the top of a report, and where the report is."""
    answer = report.with_name(ANSWER)
    lines = answer.read_text(encoding="utf-8").splitlines() if answer.is_file() else []
    for line in lines:
        # Names and paths stay whole, so that they can be copied.
        print(
            textwrap.fill(
                line,
                WIDTH,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    print(report)
