"""Plan an experiment, make its runs, and report."""

from __future__ import annotations

import argparse

from onionlab.commands._answer import print_report
from onionlab.commands._arguments import (
    add_executor_arguments,
    add_jobs_argument,
    add_request_arguments,
)
from onionlab.commands._cost import (
    add_max_networks_argument,
    parse_max_networks,
    print_cost_of_arguments,
)
from onionlab.commands._request import executor_of, jobs_of, request_of
from onionlab.paths import working_root
from onionlab.runs.planning import make_plan
from onionlab.runs.workflow.drive import make_report

HELP = "run an experiment: plan, simulations, records, report"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    add_jobs_argument(parser)
    add_executor_arguments(parser)
    add_max_networks_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report's path on the last line."""
    root = working_root()
    jobs, executor = jobs_of(args), executor_of(args)
    budget = parse_max_networks(args)
    print_cost_of_arguments(args, root, jobs, executor)
    if budget is not None:
        # With it comes all of SciPy's statistics, which nothing else here needs: half the start-up.
        from onionlab.questions.auto_seeds import auto_seeds

        args.seeds = ""
        report = auto_seeds(
            root, request_of(args), budget=budget, jobs=jobs, say=print, executor=executor
        )
        print_report(report)
        return 0
    plan = make_plan(root, request_of(args), say=print)
    print_report(make_report(root, plan, jobs=jobs, say=print, executor=executor))
    return 0
