"""Draw the figures and test the claims of a paper."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from onionlab.commands._arguments import add_override_arguments, add_run_arguments, listed_files
from onionlab.commands._output import print_cost, print_report, print_table
from onionlab.commands._request import parse_overrides, parse_where
from onionlab.experiment.claims_file import load_claims
from onionlab.paths import working_root
from onionlab.questions.paper_reproduction import (
    DEFAULT_CLAIMS,
    reproduce_from_packs,
    reproduce_paper,
)

HELP = "make all figures of the paper and answer its claims, running what is missing"

STATUSES = {1: "runs are missing: figures and answers are from the others"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    add_override_arguments(parser)
    add_run_arguments(parser)
    parser.add_argument(
        "--claims", default=DEFAULT_CLAIMS, help="a file of experiments/claims/, by name or path"
    )
    parser.add_argument(
        "--no-run", action="store_true", help="use only existing runs; nothing is run or built"
    )
    parser.add_argument(
        "--packs", nargs="+", metavar="FILE", help="use only the runs of files that `pack` wrote"
    )
    parser.add_argument(
        "--compare-with",
        nargs="+",
        default=[],
        metavar="FILE",
        help="also show the answers of the runs of these files, of another size, engine or Tor",
    )


def run(args: argparse.Namespace) -> int:
    """Draw the figures and test the claims. Return 1 if runs are missing.

    Print the answers, and the page's path on the last line.
    """
    root, compare_with = working_root(), listed_files(args.compare_with)
    failure = None
    if args.packs:
        paths = reproduce_from_packs(root, args.claims, listed_files(args.packs), compare_with)
    else:
        request, where = parse_overrides(args), parse_where(args)
        if not args.no_run:
            names = load_claims(args.claims, root=root).experiments
            requests = [replace(request, experiment=name) for name in names]
            print_cost(root, requests, where)
        paths, failure = reproduce_paper(
            root, args.claims, request, where=where, run=not args.no_run, compare_with=compare_with
        )
    print_table("Claims", ((one.answer.value, one.claim.statement) for one in paths.answers))
    if failure is not None:
        print(f"error: {failure}", file=sys.stderr)
    if paths.missing:
        what = "1 run is" if len(paths.missing) == 1 else f"{len(paths.missing)} runs are"
        print(f"{what} missing: figures and answers are from the others")
    print_report(paths.html)
    return 1 if paths.missing else 0
