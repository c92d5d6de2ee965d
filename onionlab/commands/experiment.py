"""Plan an experiment, make its runs, and report."""

from __future__ import annotations

import argparse

from onionlab.commands._request import add_jobs_argument, add_request_arguments, jobs_of, request_of
from onionlab.paths import repository_root
from onionlab.plan import make_plan
from onionlab.workflow.drive import make_report

HELP = "run an experiment: plan, simulations, records, report"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    add_jobs_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report's path on the last line."""
    root = repository_root()
    jobs = jobs_of(args)
    plan = make_plan(root, request_of(args), say=print)
    print(make_report(root, plan, jobs=jobs, say=print))
    return 0
