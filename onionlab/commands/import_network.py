"""Import networks that tornettools generated, one for each seed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from onionlab.commands._arguments import listed_files
from onionlab.experiment.tornettools_writing import write_first_experiment
from onionlab.paths import networks_directory, working_root
from onionlab.tornet import KeptTornet, import_tornets

HELP = "import networks that `tornettools generate` wrote, one for each seed"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "directories",
        nargs="+",
        metavar="DIRECTORY",
        help="what `tornettools generate` wrote; the first one is seed 1, and so on",
    )
    parser.add_argument("--name", required=True, help="name of the networks: networks/NAME")


def run(args: argparse.Namespace) -> int:
    """Print what each network is, the experiment, and the networks' folder on the last line."""
    root = working_root()
    tell(root, args.name, import_tornets(root, args.name, listed_files(args.directories)))
    return 0


def tell(root: Path, name: str, networks: Sequence[KeptTornet]) -> None:
    """Say what was kept, and write an experiment on it where there is none."""
    for kept in networks:
        for line in _summary(kept):
            print(line)
    print(write_first_experiment(root, name, networks[0].tornet, len(networks)))
    print(networks_directory(root) / name)


def _summary(kept: KeptTornet) -> list[str]:
    """What one network is, in lines."""
    tornet = kept.tornet
    atlas = tornet.origin.atlas
    hosts = ", ".join(f"{count} {role}" for role, count in tornet.counts.items())
    processes = ", ".join(f"{count} {name}" for name, count in tornet.programs.items())
    state = "imported" if kept.is_new else "was there"
    return [
        f"seed {kept.seed}: {tornet.origin.directory}, {tornet.content_sha256[:16]}, {state}",
        f"  {len(tornet.hosts)} hosts: {hosts}",
        f"  processes: {processes}",
        f"  paths: {atlas.nodes_kept} of {atlas.nodes} nodes and {atlas.edges_kept} of "
        f"{atlas.edges} edges, those in use",
        f"  simulated time: {tornet.stop_ms / 1000:g} s, of which "
        f"{tornet.bootstrap_end_ms / 1000:g} s bootstrap",
    ]
