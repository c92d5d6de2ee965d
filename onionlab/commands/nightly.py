"""Run the nightly list, judge the runs against the baseline, and write summaries and history."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from onionlab.commands._arguments import (
    add_engine_arguments,
    add_networks_argument,
    add_repeats_argument,
    add_run_arguments,
)
from onionlab.commands._output import print_cost
from onionlab.commands._request import parse_overrides, parse_where
from onionlab.errors import UserError
from onionlab.experiment.nightly_list import read_nightly_list
from onionlab.paths import working_root
from onionlab.questions.nightly import entry_request, run_nightly, watch_repository

HELP = "run the nightly list against its baseline; exit status 1: an endpoint is worse"

DEFAULT_REF = "main"

STATUSES = {0: "no alarm", 1: "alarm: an endpoint is shown to be worse than in the baseline"}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, help="list of experiments (default: experiments/nightly.yaml)"
    )
    parser.add_argument(
        "--state-dir", type=Path, help="folder of baselines and history (default: nightly/)"
    )
    text = "make the runs of this night the baselines of the whole list"
    parser.add_argument("--update-baseline", action="store_true", help=text)
    text = "run a commit of this local git repository of Tor in place of the list's variants"
    parser.add_argument("--tor-git", metavar="PATH", help=text)
    parser.add_argument(
        "--ref", help="branch, tag or commit of that repository (default: main); nothing is fetched"
    )
    add_networks_argument(parser, "networks in place of the list's: a number, or 11,12,13")
    add_repeats_argument(parser)
    add_engine_arguments(parser)
    add_run_arguments(parser)


def baseline_command(args: argparse.Namespace) -> str:
    """Return the make command, without REF, that accepts this nightly run as the baseline."""
    networks = args.networks
    listed = ",".join(map(str, networks)) if isinstance(networks, list) else networks
    values = {
        "UPDATE_BASELINE": "1",
        "CONFIG": args.config,
        "STATE_DIR": args.state_dir,
        "TOR_GIT": args.tor_git,
        "NETWORKS": listed,
        "REPEATS": args.repeats,
        "ENGINE": "" if args.engine == "auto" else args.engine,
        "SHADOW": args.shadow,
        "TGEN": args.tgen,
    }
    words = [f"{name}={shlex.quote(str(value))}" for name, value in values.items() if value]
    return " ".join(["make nightly", *words])


def run(args: argparse.Namespace) -> int:
    """Run and judge the listed experiments. Print the answers, and the paths of the output."""
    root, overrides, where = working_root(), parse_overrides(args), parse_where(args)
    nightly = read_nightly_list(args.config or root / "experiments/nightly.yaml", root=root)
    repository = None
    if args.tor_git:
        nightly, repository = watch_repository(
            root, nightly, Path(args.tor_git), args.ref or DEFAULT_REF
        )
        print(repository.tor.sentence)
    elif args.ref:
        raise UserError(
            "REF names a commit of Tor's repository, and TOR_GIT is missing",
            f"make nightly TOR_GIT=/path/to/tor REF={args.ref}",
        )
    requests = [entry_request(entry, overrides) for entry in nightly.experiments]
    print_cost(root, requests, where)
    night, paths = run_nightly(
        root,
        nightly,
        overrides,
        state=args.state_dir or root / "nightly",
        update_baseline=args.update_baseline,
        where=where,
        baseline_command=baseline_command(args),
        repository=repository,
    )
    for since in night.tor.ranges if night.tor else ():
        print("\n  ".join([since.sentence, *since.lines]))
    for result in night.results:
        print(f"{'ALARM ' if result.alarm else ''}{result.name}: {' '.join(result.answer)}")
        if result.next_step:
            print(f"  {result.next_step[0]}: {result.next_step[1]}")
        print(f"  {result.sees}")
    print(night.sentence)
    new = [step for step in night.steps if step.new]
    print(f"{len(night.steps)} step changes in the history, {len(new)} of them new")
    for path in (paths.history, paths.junit, paths.markdown, paths.html):
        print(path)
    return int(night.alarm)
