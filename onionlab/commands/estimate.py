"""What the runs of an experiment cost, before they are made."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import add_jobs_argument, add_request_arguments
from onionlab.commands._cost import add_max_networks_argument, requests_of, ways_of
from onionlab.commands._request import jobs_of
from onionlab.commands.list import print_table
from onionlab.paths import working_root
from onionlab.runs.costs.asking import ask
from onionlab.runs.costs.estimate import Costs
from onionlab.runs.costs.split import split_rows
from onionlab.runs.costs.words import table_rows, way_rows

HELP = "say what the runs of an experiment take: time, memory, disk; nothing is built or made"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    add_jobs_argument(parser)
    add_max_networks_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table, and what would be cheaper."""
    jobs = jobs_of(args)
    asked = requests_of(args)
    costs = Costs(working_root())
    for title, request in asked:
        estimate = costs.estimate([request], jobs)
        split = [] if title else split_rows(costs.root, ask(costs.root, request))
        print_table(", ".join(filter(None, (args.name, title))), table_rows(estimate) + split)
        ways = ways_of(costs, [request], estimate, jobs)
        if ways:
            print_table("Cheaper", way_rows(ways))
    return 0
