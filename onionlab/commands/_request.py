"""What the arguments of :mod:`onionlab.commands._arguments` ask for."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from analysis.formats.files import PLAN
from analysis.formats.plan_file import Request
from onionlab.errors import UserError
from onionlab.experiment import parse_seeds
from onionlab.runs.plan import Plan, read_plan


def request_of(args: argparse.Namespace) -> Request:
    """Return what the arguments ask for. Raises UserError."""
    # Jobs work in another directory: a path has to hold there too.
    path = Path(args.name)
    request = overrides_of(args, str(path.resolve()) if path.is_file() else args.name)
    return replace(request, variants=tuple(args.variants.split(",")) if args.variants else ())


def overrides_of(args: argparse.Namespace, experiment: str) -> Request:
    """Return what the arguments ask to change in an experiment. Raises UserError."""
    scale = _number(args.scale, "--scale") if args.scale else None
    return replace(runs_of(args, experiment), scale=scale)


def runs_of(args: argparse.Namespace, experiment: str) -> Request:
    """Return an experiment with the seeds and the engine asked for. Raises UserError."""
    return Request(
        experiment=experiment,
        seeds=parse_seeds(args.seeds) if args.seeds else None,
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
    path = root / "results" / Path(name).stem / PLAN
    if not path.exists():
        raise UserError(
            f"there are no results of {name}", f"make them: make experiment NAME={name}"
        )
    return read_plan(path)
