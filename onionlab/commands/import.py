"""Import results of other tools as a set of runs to compare."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path

from analysis.formats.durable import write_whole
from analysis.formats.files import RUN_SET, STUDY
from analysis.imports.importing import import_runs
from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.tornet.keeping import require_name

HELP = (
    "import results of tgentools, OnionPerf or tornettools, to be compared with `onionlab compare`"
)


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="tgen.analysis.json[.xz], OnionPerf's *.onionperf.analysis.json[.xz], "
        "tornet.plot.data, or folders that hold such",
    )
    parser.add_argument("--name", required=True, help="name of the set: results/NAME")
    parser.add_argument(
        "--start", dest="begin_s", type=_second, help="simulated second from which downloads count"
    )
    parser.add_argument(
        "--end", dest="end_s", type=_second, help="simulated second before which they count"
    )
    parser.add_argument(
        "--leave-out-empty",
        action="store_true",
        help="leave out simulations in which no download completed",
    )
    parser.add_argument(
        "--network",
        type=_pattern,
        help="a regular expression that finds the network in a simulation's name",
    )


def run(args: argparse.Namespace) -> int:
    """Import the results. Print what was imported, and the set's path on the last line."""
    require_name(args.name, "a set")
    if None not in (args.begin_s, args.end_s) and args.begin_s >= args.end_s:
        raise UserError(f"--start {args.begin_s:g} is not before --end {args.end_s:g}")
    folder = working_root() / "results" / args.name
    if (folder / STUDY).exists():
        raise UserError(f"{folder} holds results of an experiment", "choose another name")
    made = import_runs(
        args.paths,
        args.name,
        begin_s=args.begin_s,
        end_s=args.end_s,
        leave_out_empty=args.leave_out_empty,
        network=args.network,
    )
    path = folder / RUN_SET
    write_whole(path, made.text())
    print(f"{len(made.runs)} simulations")
    for note in made.notes:
        print(f"note: {note}")
    print(path)
    return 0


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(text) from error


_pattern.__name__ = "regular expression"


def _second(text: str) -> float:
    """Parse a time in seconds. It has to be finite.

    With a limit of NaN or infinity, no downloads or all downloads would be selected.
    """
    second = float(text)
    if not math.isfinite(second):
        raise ValueError
    return second


_second.__name__ = "number of seconds"
"""Name that argparse uses in its message: `invalid number of seconds value: 'nan'`."""
