"""Say what this machine is, as a node of a cluster (what the doctor starts there)."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.runs.workflow.nodes import answer, this_node

HELP = "say what this node of a cluster is (called by the doctor)"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--file", type=Path, required=True, help="that the doctor has locked")
    parser.add_argument("--shadow", help="Shadow's executable")
    parser.add_argument("--tgen", help="TGen's executable")


def run(args: argparse.Namespace) -> int:
    """Print one line."""
    print(answer(this_node(args.file, args.shadow, args.tgen)))
    return 0
