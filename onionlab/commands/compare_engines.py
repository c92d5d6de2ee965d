"""The same experiment on two engines."""

from __future__ import annotations

import argparse
from dataclasses import replace

from onionlab.commands._arguments import (
    add_executor_arguments,
    add_jobs_argument,
    add_request_arguments,
    listed_names,
)
from onionlab.commands._cost import print_cost
from onionlab.commands._request import executor_of, jobs_of, request_of
from onionlab.engines import ENGINES
from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.questions.engine_comparison import compare_engines

HELP = "run an experiment on several engines and report what differs"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; --engine takes a list here."""
    add_request_arguments(parser)
    add_jobs_argument(parser)
    add_executor_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the reports' paths on the last lines."""
    engines = list(ENGINES) if args.engine in ("", "auto") else listed_names(args.engine)
    for name in engines:
        if name not in ENGINES:
            raise UserError(
                f"there is no engine {name!r}", f"the engines are: {', '.join(ENGINES)}"
            )
    root, jobs = working_root(), jobs_of(args)
    request, executor = request_of(args), executor_of(args)
    print_cost(root, [replace(request, engine=name) for name in engines], jobs, executor)
    made = compare_engines(root, request, engines, jobs=jobs, say=print, executor=executor)
    print(made.effects)
    print(made.between_engines)
    print(made.between_variants)
    return 0
