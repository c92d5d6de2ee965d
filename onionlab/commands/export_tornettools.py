"""Copy finished runs to folders for tornettools' own `parse`, `plot` and `archive`."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.commands._request import load_plan
from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.runs.places import require_writable
from onionlab.runs.store import Store
from onionlab.runs.tornettools_view import lay_out

HELP = "lay runs out for tornettools' own `parse`, `plot` and `archive`"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="an experiment of kind tornettools that was run")
    parser.add_argument("--out", type=Path, help="the folder [results/NAME/tornettools]")
    parser.add_argument(
        "--plot-data",
        action="store_true",
        help="also write tornet.plot.data from the runs' records, as `parse` does from the logs",
    )


def run(args: argparse.Namespace) -> int:
    """Copy the runs. Print each copy's folder, and then tornettools commands for these folders."""
    root = working_root()
    plan = load_plan(args.name, root)
    store = Store(plan.store)
    finished = store.finished_among([run.run_id for run in plan.runs])
    runs = [run for run in plan.runs if run.run_id in finished]
    if not runs:
        raise UserError(
            f"no run of {args.name} is finished", f"make them: make experiment NAME={args.name}"
        )
    out = args.out or plan.out / "tornettools"
    require_writable(out)
    made = lay_out(root, store, runs, out, with_plot_data=args.plot_data)
    for path in made:
        print(path)
    collections = list(dict.fromkeys(str(path.parent) for path in made))
    print(f"{len(made)} of {len(plan.runs)} runs")
    print("each of them: tornettools parse DIRECTORY")
    print(f"all together: tornettools plot {' '.join(collections)}")
    return 0
