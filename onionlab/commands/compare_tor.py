"""Compare two commits of a git repository of Tor, both without patches."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

import yaml

from onionlab.commands import compare, experiment
from onionlab.commands._arguments import (
    add_max_networks_argument,
    add_override_arguments,
    add_run_arguments,
)
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.paths import build_directory, is_file, working_root
from onionlab.programs.git import Commit, find_commit
from onionlab.programs.tor.tor_source import ID_LENGTH
from onionlab.programs.tor.variants import OWN_FILE_VARIABLE, STOCK, TorVariant, load_variants

HELP = "test whether commit B of Tor is worse than A; same exit status as compare"
STATUSES = compare.STATUSES

STYLES = (("#000000", "o", "-"), ("#882255", "^", "--"))
"""Colour, marker and line style of A and B in figures."""


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
    """Write an experiment with both commits as variants, run it, and print `compare`'s answer."""
    root = working_root()
    # Load the experiment here, so that an error in its name is not attributed to the file below.
    load(args.name, root=root)
    repository = args.tor_git.expanduser().resolve()
    commits = {ref: find_commit(repository, ref) for ref in (args.a, args.b)}
    if commits[args.a] == commits[args.b]:
        raise UserError(
            f"{args.a} and {args.b} are the same commit of {repository}: {commits[args.a].hash}",
            "Name two commits that differ.",
        )
    stock = load_variants(root)[STOCK]
    a, b = (f"tor-{_slug(ref)}" for ref in (args.a, args.b))
    if a == b:
        a, b = f"{a}-a", f"{b}-b"
    base = str(Path(args.name).resolve()) if is_file(Path(args.name)) else f"{args.name}.yaml"
    name = f"{_slug(Path(base).stem)}-{a.removeprefix('tor-')}-{b.removeprefix('tor-')}"
    variants = {
        variant: _entry(stock, repository, ref, commits[ref], style)
        for variant, ref, style in zip((a, b), (args.a, args.b), STYLES, strict=True)
    }
    folder = build_directory(root) / "compare-tor" / name
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"extends": base, "tor": {"variants": [a, b], "baseline": a}}
    for file, content in (("variants", {"variants": variants}), (name, settings)):
        (folder / f"{file}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    os.environ[OWN_FILE_VARIABLE] = str(folder / "variants.yaml")
    args.name, args.variants = str(folder / f"{name}.yaml"), ()
    experiment.run(args)
    args.a, args.b = f"{name}:{a}", f"{name}:{b}"
    args.allow_diff, args.out, args.unpaired = "variant,tor", None, False
    return compare.run(args)


def _short(ref: str) -> str:
    return ref[:ID_LENGTH] if re.fullmatch("[0-9a-f]{40}", ref) else ref


def _slug(ref: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", _short(ref).lower()).strip("-").removeprefix("tor-") or "ref"


def _entry(
    stock: TorVariant, repository: Path, ref: str, commit: Commit, style: tuple[str, str, str]
) -> dict[str, object]:
    """Return the entry of a variant in the file of variants.

    It names the commit by its hash, because a branch may move before all runs are made. If the work
    tree has changes, it names the branch or HEAD instead, which includes these changes.
    """
    source = {"git": str(repository), "ref": ref if commit.changed else commit.hash}
    return {
        "description": f"Tor at {_short(ref)}",
        "label": _short(ref),
        **dict(zip(("color", "marker", "linestyle"), style, strict=True)),
        "source": source,
        "torrc": dict(stock.torrc),
    }
