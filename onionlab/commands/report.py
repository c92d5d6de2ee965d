"""Turn the records of an experiment's runs into estimates, figures and a report."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.pages import report
from onionlab.commands._output import print_report
from onionlab.commands._request import load_plan
from onionlab.paths import working_root
from onionlab.runs.plan import read_plan
from onionlab.runs.store import Store
from onionlab.runs.study_file import update_provenance

HELP = "make tables, figures and report from the records of an experiment's runs"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("name", nargs="?", help="an experiment that was run")
    which.add_argument("--plan", type=Path, help="or its plan.json")
    parser.add_argument(
        "--wait-s",
        type=float,
        default=0.0,
        help="how long to wait for records that another node of a cluster has written",
    )


def run(args: argparse.Namespace) -> int:
    """Build the report. Print its answer, and its path on the last line."""
    plan = read_plan(args.plan) if args.plan else load_plan(args.name, working_root())
    Store(plan.store).await_records([run.run_id for run in plan.runs], args.wait_s)
    update_provenance(plan.study, plan.store)
    print_report(report.build(plan.study, plan.store, plan.out))
    return 0
