"""Write the run directories of an experiment without running them."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from analysis.formats.files import RUN
from onionlab.commands._arguments import add_request_arguments
from onionlab.commands._request import request_of
from onionlab.errors import UserError
from onionlab.paths import build_directory, working_root
from onionlab.runs.bench import open_bench
from onionlab.runs.planning import make_plan

HELP = "write the run directories of an experiment, without running them"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_request_arguments(parser)
    parser.add_argument("--output", default="", help="where to (default: build/generated/NAME)")


def run(args: argparse.Namespace) -> int:
    """Write one directory for each run and print their common parent on the last line."""
    root = working_root()
    request = request_of(args)
    plan = make_plan(root, request, say=print)
    bench = open_bench(root, request, say=print, resolved=plan.resolved)
    output = (
        Path(args.output) if args.output else build_directory(root) / "generated" / plan.out.name
    )
    for planned in plan.runs:
        directory = output / planned.title.replace("seed ", "seed").replace(" ", "-")
        if directory.exists():
            if not (directory / RUN).exists():
                raise UserError(f"{directory} is there and is no run directory")
            shutil.rmtree(directory)
        bench.compose(planned.level, planned.variant, planned.seed, planned.repeat).write(directory)
        print(f"{planned.run_id}  {directory}")
    print(output)
    return 0
