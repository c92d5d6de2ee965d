"""Plan an experiment, and perform the runs that the store (the folder runs/) lacks."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import add_request_arguments, add_run_arguments
from onionlab.commands._output import print_cost
from onionlab.commands._request import parse_request, parse_where
from onionlab.paths import working_root
from onionlab.runs.plan import make_plan
from onionlab.runs.workflow.drive import make_runs

HELP = "make the runs of an experiment that are missing, without a report"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Perform the missing runs. Print the store's folder on the last line."""
    root, request, where = working_root(), parse_request(args), parse_where(args)
    print_cost(root, [request], where)
    plan = make_plan(root, request)
    make_runs(root, [plan], where)
    print(plan.store)
    return 0
