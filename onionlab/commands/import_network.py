"""Import networks that tornettools generated, one for each seed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
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
    root = working_root()
    experiment = FirstExperiment(root, args.name)
    directories = listed_files(args.directories)
    report(experiment, import_tornets(root, args.name, directories, experiment.write))
    return 0


@dataclass
class FirstExperiment:
    """An example experiment on imported networks, with the same name as the networks.

    Its file is not written if an experiment has this name, or if the name is not allowed.
    """

    root: Path
    name: str
    result: str = ""

    def write(self, network: Tornet, count: int) -> None:
        """Write the experiment, and set `result` to a sentence on what was done.

        network: one of the imported networks; count: the number of imported networks.
        """
        self.result = write_first_experiment(self.root, self.name, network, count)


def report(experiment: FirstExperiment, networks: Sequence[KeptTornet]) -> None:
    """Print what was imported, whether the experiment was written, and the networks' folder."""
    for kept in networks:
        for line in _summary(kept):
            print(line)
    print(experiment.result)
    print(networks_directory(experiment.root) / experiment.name)


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
