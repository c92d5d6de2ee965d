"""Compare two sets of runs, and test whether the second is worse."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from analysis.comparison.comparing import Conclusion, compare_sets
from analysis.comparison.differences import ASPECTS
from analysis.formats.files import COMPARISON_CSV
from analysis.pages.comparison import table_text, write
from onionlab.commands._arguments import listed_names
from onionlab.commands._output import print_report
from onionlab.paths import working_root
from onionlab.questions.run_set_loader import open_pair
from onionlab.runs.places import require_writable

HELP = "compare two sets of runs; exit status 0: no regression, 1: regression, 3: not settled"

STATUSES = {
    Conclusion.NO_REGRESSION: "no regression: every endpoint is the same or better, or all records "
    "are the same bytes",
    Conclusion.REGRESSION: "regression: an endpoint is shown to be worse",
    Conclusion.UNSETTLED: "not settled: no regression is shown, but an endpoint is open or only "
    "suggested",
}

MAX_SLUG = 100


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", help="the baseline: quick:ewma, a results folder, a checkout, a pack, an import"
    )
    parser.add_argument("b", help="what is judged; named in the same way")
    parser.add_argument(
        "--allow-diff",
        default="",
        metavar="ASPECT,...",
        help=f"aspects in which A and B may differ: {', '.join(ASPECTS)} (default: the aspect in "
        "which they differ, if it is exactly one)",
    )
    parser.add_argument("--out", type=Path, help="folder of the report")
    parser.add_argument(
        "--unpaired",
        action="store_true",
        help="compare two independent samples, even if runs could be paired by network",
    )


def run(args: argparse.Namespace) -> int:
    """Compare two sets of runs. Print the table, the answer, and the paths of table and report."""
    root = working_root()
    out = args.out or root / "results" / "compare" / f"{_slug(args.a)}-{_slug(args.b)}"
    require_writable(out)
    a, b = open_pair(root, args.a, args.b)
    comparison = compare_sets(a, b, listed_names(args.allow_diff), pair=not args.unpaired)
    page = write(comparison, out)
    print(f"A  {a.name}, runs: {len(a.runs)}\nB  {b.name}, runs: {len(b.runs)}")
    if comparison.about:
        print(f"about {', '.join(comparison.about)}")
    for words in comparison.notes:
        print(words if words.startswith("warning: ") else f"note: {words}")
    if comparison.endpoints:
        print(f"\n{table_text(comparison)}\n")
    print(out / COMPARISON_CSV)
    print_report(page)
    return int(comparison.conclusion)


def _slug(text: str) -> str:
    """Convert a set's name to a part of a folder's name: at most the last MAX_SLUG characters."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text)[-MAX_SLUG:].strip("-.") or "set"
