"""Make one run of a plan (what the workflow calls)."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.paths import working_root
from onionlab.runs.plan import read_plan
from onionlab.runs.runner import execute

HELP = "make one run of a plan (called by the workflow)"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--plan", type=Path, required=True, help="the experiment's plan.json")
    parser.add_argument("--root", type=Path, help="where the plan was made (default: here)")
    parser.add_argument("--run", dest="run_id", required=True, help="name of the run")


def run(args: argparse.Namespace) -> int:
    """Return when the run is in the store."""
    execute(args.root or working_root(), read_plan(args.plan), args.run_id, say=print)
    return 0
