"""Run the same experiment on several engines."""

from __future__ import annotations

import argparse
from dataclasses import replace

from onionlab.commands._arguments import add_request_arguments, add_run_arguments, listed_names
from onionlab.commands._output import print_cost
from onionlab.commands._request import parse_request, parse_where
from onionlab.engines import ENGINES
from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.questions.engine_comparison import compare_engines

HELP = "run an experiment on several engines and report the differences"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the experiment on the engines. Print the paths of the table and the reports at the end.

    The value of --engine can be a list of engines; by default it is all engines.
    """
    engines = list(ENGINES) if args.engine in ("", "auto") else listed_names(args.engine)
    for name in engines:
        if name not in ENGINES:
            raise UserError(f"unknown engine {name!r}", f"the engines are: {', '.join(ENGINES)}")
    root = working_root()
    request, where = parse_request(args), parse_where(args)
    print_cost(root, [replace(request, engine=name) for name in engines], where)
    for path in compare_engines(root, request, engines, where):
        print(path)
    return 0
