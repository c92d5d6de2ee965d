"""Write the finished runs of an experiment into one file, a pack."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.formats.files import PLAN
from analysis.formats.study import load_study
from onionlab.commands._arguments import add_networks_argument
from onionlab.commands._request import no_results, output_file, results_folder
from onionlab.errors import UserError
from onionlab.experiment import checked_seeds
from onionlab.paths import working_root
from onionlab.runs.packed_studies import part_of_study
from onionlab.runs.packing import pack
from onionlab.runs.plan import read_plan
from onionlab.runs.store import Store

HELP = "write the finished runs of an experiment into one file, to publish or to copy them"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="an experiment that was run; `figures` for a paper's runs")
    parser.add_argument("--out", type=Path, help="the file [results/NAME/runs.tar.xz]")
    add_networks_argument(parser, "only these: a number n (networks 1 to n) or a list: 1,4,7")
    content = parser.add_mutually_exclusive_group()
    content.add_argument("--logs", action="store_true", help="with all files of each run")
    content.add_argument(
        "--published",
        action="store_true",
        help="with only what figures and claims read, in a much smaller file",
    )


def run(args: argparse.Namespace) -> int:
    """Write the finished runs to a file. Print their number, the file's size and its path."""
    folder = results_folder(args.name, working_root())
    plans = [read_plan(path) for path in sorted(folder.rglob(PLAN))]
    if not plans:
        raise no_results(args.name)
    out = output_file(args.out or folder / "runs.tar.xz")
    studies = [load_study(plan.study) for plan in plans]
    runs = [run for plan in plans for run in plan.runs]
    if args.networks is not None:
        seeds = checked_seeds(args.networks)
        runs = [run for run in runs if run.seed in seeds]
        if not runs:
            networks = ", ".join(map(str, seeds))
            raise UserError(f"found no run of {args.name} on these networks: {networks}")
        studies = [part_of_study(study, seeds) for study in studies]
    run_ids = {run.run_id for run in runs}
    count = pack(
        Store(plans[0].store),
        run_ids,
        out,
        studies=studies,
        logs=args.logs,
        published=args.published,
    )
    print(f"{count} of {len(run_ids)} runs, {out.stat().st_size / 1e6:.1f} MB")
    print(out)
    return 0
