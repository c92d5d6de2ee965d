"""Turn arguments of :mod:`onionlab.commands._arguments` into requests, executors, plans and paths.

A request is the name of an experiment, with values that override values in the experiment's file.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from analysis.formats.files import FIGURES, PLAN
from analysis.formats.plan_file import Request
from onionlab.commands._arguments import AUTO, DEFAULT_MAX_NETWORKS
from onionlab.errors import UserError
from onionlab.experiment.load import LIST_HINT
from onionlab.paths import code_root, is_file
from onionlab.runs.places import require_writable
from onionlab.runs.plan import Plan, read_plan
from onionlab.runs.store import Store
from onionlab.runs.workflow.executor import Executor, Where, open_executor
from onionlab.yamlfile.units import show


def parse_request(args: argparse.Namespace) -> Request:
    """Return the request for an experiment with its overrides."""
    # Jobs of the workflow run in another folder, so a path has to be absolute.
    path = Path(args.name)
    name = str(path.resolve()) if is_file(path) else args.name
    return replace(parse_overrides(args), experiment=name, variants=args.variants)


def parse_overrides(args: argparse.Namespace) -> Request:
    """Return a request that has the overrides, but no experiment and no variants."""
    return Request(
        experiment="",
        scale=getattr(args, "scale", None),
        seeds=None if args.networks == AUTO else args.networks,
        repeats=args.repeats,
        engine=args.engine or "auto",
        shadow=args.shadow or None,
        tgen=args.tgen or None,
    )


def look_requests(args: argparse.Namespace) -> list[tuple[str, Request]]:
    """Return the requests whose costs a command shows, each as a pair (title, request).

    With NETWORKS=auto there are two pairs: one with the smallest and one with the largest number of
    networks. Otherwise there is one pair, and its title is empty.

    Raises:
        UserError: --max-networks is given without NETWORKS=auto.
    """
    if args.networks != AUTO:
        if args.max_networks:
            raise UserError(
                "--max-networks goes with --networks auto", "make experiment NETWORKS=auto ..."
            )
        return [("", parse_request(args))]
    # This imports SciPy's statistics, which takes longer than the rest of the command.
    from analysis.inference.sequential import FIRST_LOOK

    request, budget = parse_request(args), args.max_networks or DEFAULT_MAX_NETWORKS
    return [
        (f"at least, {FIRST_LOOK} networks", replace(request, seeds=FIRST_LOOK)),
        (f"at most, {budget} networks", replace(request, seeds=budget)),
    ]


def parse_executor(args: argparse.Namespace) -> Executor | None:
    """Return the executor of a cluster, or None if the runs are performed on this machine.

    Raises:
        UserError: The options do not fit together, or the executor cannot be used.
    """
    resources = {"slurm_partition": args.partition, "slurm_account": args.account, "qos": args.qos}
    if not args.executor:
        if any([*resources.values(), args.max_jobs, args.profile]):
            raise UserError(
                "--partition, --account, --qos, --max-jobs and --profile are for the jobs of a "
                "cluster, and the runs are to be made here",
                "EXECUTOR=slurm (or --executor slurm) sends them to a cluster",
            )
        return None
    if getattr(args, "jobs", None):
        raise UserError(
            "--jobs is for simulations on this machine",
            "MAX_JOBS (or --max-jobs) limits the number of jobs of a cluster",
        )
    default_profile = code_root() / "configs" / args.executor
    return open_executor(
        args.executor,
        Path(args.profile).resolve() if args.profile else default_profile,
        {name: value for name, value in resources.items() if value},
        args.max_jobs,
    )


def parse_where(args: argparse.Namespace) -> Where:
    """Return a cluster's executor or, without a cluster, the number of concurrent simulations.

    If this number is None, it is chosen later.

    Raises:
        UserError: The options do not fit together, or the executor cannot be used.
    """
    jobs: int | None = args.jobs
    return parse_executor(args) or jobs


def results_folder(name: str, root: Path) -> Path:
    """Return the results folder of an experiment. name: its name, or the path of its file.

    Raises:
        UserError: No experiment can have this name, or the experiment has no results.
    """
    stem = Path(name).stem
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", stem, re.ASCII) is None:
        raise UserError(f"{show(name)} is not the name of an experiment", LIST_HINT)
    folder = root / "results" / stem
    if not folder.is_dir():
        raise no_results(name)
    return folder


def no_results(name: str) -> UserError:
    """Return the error for an experiment that was not run, or for figures without runs."""
    stem, _, claims = name.partition("-")
    if stem == FIGURES:
        # Figures that were drawn from packs have a folder, but no runs.
        command = f"make figures CLAIMS={claims}" if claims else "make figures"
        return UserError(f"found no runs of {name}", f"make them, without PACKS: {command}")
    return UserError(f"found no results of {name}", f"make them: make experiment NAME={name}")


def load_plan(name: str, root: Path) -> Plan:
    """Return the plan of an experiment that was run.

    Raises:
        UserError: The experiment was not run, or files of a finished run were changed or truncated.
    """
    path = results_folder(name, root) / PLAN
    if not path.exists():
        raise no_results(name)
    plan = read_plan(path)
    store = Store(plan.store)
    for run in plan.runs:
        if store.manifest(run.run_id).exists() and not store.is_finished(run.run_id):
            raise UserError(
                f"{store.run(run.run_id)} is incomplete: its logs differ from its manifest",
                f"repeat the run: make experiment NAME={name}",
            )
    return plan


def output_file(path: Path) -> Path:
    """Return the path if a file can be written there. Call this before computing the content.

    A device such as /dev/null is refused, because writing the output would replace the device by
    an ordinary file.

    Raises:
        UserError: The path is a folder or a device, or its folder is not writable.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file", f"name a file: {path}/FILE")
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not an ordinary file", "name another one")
    require_writable(path.parent)
    return path
