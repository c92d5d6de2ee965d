"""Measure what the embedded engine costs against Shadow, and look for steps in the history."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.commands._request import whole_number_of
from onionlab.paths import working_root
from onionlab.questions.engine_bench import FULL_SIZE, SHORT, THOROUGH, run_bench
from onionlab.questions.engine_bench_words import lines_of

HELP = "measure what the embedded engine costs against Shadow; exit status 1: it costs more"

STATUSES = {
    0: "no alarm",
    1: "alarm: the embedded engine costs more than in earlier measurements",
}

REPETITIONS = 3


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--thorough", action="store_true", help="swrr-5mid at a tenth of its size too, three seeds"
    )
    which.add_argument(
        "--full-size", action="store_true", help="swrr-5mid at its full size instead, one seed"
    )
    parser.add_argument(
        "--by-ptrace",
        action="store_true",
        help="the embedded engine by ptrace too, as it is where nothing else can be had",
    )
    parser.add_argument(
        "--repetitions",
        default="",
        help=f"how often each engine makes each run (default: {REPETITIONS})",
    )
    parser.add_argument("--state", type=Path, help="folder of the history; default: bench/")
    parser.add_argument("--shadow", default="", help="path of Shadow, if it is not on the PATH")
    parser.add_argument("--tgen", default="", help="path of TGen, if it is not on the PATH")


def run(args: argparse.Namespace) -> int:
    """Print the tables, what is new, and the path of the history on the last line."""
    root = working_root()
    repetitions = (
        whole_number_of(args.repetitions, "--repetitions") if args.repetitions else REPETITIONS
    )
    bench = run_bench(
        root,
        THOROUGH if args.thorough else FULL_SIZE if args.full_size else SHORT,
        repetitions=repetitions,
        state=args.state or root / "bench",
        shadow=args.shadow or None,
        tgen=args.tgen or None,
        say=print,
        by_ptrace=args.by_ptrace,
    )
    for line in lines_of(bench):
        print(line)
    print(bench.history)
    return int(bench.alarm)
