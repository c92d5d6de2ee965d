"""Import networks that tornettools generated, one for each seed."""

from __future__ import annotations

import argparse

from onionlab.commands._arguments import listed_files
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
    """Print what each network is, and their folder on the last line."""
    root = working_root()
    for kept in import_tornets(root, args.name, listed_files(args.directories)):
        for line in summary(kept):
            print(line)
    print(networks_directory(root) / args.name)
    return 0


def summary(kept: KeptTornet) -> list[str]:
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
