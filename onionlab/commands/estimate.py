"""Estimate the time, memory and disk space that the runs of an experiment need."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import (
    AUTO,
    add_jobs_argument,
    add_max_networks_argument,
    add_request_arguments,
)
from onionlab.commands._output import print_table
from onionlab.commands._request import look_requests, parse_request
from onionlab.paths import working_root
from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.estimate_text import table_rows
from onionlab.runs.costs.network_split import split_rows
from onionlab.runs.costs.requested_runs import resolve_request

HELP = "estimate time, memory and disk of an experiment's runs; nothing is built or simulated"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser, auto=True)
    add_jobs_argument(parser)
    add_max_networks_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table of costs. With NETWORKS=auto, print two: for the fewest and most networks."""
    root = working_root()
    estimator = Estimator(root)
    for title, request in look_requests(args):
        rows = table_rows(estimator.estimate([request], args.jobs))
        if args.networks != AUTO:
            rows += split_rows(root, resolve_request(root, parse_request(args)))
        print_table(", ".join(filter(None, (args.name, title))), rows)
    return 0
