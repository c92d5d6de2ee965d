"""Plan an experiment, make its runs, and report."""

from __future__ import annotations

import argparse

from onionlab.commands._answer import print_report
from onionlab.commands._arguments import add_jobs_argument, add_request_arguments
from onionlab.commands._request import jobs_of, request_of, whole_number_of
from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.runs.planning import make_plan
from onionlab.runs.workflow.drive import make_report

HELP = "run an experiment: plan, simulations, records, report"

AUTO = "auto"
BUDGET = 20
"""Seeds at most where MAX_SEEDS does not say otherwise."""


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    add_jobs_argument(parser)
    parser.add_argument(
        "--max-seeds",
        default="",
        help=f"with --seeds {AUTO}: the most seeds there may be, {BUDGET} by default",
    )


def run(args: argparse.Namespace) -> int:
    """Print the report's path on the last line."""
    root = working_root()
    jobs = jobs_of(args)
    if args.seeds == AUTO:
        # With it comes all of SciPy's statistics, which nothing else here needs: half the start-up.
        from onionlab.questions.auto_seeds import auto_seeds

        budget = whole_number_of(args.max_seeds, "--max-seeds") if args.max_seeds else BUDGET
        args.seeds = ""
        report = auto_seeds(root, request_of(args), budget=budget, jobs=jobs, say=print)
        print_report(report)
        return 0
    if args.max_seeds:
        raise UserError("--max-seeds goes with --seeds auto", "make experiment SEEDS=auto ...")
    plan = make_plan(root, request_of(args), say=print)
    print_report(make_report(root, plan, jobs=jobs, say=print))
    return 0
