"""Estimate the time, memory and disk space that the runs of an experiment need."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import (
    add_jobs_argument,
    add_max_networks_argument,
    add_request_arguments,
)
from onionlab.commands._output import print_table
from onionlab.commands._request import look_requests
from onionlab.paths import working_root
from onionlab.runs.costs.estimate import Estimator, table_rows

HELP = "estimate time, memory and disk of an experiment's runs; nothing is built or simulated"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser, auto=True)
    add_jobs_argument(parser)
    add_max_networks_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table of costs. With NETWORKS=auto, print two: for the fewest and most networks."""
    estimator = Estimator(working_root())
    for title, request in look_requests(args):
        rows = table_rows(estimator.estimate([request], args.jobs))
        print_table(", ".join(filter(None, (args.name, title))), rows)
    return 0
