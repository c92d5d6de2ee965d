"""Plan an experiment, perform its runs, and write the report."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.commands._arguments import (
    AUTO,
    DEFAULT_MAX_NETWORKS,
    add_max_networks_argument,
    add_request_arguments,
    add_run_arguments,
)
from onionlab.commands._output import print_cost, print_report
from onionlab.commands._request import look_requests, parse_where
from onionlab.paths import working_root
from onionlab.runs.plan import make_plan
from onionlab.runs.workflow.drive import make_report

HELP = "run an experiment: plan, simulations, records, report"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser, auto=True)
    add_run_arguments(parser)
    add_max_networks_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the experiment. Print its cost, the answer, and the report's path on the last line."""
    print_costs(args)
    print_report(make(args))
    return 0


def print_costs(args: argparse.Namespace) -> None:
    """Print the estimated cost. Raises UserError for arguments that do not fit together."""
    root, where = working_root(), parse_where(args)
    for title, request in look_requests(args):
        print_cost(root, [request], where, title)


def make(args: argparse.Namespace) -> Path:
    """Run the experiment, and return the path of its report."""
    root, where = working_root(), parse_where(args)
    _, request = look_requests(args)[-1]
    if args.networks == AUTO:
        # Import this only here: it loads SciPy's statistics, which takes long.
        from onionlab.questions.auto_seeds import auto_seeds

        budget = args.max_networks or DEFAULT_MAX_NETWORKS
        return auto_seeds(root, request, where, budget=budget)
    return make_report(root, make_plan(root, request), where)
