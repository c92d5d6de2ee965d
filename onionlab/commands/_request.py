"""What the arguments of :mod:`onionlab.commands._arguments` ask for."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import replace
from pathlib import Path

from analysis.formats.files import PLAN
from analysis.formats.plan_file import Request
from onionlab.commands._arguments import listed_names
from onionlab.errors import UserError
from onionlab.experiment import parse_seeds
from onionlab.experiment.load import LIST_HINT
from onionlab.paths import code_root, is_file
from onionlab.runs.places import require_writable
from onionlab.runs.plan import Plan, read_plan
from onionlab.runs.store import Store
from onionlab.runs.workflow.executor import Executor, open_executor
from onionlab.yamlfile.units import show


def request_of(args: argparse.Namespace) -> Request:
    """Return what the arguments ask for. Raises UserError."""
    # Jobs work in another directory: a path has to hold there too.
    path = Path(args.name)
    request = overrides_of(args, str(path.resolve()) if is_file(path) else args.name)
    variants = listed_names(args.variants)
    if args.variants and not variants:
        raise UserError(f"--variants: expected names such as rr,ewma, got {show(args.variants)}")
    return replace(request, variants=variants)


def overrides_of(args: argparse.Namespace, experiment: str) -> Request:
    """Return what the arguments ask to change in an experiment. Raises UserError."""
    scale = _number(args.scale, "--scale") if args.scale else None
    return replace(runs_of(args, experiment), scale=scale)


def runs_of(args: argparse.Namespace, experiment: str) -> Request:
    """Return an experiment with the networks and the engine asked for. Raises UserError."""
    return Request(
        experiment=experiment,
        seeds=parse_seeds(args.seeds) if args.seeds else None,
        repeats=whole_number_of(args.repeats, "--repeats") if args.repeats else None,
        engine=args.engine or "auto",
        shadow=args.shadow or None,
        tgen=args.tgen or None,
    )


def jobs_of(args: argparse.Namespace) -> int | None:
    """Return the number of jobs asked for, or None. Raises UserError."""
    if not args.jobs:
        return None
    return whole_number_of(args.jobs, "--jobs")


def executor_of(args: argparse.Namespace) -> Executor | None:
    """Return the executor of a cluster; None if runs are made here. Raises UserError."""
    resources = {"slurm_partition": args.partition, "slurm_account": args.account, "qos": args.qos}
    if not args.executor:
        if any([*resources.values(), args.max_jobs, args.profile]):
            raise UserError(
                "--partition, --account, --qos, --max-jobs and --profile are for the jobs of a "
                "cluster, and the runs are to be made here",
                "EXECUTOR=slurm (or --executor slurm) sends them to a cluster",
            )
        return None
    if args.jobs:
        raise UserError(
            "--jobs is for simulations on this machine",
            "MAX_JOBS (or --max-jobs) limits the number of jobs of a cluster",
        )
    default_profile = code_root() / "configs" / args.executor
    return open_executor(
        args.executor,
        Path(args.profile).resolve() if args.profile else default_profile,
        {name: value for name, value in resources.items() if value},
        whole_number_of(args.max_jobs, "--max-jobs") if args.max_jobs else None,
    )


def whole_number_of(text: str, option: str) -> int:
    """Return an option's whole number, at least 1. Raises UserError."""
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) is None or int(text) < 1:
        raise UserError(f"{option}: expected a whole number of at least 1, got {show(text)}")
    return int(text)


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{option}: expected a number such as 0.1, got {show(text)}")
    return number


def results_folder(name: str, root: Path) -> Path:
    """Where the results of an experiment are, by its name or the path of its file.

    Raises:
        UserError: what is named is no experiment's folder, such as ``..``; or nothing is there.
    """
    stem = Path(name).stem
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", stem, re.ASCII) is None:
        raise UserError(f"{show(name)} is no name of an experiment", LIST_HINT)
    folder = root / "results" / stem
    if not folder.is_dir():
        raise UserError(
            f"there are no results of {name}", f"make them: make experiment NAME={name}"
        )
    return folder


def plan_of(name: str, root: Path) -> Plan:
    """Return the plan of an experiment that was run.

    Raises:
        UserError: It was not run, or files of one of its runs were changed or cut since.
    """
    path = results_folder(name, root) / PLAN
    if not path.exists():
        raise UserError(
            f"there are no results of {name}", f"make them: make experiment NAME={name}"
        )
    plan = read_plan(path)
    store = Store(plan.store)
    for run in plan.runs:
        if store.manifest(run.run_id).exists() and not store.is_finished(run.run_id):
            raise UserError(
                f"{store.run(run.run_id)} is not whole: its logs are not those that its manifest "
                "lists",
                f"repeat the run: make experiment NAME={name}",
            )
    return plan


def output_file(path: Path) -> Path:
    """A file that a command is to write, before the work for it. Raises UserError: no such place.

    A device such as /dev/null is no file: it would be replaced by one.
    """
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, and a file is to be written", f"name one: {path}/FILE"
        )
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file", "name another one")
    require_writable(path.parent)
    return path


def output_folder(path: Path) -> Path:
    """A folder that a command is to write into, likewise. Raises UserError: no such place."""
    require_writable(path)
    return path
