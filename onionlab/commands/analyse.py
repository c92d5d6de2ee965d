"""Extract the records of runs from their logs."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from analysis.formats.files import RECORDS, TRACE_COUNTS
from analysis.formats.record_files import read_trace_counts
from analysis.formats.run_files import is_traced
from analysis.records.extract import extract
from onionlab.commands._request import load_plan
from onionlab.paths import working_root
from onionlab.runs.store import Store

HELP = "extract the records of an experiment's finished runs from their logs again"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("name", nargs="?", help="an experiment that was run")
    which.add_argument(
        "--run-directory", type=Path, help="or one finished run, such as runs/0123456789abcdef"
    )


def run(args: argparse.Namespace) -> int:
    """Extract the records, and print for each run which parts of its logs were not counted."""
    if args.run_directory:
        directories = [args.run_directory.resolve()]
    else:
        plan = load_plan(args.name, working_root())
        finished = Store(plan.store).finished_among([run.run_id for run in plan.runs])
        directories = [plan.store / run.run_id for run in plan.runs if run.run_id in finished]
    for directory in directories:
        _extract(directory)
    return 0


def _extract(directory: Path) -> None:
    store = Store(directory.parent)
    # The lock keeps other commands from extracting the records at the same time. Commands that read
    # records do not lock them: each table is replaced by one rename. A folder outside a store has
    # no lock.
    with store.exclusive(directory.name) if store.has_locks else contextlib.nullcontext():
        report = extract(directory, directory / RECORDS)
    print(
        f"{directory.name}: {report.stream_lines} streams, {report.malformed_lines} malformed "
        f"lines, {report.truncated_files} cut logs"
    )
    for problem in report.problems:
        print(f"  {problem.file}: {'; '.join(problem.descriptions)}")
        for example in problem.examples[:1]:
            print(f"    line {example.line}: {example.reason}")
    if not_counted := report.not_counted():
        print(f"  not counted: {not_counted}")
    if is_traced(directory):
        for relay in read_trace_counts(directory / RECORDS / TRACE_COUNTS).relays:
            if relay.damage:
                print(f"  trace of {relay.relay}: {relay.damage}")
