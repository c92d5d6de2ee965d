"""Plan an experiment and make the runs that are missing."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import (
    add_executor_arguments,
    add_jobs_argument,
    add_request_arguments,
)
from onionlab.commands._cost import print_cost
from onionlab.commands._request import executor_of, jobs_of, request_of
from onionlab.paths import working_root
from onionlab.runs.planning import make_plan
from onionlab.runs.workflow.drive import make_runs

HELP = "make the runs of an experiment that are missing, without a report"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    add_jobs_argument(parser)
    add_executor_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print where the runs are on the last line."""
    root = working_root()
    jobs, executor = jobs_of(args), executor_of(args)
    request = request_of(args)
    print_cost(root, [request], jobs, executor)
    plan = make_plan(root, request, say=print)
    make_runs(root, [plan], jobs=jobs, say=print, executor=executor)
    print(plan.store)
    return 0
