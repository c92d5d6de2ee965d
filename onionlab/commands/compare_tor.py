"""Compare two commits of a git repository of Tor, both without patches."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from onionlab.commands import compare, experiment
from onionlab.commands._arguments import (
    add_max_networks_argument,
    add_override_arguments,
    add_run_arguments,
)
from onionlab.errors import UserError
from onionlab.experiment import Experiment, load
from onionlab.paths import build_directory, working_root
from onionlab.programs.git import Commit, commits_between, find_commit, merge_base
from onionlab.programs.tor.build import ensure_variants
from onionlab.questions.tor_commits import require_tor, shorten, slug, write_experiment

HELP = "test whether commit B of Tor is worse than A; same exit status as compare"
STATUSES = compare.STATUSES


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", help="the baseline: a branch, a tag or a commit")
    parser.add_argument("b", help="what is judged; named in the same way")
    parser.add_argument(
        "--tor-git", type=Path, required=True, metavar="PATH", help="local git repository of Tor"
    )
    parser.add_argument("--name", default="today", help="experiment to run (default: today)")
    add_override_arguments(parser, auto=True)
    add_run_arguments(parser)
    add_max_networks_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Write an experiment with both commits as variants, run it, and print `compare`'s answer.

    If both commits compile to the same program, nothing is run.
    """
    root = working_root()
    # Load the experiment first. Otherwise, an error in its name would be reported as an error in
    # the file that is written below, which extends the experiment.
    base = load(args.name, root=root, any_tor=True)
    require_tor(base)
    repository = args.tor_git.expanduser().resolve()
    commits = {ref: find_commit(repository, ref) for ref in (args.a, args.b)}
    if commits[args.a] == commits[args.b]:
        raise UserError(
            f"{args.a} and {args.b} are the same commit of {repository}: {commits[args.a].hash}",
            "Name two commits that differ.",
        )
    for line in (
        *_describe_histories(repository, args.a, args.b, commits),
        *_describe_deployment(base),
    ):
        print(line)
    a, b = (f"tor-{slug(ref)}" for ref in (args.a, args.b))
    if a == b:
        a, b = f"{a}-a", f"{b}-b"
    name = f"{slug(Path(args.name).stem)}-{a.removeprefix('tor-')}-{b.removeprefix('tor-')}"
    variants = {
        # Use the hash as the ref, because a branch may move before all runs are finished. If the
        # work tree has uncommitted changes, keep the branch or HEAD, which includes the changes.
        variant: (ref if commits[ref].changed else commits[ref].hash, shorten(ref))
        for variant, ref in ((a, args.a), (b, args.b))
    }
    # The folder's name contains the hashes. If a branch moves, a later command thus writes to
    # another folder, and does not replace files that jobs of this command still read.
    hashes = "-".join(shorten(commit.hash) for commit in commits.values())
    folder = build_directory(root) / "compare-tor" / name / hashes
    file = write_experiment(root, folder, name, args.name, repository, variants)
    args.name, args.variants = str(file), ()
    # The estimate also finds errors in the arguments, before the builds, which take minutes.
    experiment.print_costs(args)
    built = ensure_variants(root, (a, b))
    if built[a].sha256 == built[b].sha256:
        print(f"{args.a} and {args.b} are the same program, so their runs would be the same.")
        return 0
    print(experiment.make(args))
    args.a, args.b = f"{name}:{a}", f"{name}:{b}"
    args.allow_diff, args.out, args.unpaired = "variant,tor", None, False
    return compare.run(args)


def _describe_histories(
    repository: Path, a: str, b: str, commits: Mapping[str, Commit]
) -> Iterator[str]:
    """Yield lines that say which commits the comparison covers.

    commits: the commits of the refs `a` and `b`.
    """
    hash_a, hash_b = commits[a].hash, commits[b].hash
    found = commits_between(repository, hash_a, hash_b)
    only_a, only_b, _ = found or (0, 0, ())
    if only_a == only_b == 0:
        return
    yield f"Commits that only {b} has: {only_b}. Commits that only {a} has: {only_a}."
    base = merge_base(repository, hash_a, hash_b)
    if only_a and only_b and base is not None:
        yield f"The effect is that of both. For the commits of {b} alone: A={base}"


def _describe_deployment(experiment: Experiment) -> Iterator[str]:
    """Yield lines that say which hosts run B, for levels in which not every host runs B."""
    levels: dict[str, list[str]] = {}
    for name, level in experiment.levels.items():
        deployment = level.settings.tor.deployment
        if deployment.where != "all" or deployment.fraction != 1:
            share = "" if deployment.fraction == 1 else f"{100 * deployment.fraction:.4g} % of the "
            levels.setdefault(f"{share}{deployment.where}", []).append(name)
    for where, names in levels.items():
        place = "" if len(names) == len(experiment.levels) else f" in {', '.join(names)}"
        yield f"B runs on: {where}{place}. The other hosts run A."
