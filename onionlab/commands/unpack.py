"""Take runs from a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onionlab.packing import unpack
from onionlab.paths import repository_root
from onionlab.store import Store

HELP = "take the runs of a file that `onionlab pack` wrote, so that they are not made again"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, help="what `onionlab pack` wrote")


def run(args: argparse.Namespace) -> int:
    """Print how many runs are new; 1 where a run is there with other records."""
    done = unpack(Store(repository_root() / "runs"), args.file)
    print(f"{len(done.new)} runs are new, {len(done.same)} were there with the same records")
    for run_id in done.different:
        print(f"error: {run_id} is there with other records, which were kept", file=sys.stderr)
    return 1 if done.different else 0
