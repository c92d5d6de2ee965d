"""Run Tor's own tests on Tor as released and on patch series, and report what gets worse."""

from __future__ import annotations

import argparse

import pandas as pd

from onionlab.commands._arguments import add_build_arguments
from onionlab.paths import working_root
from onionlab.programs.tor.check import Outcome, check_series, new_problems

HELP = "run Tor's own tests on every build, plain and with AddressSanitizer"

STATUSES = {0: "no series is worse than Tor as released", 1: "a series is worse"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("series", nargs="*", metavar="SERIES", help="patch series (default: all)")
    parser.add_argument(
        "--only", metavar="PREFIX", help="only unit tests with this prefix, e.g. circuitmux"
    )
    builds = parser.add_mutually_exclusive_group()
    builds.add_argument(
        "--plain", action="store_true", help="without the builds with AddressSanitizer"
    )
    builds.add_argument(
        "--sanitized", action="store_true", help="only the builds with AddressSanitizer"
    )
    add_build_arguments(parser)


def run(args: argparse.Namespace) -> int:
    outcomes = check_series(
        working_root(),
        args.series or None,
        only=args.only,
        hardened=[True] if args.sanitized else [False] if args.plain else [False, True],
        tor_source=args.tor_source,
        jobs=args.jobs,
    )
    print(f"\n{pd.DataFrame(map(_row, outcomes)).to_string(index=False)}")
    for outcome in outcomes:
        for name in outcome.retried:
            print(f"run again, alone, in {outcome.title}: {name}")
        for name in sorted(outcome.failed):
            print(f"failed in {outcome.title}: {name}")
        for program, lines in sorted(outcome.reports.items()):
            print(f"sanitizer report in {outcome.title}: {program}: {lines[0]}")
    problems = new_problems(outcomes)
    if not problems:
        print("\nNo series is worse than Tor as released.")
        return 0
    print("\nWorse than Tor as released:")
    for problem in problems:
        print(f"  {problem}")
    return 1


def _row(outcome: Outcome) -> dict[str, object]:
    return {
        "build": outcome.title,
        "passed": len(outcome.passed),
        "failed": len(outcome.failed),
        "skipped": len(outcome.skipped),
        "reports": sum(len(lines) for lines in outcome.reports.values()),
        "time": f"{outcome.wall_s:.0f} s",
    }
