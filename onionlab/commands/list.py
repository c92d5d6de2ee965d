"""List the experiments and variants of this checkout."""

from __future__ import annotations

import argparse
import sys

from onionlab.commands._output import print_table
from onionlab.errors import UserError
from onionlab.experiment import experiment_names, load
from onionlab.paths import working_root
from onionlab.programs.tor.variants import load_variants

HELP = "show the experiments and the variants of Tor, one line each"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    """Print the tables of experiments and of variants. Return 2 if an experiment is broken."""
    root = working_root()
    lines = []
    broken = []
    for name in experiment_names(root):
        try:
            experiment = load(name, root=root)
        except UserError as error:
            # One broken file must not hide the others.
            broken.append(error.message)
            lines.append((name, "(cannot be read, see below)"))
            continue
        runs = len(experiment.levels) * len(experiment.variants) * len(experiment.replicates)
        lines.append((name, f"{experiment.header.title} ({runs} runs)"))
    print_table("Experiments (make experiment NAME=...)", lines)
    print()
    variants = load_variants(root).values()
    print_table("Variants of Tor", ((one.name, one.description) for one in variants))
    for message in broken:
        print(f"error: {message}", file=sys.stderr)
    return 2 if broken else 0
