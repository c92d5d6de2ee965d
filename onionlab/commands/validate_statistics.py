"""Check by simulation that the statistics keep what they promise."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.judging import read_runs_csv
from analysis.validation import REPETITIONS, Row, format_rows, validate, validate_on_runs
from onionlab.errors import UserError

HELP = "simulate data with a known truth: coverage, false verdicts, power, seeds saved"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="of each experiment")
    parser.add_argument(
        "--runs", type=Path, help="a runs.csv: A/A on its runs instead of on synthetic ones"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; 1 if a promise is broken."""
    try:
        if args.runs:
            rows: list[Row] = []
            statistics = read_runs_csv(args.runs)
            for level in dict.fromkeys(level for level, _ in statistics):
                variants = {v for (where, _), of in statistics.items() if where == level
                            for _, v in of}  # fmt: skip
                for variant in sorted(variants):
                    rows += validate_on_runs(statistics, level, variant, args.repetitions)
        else:
            rows = list(validate(args.repetitions))
    except AnalysisError as error:
        raise UserError(error.message, error.hint) from error
    print(format_rows(rows), end="")
    broken = sum(not row.holds for row in rows)
    print(f"{broken} promises broken" if broken else "all promises hold")
    return 1 if broken else 0
