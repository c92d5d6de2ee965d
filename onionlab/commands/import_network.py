"""Import networks that tornettools generated, one for each seed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from onionlab.commands._arguments import listed_files
from onionlab.experiment.tornettools_networks import write_first_experiment
from onionlab.paths import networks_directory, working_root
from onionlab.tornet.keeping import KeptTornet, import_tornets
from onionlab.tornet.model import Tornet

HELP = "import networks that `tornettools generate` wrote, one for each seed"


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories",
        nargs="+",
        metavar="DIRECTORY",
        help="what `tornettools generate` wrote; the first one is seed 1, and so on",
    )
    parser.add_argument("--name", required=True, help="name of the networks: networks/NAME")


def run(args: argparse.Namespace) -> int:
    """Import the networks, and write their first experiment.

    Print a summary of each network, and whether the experiment was written. The last line of the
    output is the networks' folder.
    """
    root, directories = working_root(), listed_files(args.directories)
    import_and_report(root, args.name, partial(import_tornets, root, args.name, directories))
    return 0


def import_and_report(root: Path, name: str, import_all: Callable[..., list[KeptTornet]]) -> None:
    """Import networks, write their first experiment, and print what was done.

    import_all: a function that imports the networks. Before it puts them in place, it calls its
    argument with one of the networks and their number.
    """
    written: list[str] = []

    def write(network: Tornet, count: int) -> None:
        written.append(write_first_experiment(root, name, network, count))

    for kept in import_all(write):
        for line in _summary(kept):
            print(line)
    print(*written)
    print(networks_directory(root) / name)


def _summary(kept: KeptTornet) -> list[str]:
    """Return lines that describe one network."""
    tornet = kept.tornet
    atlas = tornet.origin.atlas
    hosts = ", ".join(f"{count} {role}" for role, count in tornet.counts.items())
    processes = ", ".join(f"{count} {name}" for name, count in tornet.programs.items())
    options = [f"{section}.{option}" for section, its in tornet.options.items() for option in its]
    state = "imported" if kept.is_new else "exists already"
    return [
        f"seed {kept.seed}: {tornet.origin.directory}, {tornet.content_sha256[:16]}, {state}",
        f"  {len(tornet.hosts)} hosts: {hosts}",
        f"  processes: {processes}",
        f"  paths: {atlas.nodes_kept} of {atlas.nodes} nodes and {atlas.edges_kept} of "
        f"{atlas.edges} edges, those in use",
        f"  simulated time: {tornet.stop_ms / 1000:g} s, of which "
        f"{tornet.bootstrap_end_ms / 1000:g} s bootstrap",
        f"  left out: {', '.join(kept.left_out) or 'nothing'}",
        *([f"  options that only Shadow follows: {', '.join(options)}"] if options else []),
    ]
