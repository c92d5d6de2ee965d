"""Find the first commit of Tor at which an endpoint of an experiment got worse."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from onionlab.commands._arguments import (
    add_engine_arguments,
    add_repeats_argument,
    add_run_arguments,
    listed_names,
    number,
    whole_number,
)
from onionlab.commands._output import print_cost, print_report
from onionlab.commands._request import parse_overrides, parse_where
from onionlab.paths import is_file, working_root
from onionlab.questions.bisect import BisectRequest, BisectSearch

HELP = "find the first commit of Tor at which an endpoint got worse"

STATUSES = {
    0: "found: the first bad commit",
    1: "no such commit: BAD is not shown to be worse than GOOD",
    3: "not settled: several commits can be the first bad one",
}

DEFAULT_MAX_NETWORKS = 40


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--good", required=True, help="branch, tag or hash of a commit before the change"
    )
    parser.add_argument("--bad", required=True, help="a later commit, at which it is worse")
    parser.add_argument(
        "--tor-git", type=Path, required=True, metavar="PATH", help="local git repository of Tor"
    )
    parser.add_argument(
        "--endpoint", required=True, help="METRIC or CLASS:METRIC, such as ttfb_p50_s"
    )
    parser.add_argument("--name", default="today", help="experiment to run (default: today)")
    parser.add_argument("--skip", default="", metavar="COMMIT,...", help="commits not to test")
    parser.add_argument("--scale", type=number, help="multiply hosts and load, for instance 0.1")
    text = f"maximum number of networks for a commit, {DEFAULT_MAX_NETWORKS} by default"
    parser.add_argument("--max-networks", type=whole_number, help=text)
    add_repeats_argument(parser)
    add_engine_arguments(parser)
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Search, and print a line for each tested commit, the answer, and the path of the report."""
    root, where = working_root(), parse_where(args)
    args.networks = None
    name = str(Path(args.name).resolve()) if is_file(Path(args.name)) else args.name
    asked = BisectRequest(
        repository=args.tor_git.expanduser().resolve(),
        good=args.good,
        bad=args.bad,
        endpoint=args.endpoint,
        runs=replace(parse_overrides(args), experiment=name),
        budget=args.max_networks or DEFAULT_MAX_NETWORKS,
        skip=listed_names(args.skip),
    )
    search = BisectSearch(root, asked, where)
    # The estimate also finds errors in the arguments, before the builds, which take minutes.
    print_cost(root, [search.first_request()], where, "its first test, of BAD")
    result, report = search.run()
    print_report(report)
    if not result.search.left:
        return 1
    return 0 if result.search.found else 3
