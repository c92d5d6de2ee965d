"""``onionlab check-variants``: Tor's own tests on every build."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from onionlab.commands._arguments import whole_number
from onionlab.paths import working_root
from onionlab.programs.tor.check import Outcome, check_series, new_problems

HELP = "run Tor's own tests on every build, plain and with AddressSanitizer"

STATUSES = {0: "no series is worse than Tor as released", 1: "a series is worse"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("series", nargs="*", metavar="SERIES", help="patch series (default: all)")
    parser.add_argument(
        "--only", metavar="PREFIX", help="only unit tests whose name begins so, e.g. circuitmux"
    )
    builds = parser.add_mutually_exclusive_group()
    builds.add_argument(
        "--plain", action="store_true", help="without the builds with AddressSanitizer"
    )
    builds.add_argument(
        "--sanitized", action="store_true", help="only the builds with AddressSanitizer"
    )
    parser.add_argument(
        "--tor-source",
        metavar="PATH",
        help="release tarball or source tree of Tor (default: variable TOR_SOURCE, "
        "else Debian's source package)",
    )
    parser.add_argument(
        "--jobs", type=whole_number, metavar="N", help="programs at once (default: CPUs)"
    )


def run(args: argparse.Namespace) -> int:
    outcomes = check_series(
        working_root(),
        args.series or None,
        say=print,
        only=args.only,
        hardened=[
            hardened
            for hardened, left_out in ((False, args.sanitized), (True, args.plain))
            if not left_out
        ],
        tor_source=args.tor_source,
        jobs=args.jobs,
    )
    print()
    for line in table(outcomes):
        print(line)
    for outcome in outcomes:
        for name in outcome.retried:
            print(f"run again, alone, in {outcome.title}: {name}")
        for name in sorted(outcome.failed):
            print(f"failed in {outcome.title}: {name}")
        for program, lines in sorted(outcome.reports.items()):
            print(f"sanitizer report in {outcome.title}: {program}: {lines[0]}")
    problems = new_problems(outcomes)
    if problems:
        print("\nWorse than Tor as released:")
        for problem in problems:
            print(f"  {problem}")
        return 1
    print("\nNo series is worse than Tor as released.")
    return 0


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """One line for each build, under a heading."""
    rows = [("build", "passed", "failed", "skipped", "reports", "time")]
    rows += [
        (
            outcome.title,
            str(len(outcome.passed)),
            str(len(outcome.failed)),
            str(len(outcome.skipped)),
            str(sum(len(lines) for lines in outcome.reports.values())),
            f"{outcome.wall_s:.0f} s",
        )
        for outcome in outcomes
    ]
    widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if index == 0 else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
