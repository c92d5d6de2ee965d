"""Write runs into one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.errors import UserError
from onionlab.packing import pack
from onionlab.paths import repository_root
from onionlab.plan import read_plan
from onionlab.store import Store

HELP = "write the finished runs of results into one file, to be published or taken elsewhere"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", help="an experiment that was run; `figures` for a paper's runs")
    parser.add_argument("--out", type=Path, help="the file [results/NAME/runs.tar.xz]")
    parser.add_argument("--logs", action="store_true", help="with all files of each run")


def run(args: argparse.Namespace) -> int:
    """Print each run, and the file's path on the last line."""
    folder = repository_root() / "results" / Path(args.name).stem
    plans = [read_plan(path) for path in sorted(folder.rglob("plan.json"))]
    if not plans:
        raise UserError(
            f"there are no results of {args.name}", f"make them: make experiment NAME={args.name}"
        )
    out = args.out or folder / "runs.tar.xz"
    wanted = {planned.run_id for plan in plans for planned in plan.runs}
    studies = [plan.study for plan in plans]
    count = pack(Store(plans[0].store), wanted, out, studies=studies, logs=args.logs, say=print)
    print(f"{count} of {len(wanted)} runs, {out.stat().st_size / 1e6:.1f} MB")
    print(out)
    return 0
