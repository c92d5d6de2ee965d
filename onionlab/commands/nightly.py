"""Run the nightly list, judge it against the baseline, and write summaries and history."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.commands._request import jobs_of
from onionlab.experiment import parse_seeds
from onionlab.nightly import read_list, run_night
from onionlab.paths import repository_root
from onionlab.plan import Request

HELP = "run the nightly list against its baseline; exit status 1: a primary metric is worse"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--list", type=Path, help="default: experiments/nightly.yaml")
    parser.add_argument("--state", type=Path, help="baselines and history; default: nightly/")
    parser.add_argument("--accept", action="store_true", help="make this night's runs the baseline")
    parser.add_argument("--seeds", default="", help="instead of the list's: a number, or 11,12,13")
    parser.add_argument("--engine", default="auto", help="auto or the name of an engine")
    parser.add_argument("--shadow", default="", help="path of Shadow, if it is not on the PATH")
    parser.add_argument("--tgen", default="", help="path of TGen, if it is not on the PATH")
    parser.add_argument("--jobs", default="", help="simulations side by side")


def run(args: argparse.Namespace) -> int:
    """Print the answers, and the paths of summaries and history on the last lines."""
    root = repository_root()
    asked = Request(
        experiment="",
        seeds=parse_seeds(args.seeds) if args.seeds else None,
        engine=args.engine or "auto",
        shadow=args.shadow or None,
        tgen=args.tgen or None,
    )
    night, paths = run_night(
        root,
        read_list(args.list or root / "experiments" / "nightly.yaml"),
        asked,
        state=args.state or root / "nightly",
        accept=args.accept,
        jobs=jobs_of(args),
        say=print,
    )
    for result in night.results:
        print(f"{'ALARM ' if result.alarm else ''}{result.name}: {result.sentence}")
    new = [step for step in night.steps if step.new]
    print(f"{len(night.steps)} step changes in the history, {len(new)} of them new")
    for path in (paths.history, paths.junit, paths.markdown, paths.html):
        print(path)
    return int(night.alarm)
