"""Print the cost of the runs that a command needs, before anything that takes long."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.formats.plan_file import Request
from onionlab.commands._request import request_of, whole_number_of
from onionlab.errors import UserError
from onionlab.runs.costs.estimate import Estimator
from onionlab.runs.costs.estimate_text import cost_text
from onionlab.runs.workflow.executor import Executor

AUTO = "auto"
"""The value of NETWORKS that adds networks until each endpoint has an answer."""
DEFAULT_MAX_NETWORKS = 20


def add_max_networks_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --max-networks."""
    parser.add_argument(
        "--max-networks",
        default="",
        help=f"with --networks {AUTO}: the most networks, {DEFAULT_MAX_NETWORKS} by default",
    )


def parse_max_networks(args: argparse.Namespace) -> int | None:
    """Return the most networks that NETWORKS=auto may use; None without `auto`.

    Raises UserError.
    """
    if args.seeds == AUTO:
        if not args.max_networks:
            return DEFAULT_MAX_NETWORKS
        return whole_number_of(args.max_networks, "--max-networks")
    if args.max_networks:
        raise UserError(
            "--max-networks goes with --networks auto", "make experiment NETWORKS=auto ..."
        )
    return None


def parse_requests(args: argparse.Namespace) -> list[tuple[str, Request]]:
    """Return the request, or for NETWORKS=auto the smallest and the largest, with their titles.

    Raises UserError.
    """
    max_networks = parse_max_networks(args)
    if max_networks is None:
        return [("", request_of(args))]
    # This imports SciPy's statistics, which takes longer than the rest of the command.
    from analysis.inference.sequential import FIRST_LOOK

    request = request_of(argparse.Namespace(**{**vars(args), "seeds": ""}))
    return [
        (f"at least, {FIRST_LOOK} networks", replace(request, seeds=FIRST_LOOK)),
        (f"at most, {max_networks} networks", replace(request, seeds=max_networks)),
    ]


def print_cost_of_arguments(
    args: argparse.Namespace, root: Path, jobs: int | None, executor: Executor | None = None
) -> None:
    """Print the cost of the runs that the arguments ask for. Raises UserError like planning."""
    estimator = _estimator(root, executor)
    for title, request in parse_requests(args):
        text = cost_text(estimator.estimate([request], jobs))
        print(f"cost: {text} ({title})" if title else f"cost: {text}")


def print_cost(
    root: Path, requests: Sequence[Request], jobs: int | None, executor: Executor | None = None
) -> None:
    """Print what the runs of some requests cost together. Raises UserError like planning."""
    print(f"cost: {cost_text(_estimator(root, executor).estimate(requests, jobs))}")


def _estimator(root: Path, executor: Executor | None) -> Estimator:
    """Return an estimator for this machine or a cluster. Raises UserError."""
    return Estimator(root, max_jobs=executor.max_jobs if executor else None)
