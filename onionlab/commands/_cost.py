"""The line on what a command will cost, which it prints before anything that takes long."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.formats.plan_file import Request
from onionlab.commands._arguments import SameTwice
from onionlab.commands._request import request_of, whole_number_of
from onionlab.errors import UserError
from onionlab.runs.costs.asking import ask
from onionlab.runs.costs.cheaper import Way, cheaper_ways
from onionlab.runs.costs.estimate import Costs, Estimate
from onionlab.runs.costs.words import cheaper_line, one_line
from onionlab.runs.workflow.executor import Executor

AUTO = "auto"
"""The value of NETWORKS that adds networks until each endpoint is shown or the same."""
BUDGET = 20
"""The most networks then, without MAX_NETWORKS."""


def add_max_networks_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --max-networks and its former name."""
    parser.add_argument(
        "--max-networks",
        "--max-seeds",
        default="",
        action=SameTwice,
        help=f"with --networks {AUTO}: the most networks, {BUDGET} by default",
    )


def budget_of(args: argparse.Namespace) -> int | None:
    """Return the most networks that NETWORKS=auto may use; None without `auto`.

    Raises UserError.
    """
    if args.seeds == AUTO:
        return whole_number_of(args.max_networks, "--max-networks") if args.max_networks else BUDGET
    if args.max_networks:
        raise UserError(
            "--max-networks goes with --networks auto", "make experiment NETWORKS=auto ..."
        )
    return None


def requests_of(args: argparse.Namespace) -> list[tuple[str, Request]]:
    """What the arguments ask for, with a name where it is one of two: the least and the most.

    Raises UserError.
    """
    budget = budget_of(args)
    if budget is None:
        return [("", request_of(args))]
    # With it comes all of SciPy's statistics, which takes longer than all else here.
    from analysis.inference.sequential import FIRST_LOOK

    request = request_of(argparse.Namespace(**{**vars(args), "seeds": ""}))
    return [
        (f"at least, {FIRST_LOOK} networks", replace(request, seeds=FIRST_LOOK)),
        (f"at most, {budget} networks", replace(request, seeds=budget)),
    ]


def ways_of(
    costs: Costs, requests: Sequence[Request], estimate: Estimate, jobs: int | None
) -> list[tuple[Way, Estimate]]:
    """What would be cheaper, where it comes to hours."""
    return cheaper_ways(costs, [ask(costs.root, one) for one in requests], estimate, jobs)


def say_cost_of(
    args: argparse.Namespace, root: Path, jobs: int | None, executor: Executor | None = None
) -> None:
    """Print the cost of what the arguments ask for: with NETWORKS=auto the least and the most.

    Raises UserError as planning it would.
    """
    costs = Costs(root, at_once=_at_once(root, executor))
    for title, request in requests_of(args):
        _say(costs, [request], jobs, title)


def say_cost(
    root: Path, requests: Sequence[Request], jobs: int | None, executor: Executor | None = None
) -> None:
    """Print what some requests cost together. Raises UserError as planning them would."""
    _say(Costs(root, at_once=_at_once(root, executor)), requests, jobs, "")


def _at_once(root: Path, executor: Executor | None) -> int | None:
    """Runs that an executor makes at a time. Raises UserError where it cannot be used."""
    return None if executor is None else executor.opened(root).max_jobs


def _say(costs: Costs, requests: Sequence[Request], jobs: int | None, title: str) -> None:
    """One line, and a second on what would be cheaper where it comes to hours."""
    estimate = costs.estimate(requests, jobs)
    print(f"{one_line(estimate)}{f' ({title})' if title else ''}")
    cheaper = cheaper_line(ways_of(costs, requests, estimate, jobs))
    if cheaper is not None:
        print(cheaper)
