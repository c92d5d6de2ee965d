"""Take runs from a file."""

from __future__ import annotations

import argparse
import sys

from onionlab.commands._arguments import listed_files
from onionlab.paths import working_root
from onionlab.runs.packing import unpack
from onionlab.runs.store import Store

HELP = "take the runs of files that `onionlab pack` wrote, so that they are not made again"

STATUSES = {1: "a run is there with other records, which were kept"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="what `onionlab pack` wrote")


def run(args: argparse.Namespace) -> int:
    """Print how many runs are new; 1 where a run is there with other records."""
    store = Store(working_root() / "runs")
    done = [unpack(store, file) for file in listed_files(args.files)]
    new = sum(len(one.new) for one in done)
    same = sum(len(one.same) for one in done)
    print(f"{new} runs are new, {same} were there with the same records")
    different = [run_id for one in done for run_id in one.different]
    for run_id in different:
        print(f"error: {run_id} is there with other records, which were kept", file=sys.stderr)
    return 1 if different else 0
