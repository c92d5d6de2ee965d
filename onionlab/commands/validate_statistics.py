"""Check by simulation that the statistics keep what they promise."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.judgement.judging import Statistics, read_runs_csv
from analysis.judgement.validation.parts import validate
from analysis.judgement.validation.real_runs import pairing_on_runs, validate_on_runs
from analysis.judgement.validation.rows import REPETITIONS, Row, format_rows
from onionlab.commands._arguments import whole_number

HELP = "simulate data with a known truth: coverage, false verdicts, power, seeds saved"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--repetitions", type=whole_number, default=REPETITIONS, help="of each experiment"
    )
    parser.add_argument(
        "--runs", type=Path, help="a runs.csv: A/A and the gain of pairing on its runs instead"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; 1 if a promise is broken."""
    if args.runs:
        rows = _on_runs(read_runs_csv(args.runs), args.repetitions)
    else:
        rows = list(validate(args.repetitions))
    print(format_rows(rows), end="")
    broken = sum(not row.holds for row in rows)
    print(f"{broken} promises broken" if broken else "all promises hold")
    return 1 if broken else 0


def _on_runs(statistics: Statistics, repetitions: int) -> list[Row]:
    """What the runs allow; raises AnalysisError if that is nothing."""
    rows: list[Row] = []
    missing = None
    for level in dict.fromkeys(level for level, _ in statistics):
        of_classes = [of for (where, _), of in statistics.items() if where == level]
        variants = list(dict.fromkeys(variant for of in of_classes for _, variant in of))
        for variant in variants:
            try:
                rows += validate_on_runs(statistics, level, variant, repetitions)
            except AnalysisError as error:
                missing = error
        for one, other in itertools.combinations(variants, 2):
            rows += pairing_on_runs(statistics, level, one, other)
    if not rows:
        raise missing or AnalysisError("the table has no runs")
    return rows
