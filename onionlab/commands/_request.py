"""The arguments by which several verbs name an experiment and what to change in it."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.errors import UserError
from onionlab.experiment import parse_seeds
from onionlab.plan import Plan, Request, read_plan


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare NAME, --scale, --seeds, --engine, --shadow and --tgen.

    Empty values count as not given: that is what make passes on for a variable that is not set.
    """
    parser.add_argument("name", help="name of an experiment, or the path of its file")
    parser.add_argument("--scale", default="", help="multiply hosts and load, for instance 0.1")
    parser.add_argument(
        "--seeds",
        default="",
        help="a number n (seeds 1 to n) or a list: 1,4,7; experiment takes auto",
    )
    parser.add_argument("--variants", default="", help="some of its variants: rr,ewma")
    parser.add_argument("--engine", default="auto", help="auto or the name of an engine")
    parser.add_argument("--shadow", default="", help="path of Shadow, if it is not on the PATH")
    parser.add_argument("--tgen", default="", help="path of TGen, if it is not on the PATH")


def add_jobs_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --jobs."""
    parser.add_argument("--jobs", default="", help="simulations side by side")


def request_of(args: argparse.Namespace) -> Request:
    """Return what the arguments ask for. Raises UserError."""
    # Jobs work in another directory: a path has to hold there too.
    path = Path(args.name)
    return Request(
        experiment=str(path.resolve()) if path.is_file() else args.name,
        scale=_number(args.scale, "--scale") if args.scale else None,
        seeds=parse_seeds(args.seeds) if args.seeds else None,
        variants=tuple(args.variants.split(",")) if args.variants else (),
        engine=args.engine or "auto",
        shadow=args.shadow or None,
        tgen=args.tgen or None,
    )


def jobs_of(args: argparse.Namespace) -> int | None:
    """Return the number of jobs asked for, or None. Raises UserError."""
    if not args.jobs:
        return None
    return whole_number_of(args.jobs, "--jobs")


def whole_number_of(text: str, option: str) -> int:
    """Return an option's whole number, at least 1. Raises UserError."""
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{option}: expected a whole number of at least 1, got {text!r}")
    return int(text)


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{option}: expected a number such as 0.1, got {text!r}") from None


def plan_of(name: str, root: Path) -> Plan:
    """Return the plan of an experiment that was run. Raises UserError where it was not."""
    path = root / "results" / Path(name).stem / "plan.json"
    if not path.exists():
        raise UserError(
            f"there are no results of {name}", f"make them: make experiment NAME={name}"
        )
    return read_plan(path)
