"""Make one run of a plan (what the workflow calls)."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.commands._arguments import whole_number
from onionlab.paths import working_root
from onionlab.runs.cluster_job import Job, make_as_job
from onionlab.runs.plan import read_plan
from onionlab.runs.runner import execute

HELP = "make one run of a plan (called by the workflow)"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--plan", type=Path, required=True, help="the experiment's plan.json")
    parser.add_argument("--root", type=Path, help="where the plan was made (default: here)")
    parser.add_argument("--run", dest="run_id", required=True, help="name of the run")
    parser.add_argument(
        "--command", type=Path, help="as a job of a cluster, with records: its command's file"
    )
    parser.add_argument(
        "--attempt", type=whole_number, default=1, help="which attempt of that job it is"
    )


def run(args: argparse.Namespace) -> int:
    """Return when the run is in the store."""
    root, plan = args.root or working_root(), read_plan(args.plan)
    if args.command is None:
        execute(root, plan, args.run_id, say=print)
    else:
        make_as_job(root, plan, args.run_id, Job(args.command, args.attempt), say=print)
    return 0
