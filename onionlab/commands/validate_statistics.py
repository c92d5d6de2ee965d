"""Check by simulation that the statistics keep what they promise."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.judgement.judging import Statistics, read_runs_csv
from analysis.judgement.validation.parts import validate
from analysis.judgement.validation.real_runs import pairing_on_runs, validate_on_runs
from analysis.judgement.validation.rows import REPETITIONS, Row, format_rows
from onionlab.commands._arguments import whole_number

PROGRESS_INTERVAL_S = 30.0

HELP = "simulate data with a known truth: coverage, false verdicts, power, seeds saved"

STATUSES = {0: "all promises hold", 1: "a promise is broken"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--repetitions", type=whole_number, default=REPETITIONS, help="of each experiment"
    )
    parser.add_argument(
        "--runs", type=Path, help="a runs.csv: A/A and the gain of pairing on its runs instead"
    )
    parser.add_argument(
        "--jobs", type=whole_number, default=len(os.sched_getaffinity(0)), help="processes"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; 1 if a promise is broken."""
    if args.runs:
        rows = _on_runs(read_runs_csv(args.runs), args.repetitions)
    else:
        rows = validate(args.repetitions, args.jobs, _progress())
    print(format_rows(rows), end="")
    broken = sum(not row.holds for row in rows)
    print(f"{broken} promises broken" if broken else "all promises hold")
    return 1 if broken else 0


def _progress() -> Callable[[int, int], None]:
    """Says now and then how far it is, and how long the rest takes if it is like what is done."""
    started = said = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= PROGRESS_INTERVAL_S:
            said = now
            left_min = (now - started) / done * (of - done) / 60
            print(
                f"validate-statistics: {done} of {of} parts done, about {left_min:.0f} min left",
                file=sys.stderr,
                flush=True,
            )

    return tell


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
