"""Compare two commits of a git repository of Tor, both without patches."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.commands import compare, experiment
from onionlab.commands._arguments import (
    add_max_networks_argument,
    add_override_arguments,
    add_run_arguments,
)
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.paths import build_directory, working_root
from onionlab.programs.git import find_commit
from onionlab.programs.tor.build import ensure_variants
from onionlab.questions.tor_commits import CommitVariant, shorten, slug, write_experiment

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
    load(args.name, root=root)
    repository = args.tor_git.expanduser().resolve()
    commits = {ref: find_commit(repository, ref) for ref in (args.a, args.b)}
    if commits[args.a] == commits[args.b]:
        raise UserError(
            f"{args.a} and {args.b} are the same commit of {repository}: {commits[args.a].hash}",
            "Name two commits that differ.",
        )
    a, b = (f"tor-{slug(ref)}" for ref in (args.a, args.b))
    if a == b:
        a, b = f"{a}-a", f"{b}-b"
    name = f"{slug(Path(args.name).stem)}-{a.removeprefix('tor-')}-{b.removeprefix('tor-')}"
    variants = {
        # Use the hash as the ref, because a branch may move before all runs are finished. If the
        # work tree has uncommitted changes, keep the branch or HEAD, which includes the changes.
        variant: CommitVariant(
            repository, ref if commits[ref].changed else commits[ref].hash, shorten(ref)
        )
        for variant, ref in ((a, args.a), (b, args.b))
    }
    # The folder's name contains the hashes. If a branch moves, a later command thus writes to
    # another folder, and does not replace files that jobs of this command still read.
    hashes = "-".join(shorten(commit.hash) for commit in commits.values())
    folder = build_directory(root) / "compare-tor" / name / hashes
    file = write_experiment(root, folder, name, args.name, variants)
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
