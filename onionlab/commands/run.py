"""Plan an experiment and make the runs that are missing."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import add_jobs_argument, add_request_arguments
from onionlab.commands._cost import say_cost
from onionlab.commands._request import jobs_of, request_of
from onionlab.paths import working_root
from onionlab.runs.planning import make_plan
from onionlab.runs.workflow.drive import make_runs

HELP = "make the runs of an experiment that are missing, without a report"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    add_jobs_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print where the runs are on the last line."""
    root = working_root()
    jobs = jobs_of(args)
    request = request_of(args)
    say_cost(root, [request], jobs)
    plan = make_plan(root, request, say=print)
    make_runs(root, [plan], jobs=jobs, say=print)
    print(plan.store)
    return 0
