"""Estimate what the runs of an experiment cost."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import add_jobs_argument, add_request_arguments
from onionlab.commands._cost import add_max_networks_argument, parse_requests
from onionlab.commands._request import jobs_of
from onionlab.commands.list import print_table
from onionlab.paths import working_root
from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.estimate_text import table_rows
from onionlab.runs.costs.network_split import split_rows
from onionlab.runs.costs.requested_runs import resolve_request

HELP = "estimate time, memory and disk of an experiment's runs; nothing is built or simulated"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    add_jobs_argument(parser)
    add_max_networks_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table for each request."""
    root = working_root()
    jobs = jobs_of(args)
    requests = parse_requests(args)
    estimator = Estimator(root)
    for title, request in requests:
        rows = table_rows(estimator.estimate([request], jobs))
        if not title:
            rows += split_rows(root, resolve_request(root, request))
        print_table(", ".join(filter(None, (args.name, title))), rows)
    return 0
