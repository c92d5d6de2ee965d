"""Add the runs of packs (files that `onionlab pack` wrote) to the store (the folder runs/)."""

from __future__ import annotations

import argparse
import sys

from onionlab.commands._arguments import listed_files
from onionlab.paths import working_root
from onionlab.runs.packing import unpack
from onionlab.runs.store import Store

HELP = "add the runs of packs to the store, so that they are not simulated again"

STATUSES = {1: "the store has a run with other records, which it keeps"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="what `onionlab pack` wrote")


def run(args: argparse.Namespace) -> int:
    """Unpack runs and print how many are new. Return 1 if the store's records of a run differ."""
    store = Store(working_root() / "runs")
    results = [result for file in listed_files(args.files) for result in unpack(store, file)]
    new, same, different = (
        [run_id for run_id, outcome in results if outcome == name]
        for name in ("new", "same", "different")
    )
    print(f"{len(new)} runs are new, the store has {len(same)} with the same records")
    for run_id in different:
        print(f"error: the store has {run_id} with other records, which it keeps", file=sys.stderr)
    return 1 if different else 0
