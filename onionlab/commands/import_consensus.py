"""Import the relay weights of a consensus of Tor as distributions of capacity."""

from __future__ import annotations

import argparse
from pathlib import Path

from onionlab.network.consensus import import_consensus
from onionlab.paths import working_root

HELP = "import the relay weights of a consensus of Tor as distributions of capacity"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a network-status consensus, as Tor keeps one")
    parser.add_argument(
        "--name",
        required=True,
        help="the distributions are NAME-guard and so on, in configs/relay-capacity/NAME.yaml",
    )


def run(args: argparse.Namespace) -> int:
    """Import a consensus. Print each distribution's relays and weight, then the file's path."""
    consensus, path = import_consensus(working_root(), args.file, args.name)
    total = sum(map(sum, consensus.weights_kb_per_s.values()))
    print(f"valid after {consensus.valid_after}")
    for role, weights in consensus.weights_kb_per_s.items():
        if weights:
            share = sum(weights) / total
            print(f"  {args.name}-{role}: {len(weights)} relays, {share:.1%} of all weight")
        else:
            print(f"  no {args.name}-{role}: no relay takes this position")
    print(f"  left out: {consensus.not_running} not running or not valid, ", end="")
    print(f"{consensus.without_weight} without weight")
    print(path)
    return 0
