"""Import other people's simulations as a set of runs to compare."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from analysis.formats.files import RUN_SET, STUDY
from analysis.imports.importing import ImportOptions, import_runs
from onionlab.errors import UserError
from onionlab.paths import working_root

HELP = "import results of tgentools or tornettools, to be compared with `onionlab compare`"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="tgen.analysis.json[.xz], tornet.plot.data, or folders that hold such",
    )
    parser.add_argument("--name", required=True, help="name of the set: results/NAME")
    parser.add_argument(
        "--from", dest="begin_s", type=float, help="simulated second from which downloads count"
    )
    parser.add_argument(
        "--to", dest="end_s", type=float, help="simulated second before which they count"
    )
    parser.add_argument(
        "--leave-out-empty",
        action="store_true",
        help="leave out simulations in which no download completed",
    )


def run(args: argparse.Namespace) -> int:
    """Print what was imported, and the set's path on the last line."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", args.name) is None:
        raise UserError(
            f"{args.name!r} is no name for a set", "letters, digits, points and hyphens only"
        )
    folder = working_root() / "results" / args.name
    if (folder / STUDY).exists():
        raise UserError(f"{folder} holds results of an experiment", "choose another name")
    options = ImportOptions(args.begin_s, args.end_s, args.leave_out_empty)
    made = import_runs(args.paths, args.name, options)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RUN_SET
    path.write_text(made.text(), encoding="utf-8")
    print(f"{len(made.runs)} simulations")
    for note in made.notes:
        print(f"note: {note}")
    print(path)
    return 0
