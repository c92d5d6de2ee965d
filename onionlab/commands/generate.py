"""Write the run directories of an experiment without running them."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from analysis.formats.files import RUN
from onionlab.commands._arguments import add_request_arguments
from onionlab.commands._request import parse_request
from onionlab.errors import UserError
from onionlab.paths import build_directory, working_root
from onionlab.runs.plan import make_plan
from onionlab.runs.run_builder import open_run_builder

HELP = "write the run directories of an experiment, without running them"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)
    parser.add_argument("--output", default="", help="where to (default: build/generated/NAME)")


def run(args: argparse.Namespace) -> int:
    """Write one directory for each run and print their common parent on the last line."""
    root, request = working_root(), parse_request(args)
    plan = make_plan(root, request)
    builder = open_run_builder(root, request, plan.resolved)
    default = build_directory(root) / "generated" / plan.out.name
    output = Path(args.output) if args.output else default
    for planned in plan.runs:
        directory = output / planned.title.replace("seed ", "seed").replace(" ", "-")
        if directory.exists():
            if not (directory / RUN).exists():
                raise UserError(f"{directory} exists and is not a run directory")
            shutil.rmtree(directory)
        run = builder.compose(planned.level, planned.variant, planned.seed, planned.repeat)
        run.write(directory)
        print(f"{planned.run_id}  {directory}")
    print(output)
    return 0
