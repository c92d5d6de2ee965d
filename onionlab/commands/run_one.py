"""Perform one run of a plan (plan.json of an experiment). Snakemake calls this for each run."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.paths import working_root
from onionlab.runs.plan import read_plan
from onionlab.runs.runner import execute, execute_on_cluster, extract_records
from onionlab.runs.store import Store

HELP = "make one run of a plan (called by the workflow)"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", type=Path, required=True, help="the experiment's plan.json")
    parser.add_argument("--root", type=Path, help="where the plan was made (default: here)")
    parser.add_argument("--run", dest="run_id", required=True, help="name of the run")
    parser.add_argument("--records", action="store_true", help="extract its records too")
    parser.add_argument(
        "--cluster", action="store_true", help="as a job of a cluster, with its records"
    )


def run(args: argparse.Namespace) -> int:
    """Perform the run, unless it is in the store, and extract its records if requested."""
    root, plan = args.root or working_root(), read_plan(args.plan)
    if args.cluster:
        execute_on_cluster(root, plan, args.run_id)
        return 0
    execute(root, plan, args.run_id)
    if args.records:
        extract_records(Store(plan.store), args.run_id)
    return 0
