"""NETWORKS=auto: the smallest and the largest request."""

from __future__ import annotations

import argparse
from dataclasses import replace

from analysis.formats.plan_file import Request
from onionlab.commands._arguments import AUTO, whole_number
from onionlab.commands._request import parse_request
from onionlab.errors import UserError

DEFAULT_MAX_NETWORKS = 20


def add_max_networks_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --max-networks."""
    text = f"maximum number with --networks {AUTO}, {DEFAULT_MAX_NETWORKS} by default"
    parser.add_argument("--max-networks", type=whole_number, help=text)


def look_requests(args: argparse.Namespace) -> list[tuple[str, Request]]:
    """Return the request, or for NETWORKS=auto the smallest and the largest, with titles.

    Raises:
        UserError: --max-networks is given without NETWORKS=auto.
    """
    if args.networks != AUTO:
        if args.max_networks:
            raise UserError(
                "--max-networks goes with --networks auto", "make experiment NETWORKS=auto ..."
            )
        return [("", parse_request(args))]
    # This imports SciPy's statistics, which takes longer than the rest of the command.
    from analysis.inference.sequential import FIRST_LOOK

    request, budget = parse_request(args), args.max_networks or DEFAULT_MAX_NETWORKS
    return [
        (f"at least, {FIRST_LOOK} networks", replace(request, seeds=FIRST_LOOK)),
        (f"at most, {budget} networks", replace(request, seeds=budget)),
    ]
